"""SentencePiece models: their files, and tf-text's op around them."""

import base64
import functools
import hashlib
import os

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, text_format
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as text_ops

SPACE = "▁"  # U+2581, what SentencePiece makes of white space
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # types of pieces
_DATA_URL = "data:;base64,"  # what a config, which must fit into JSON, has instead of a path
_NO_SAMPLING = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}


class SentencePieceOp(tf.Module):
    """tf-text's SentencePiece op, around a model that stays.

    `tf_text.SentencepieceTokenizer` loses its model in eager mode as soon as TensorFlow drops its
    cached kernels, which `tf.random.set_seed` and `keras.utils.set_random_seed` make it do. A model
    with a name outlives its kernel; equal models share their name, and so their memory.

    Args:
        model: The bytes of a `spiece.model`.
    """

    def __init__(self, model):
        super().__init__()
        self._resource = _NamedModel(model)

    def tokenize(self, text, out_type=tf.int32):
        """Ids, or pieces where `out_type` is string, of (B,) strings; (B, pieces) ragged."""
        values, splits = text_ops.sentencepiece_tokenize_op(
            self._resource.resource_handle, text, **_NO_SAMPLING, out_type=out_type
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def tokenize_with_offsets(self, text):
        """Ids and the bytes where they start and end; three of (B, pieces) ragged."""
        values, splits, starts, ends = text_ops.sentencepiece_tokenize_with_offsets_op(
            self._resource.resource_handle, text, **_NO_SAMPLING
        )
        return tuple(
            tf.RaggedTensor.from_row_splits(flat, splits, validate=False)
            for flat in (values, starts, ends)
        )


class _NamedModel(tf.saved_model.experimental.TrackableResource):
    def __init__(self, model):
        super().__init__()
        self._model = model
        with tf.init_scope():
            _ = self.resource_handle  # reading it creates it

    def _create_resource(self):
        name = f"sentencepiece_{hashlib.sha256(self._model).hexdigest()}"
        return text_ops.sentencepiece_op(model=self._model, shared_name=name)


def read_model(model):
    """The bytes of a model, and what to call it in errors."""
    if isinstance(model, str) and model.startswith(_DATA_URL):
        model = base64.b64decode(model.removeprefix(_DATA_URL))
    if isinstance(model, bytes):
        return model, f"{len(model)} bytes"
    path = os.fspath(model)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(f"`model` must be an existing file, or bytes. Received: {path}.")
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read(), path


def data_url(model):
    """The bytes of a model as text, which `read_model` takes too."""
    return _DATA_URL + base64.b64encode(model).decode()


def parse_model(content, source):
    """The model as a protobuf message, refused if it is none that this tokenizer can use."""
    try:
        proto = _message_class().FromString(content)
    except message.DecodeError:
        proto = _message_class()()
    if not any(piece.type == UNKNOWN for piece in proto.pieces):
        raise ValueError(
            "`model` must be a SentencePiece model, as its trainer writes it. "
            f"Received: {source} that is none."
        )
    if proto.trainer_spec.treat_whitespace_as_suffix or not proto.normalizer_spec.escape_whitespaces:
        raise ValueError(
            f"`model` must put white space as {SPACE} in front of its pieces. "
            f"Received: {source} with treat_whitespace_as_suffix="
            f"{proto.trainer_spec.treat_whitespace_as_suffix}, escape_whitespaces="
            f"{proto.normalizer_spec.escape_whitespaces}."
        )
    return proto


# The fields of SentencePiece's own schema that are read here.
_SCHEMA = """
name: "sentencepiece_model.proto" package: "sentencepiece" syntax: "proto2"
message_type { name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "type" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "1" }
}
message_type { name: "Trainer"
  field { name: "treat_whitespace_as_suffix" number: 24 type: TYPE_BOOL label: LABEL_OPTIONAL }
}
message_type { name: "Normalizer"
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "escape_whitespaces" number: 5 type: TYPE_BOOL label: LABEL_OPTIONAL
          default_value: "true" }
}
message_type { name: "Model"
  field { name: "pieces" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".sentencepiece.Piece" }
  field { name: "trainer_spec" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".sentencepiece.Trainer" }
  field { name: "normalizer_spec" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".sentencepiece.Normalizer" }
  field { name: "self_test_data" number: 4 type: TYPE_BYTES label: LABEL_OPTIONAL }
}
"""


@functools.cache
def _message_class():
    """The protobuf class of a model. Fields that it does not declare are kept as they are.

    PyPI's `sentencepiece` has the whole class, but generated for a protobuf as new as itself, which
    TensorFlow may not allow.
    """
    file = text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()  # of its own: others may declare the same file
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sentencepiece.Model"))
