"""The ops that exports may have: those they need, all of which TF Serving has since 2.12."""

_NAMES = """
Const Identity IdentityN NoOp Placeholder StopGradient Assert If StatelessIf While StatelessWhile
PartitionedCall StatefulPartitionedCall

VarHandleOp VarIsInitializedOp ReadVariableOp AssignVariableOp DisableCopyOnRead
HashTableV2 LookupTableFindV2 LookupTableImportV2 LookupTableSizeV2
SaveV2 RestoreV2 MergeV2Checkpoints ShardedFilename

AddV2 Sub Mul Neg RealDiv FloorDiv FloorMod Maximum Minimum Square SquaredDifference Pow Sqrt Rsqrt
Exp Erf Tanh Sigmoid Relu Softmax LogSoftmax BiasAdd MatMul BatchMatMulV2 Cumsum ArgMax TopKV2
Sum Mean Prod Max Min All Any
Equal NotEqual Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr Select SelectV2

Cast Shape Size Reshape ExpandDims Squeeze Transpose Pack Unpack ConcatV2 Split SplitV StridedSlice
Slice Tile BroadcastTo BroadcastArgs Fill ZerosLike OnesLike Range OneHot Pad PadV2 Where
GatherV2 GatherNd InvertPermutation EnsureShape ScatterNd TensorScatterUpdate ResourceGather
BitwiseAnd RightShift
UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum DenseBincount Unique
RaggedRange RaggedGather RaggedTensorToTensor ParseExampleV2

StringJoin ReduceJoin StringLength StringLower StringSplitV2 Substr
StaticRegexFullMatch StaticRegexReplace
UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode DecodeRaw

NormalizeUTF8 NormalizeUTF8WithOffsetsMap CaseFoldUTF8 RegexSplitWithOffsets
FastWordpieceTokenizeWithOffsets SentencepieceOp SentencepieceTokenizeOp
SentencepieceTokenizeWithOffsetsOp
"""
SERVED_OPS = frozenset(_NAMES.split())
