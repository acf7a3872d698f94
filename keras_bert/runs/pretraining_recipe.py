"""Every setting of a pretraining run as one frozen value."""

import dataclasses
from typing import ClassVar, Literal

import keras

from keras_bert.config import ROBERTAS, EncoderConfig, check_field_types
from keras_bert.data.objectives import ObjectiveName
from keras_bert.data.sources import TextLayout
from keras_bert.text.masking import Masking
from keras_bert.training.distribution import Strategy
from keras_bert.training.optimizers import LAMB, AdamW, layer_decay
from keras_bert.training.schedules import WarmupDecay


@dataclasses.dataclass(frozen=True)
class PretrainRecipe:
    """Every setting of a pretraining run."""

    # What may differ when a run goes on: nothing of this reaches the weights, but for rounding.
    free_fields: ClassVar = {
        "workdir",
        "dry_run",
        "keep",
        "evaluate_examples",
        "final_examples",
        "export_best",
        "strategy",
        "tpu",
        "steps_per_call",
        "accumulate",
        "remat",
        "jit_compile",
        "layout",
        "on_nonfinite",  # a run that was stopped goes on without the update that stopped it
        "records",
        "final_records",
    }
    begun: ClassVar = ("tokenizer_config.json", "states")  # what a run then has in its directory

    workdir: str = "runs/pretrain"
    """Directory for everything the run writes; a run that was interrupted goes on from it."""
    dry_run: bool = False
    """Makes a few steps, a save, a restore and an evaluation for each row length, in a directory of
    their own, and says what they took: whether the run fits, before it is begun."""

    # --- text
    corpus: str = "builtin"
    """"builtin" (documentation on this machine), "tfds:NAME", "jsonl:PATH" (files with a JSON object on
    each line), or the path of text: a file, folder or glob."""
    text_layout: TextLayout = "file"
    """How text files hold documents: one a file; separated by blank lines; or that with one sentence
    a line."""
    tfds_split: str = "train"
    """Split of a TFDS corpus."""
    text_field: str | None = None
    """Text feature of a TFDS corpus, None for the only one; field of JSON objects, None for "text"."""
    held_out_every: int = 33
    """Of a corpus of your own, each document whose number is a multiple of this is held out."""
    records: str | None = None
    """Directory that tools/build_records.py wrote, for corpora larger than memory: its text, tokenizer,
    objective, row length and short rows then are the run's."""
    final_records: str | None = None
    """The same with rows of `final_length`."""
    block_shards: int = 8
    """Shards of records that are read, and shuffled, together."""
    data_service: str | None = None
    """Address (grpc://host:port) of a tf.data service that prepares the batches of `records`: faster,
    but such a run cannot be repeated exactly."""
    tokenizer: str | None = None
    """A vocab.txt or the directory of a tokenizer, ours or Hugging Face's; None trains a WordPiece
    vocabulary on the corpus."""
    vocab_size: int = 4000
    """Entries of a vocabulary that is trained."""
    lowercase: bool = True
    """Whether a tokenizer with a vocab.txt lower-cases and drops accents."""

    # --- start
    init_from: str | None = None
    """A finished run's directory, or any checkpoint that `from_pretrained` reads, whose model (weights
    and architecture, not optimizer or step) and tokenizer this run starts from: continued pretraining.
    Resuming needs no flag: see `workdir`."""
    new_entries: int = 0
    """With `init_from`: how many frequent words of the corpus the vocabulary gains."""

    # --- model
    preset: str = "bert_tiny"
    """Size of the encoder: bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large."""
    model_type: str = "bert"
    """Family that the finished model is written as: bert, roberta, albert, ... (see EncoderConfig).
    RoBERTa's count positions from behind the padding's row of the table."""
    dropout: float = 0.0
    """Dropout everywhere in the encoder; little text seen once needs none."""
    initializer_range: float = 0.06
    """Standard deviation of the initial weights. 0.06 suits a width of 128; BERT's 0.02 suits 768."""
    hidden_act: str = "gelu"
    """Nonlinearity of the feed-forward layers."""
    layer_norm_eps: float = 1e-12
    """Added to the variance by every layer norm; 1e-5 for RoBERTa's form."""
    max_position_embeddings: int = 512
    """Rows of the position table."""
    type_vocab_size: int = 2
    """Segment ids; 1 for RoBERTa's form."""
    use_pooler: bool = True
    """Whether the first token's state passes a dense layer: what a sentence objective needs."""
    embedding_size: int | None = None
    """Width of the word table where it is factorised (ALBERT: 128)."""
    num_hidden_groups: int | None = None
    """Blocks with weights of their own (ALBERT: 1)."""
    layout: Literal["dense", "unpadded"] = "unpadded"
    """Whether padding is computed: dense has static shapes, for XLA and TPUs; unpadded is faster on
    CPU."""
    dtype: str = "float32"
    """Keras dtype policy: float32, mixed_bfloat16 or mixed_float16; the tools also take auto:
    mixed_bfloat16 where the processor or accelerator is fast at it, else float32."""

    # --- examples
    objective: ObjectiveName = "next_sentence"
    """What an example is: a pair as BERT's or ALBERT's, or a row of whole sentences as RoBERTa's."""
    max_length: int = 32
    """Tokens in a row."""
    max_predictions: int | None = None
    """Most predictions in a row; None for as many as the rate asks for in a full one."""
    masking_rate: float = 0.4
    """Share of tokens to predict in training. Held-out figures are always those of BERT's 15 %, so that
    runs can be compared."""
    masking: Masking = "token"
    """What is masked together: each token by itself, whole words, spans of up to 10 words (SpanBERT),
    or n-grams of up to 3 (ALBERT)."""
    short_rate: float | None = None
    """Share of rows cut to a random shorter length; None for the objective's own."""
    final_steps: int = 0
    """The last steps, trained on longer rows (BERT: the last tenth)."""
    final_length: int = 512
    """Tokens in their rows."""
    final_batch_size: int | None = None
    """Rows in their batches; None for `batch_size`."""
    final_max_predictions: int | None = None
    """Most predictions in one of their rows."""

    # --- training
    batch_size: int = 32
    """Rows in a batch, over all replicas and micro-batches."""
    steps: int = 2500
    """Optimizer steps of the whole run."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """AdamW, or LAMB for batches of thousands."""
    learning_rate: float = 2e-3
    """Peak of the learning rate."""
    warmup_steps: int = 100
    """Steps until the peak."""
    schedule: Literal["linear", "cosine", "polynomial"] = "linear"
    """How the rate falls to 0 from there."""
    decay_power: float = 1.0
    """Exponent of the polynomial schedule."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and norms are spared."""
    beta_2: float = 0.999
    """Of Adam's second moment."""
    epsilon: float = 1e-6
    """Of Adam's denominator."""
    global_clipnorm: float = 1.0
    """Largest norm of all gradients together; 0 for no limit."""
    layer_decay: float = 1.0
    """Learning rate of each block over that of the next one, for continued pretraining."""
    ema_momentum: float | None = None
    """Averages the weights over the steps with this momentum (0.999, say), for the export."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """What a loss or gradient that is NaN or infinite does: ends the run, or leaves the update out."""
    seed: int = 0
    """Of weights, order, pairs, masks and dropout."""

    # --- machines
    strategy: Strategy = "none"
    """"none": one device. "mirrored": all GPUs of this host. "multi_worker": all hosts of TF_CONFIG.
    "tpu": a TPU."""
    tpu: str | None = None
    """Name or address of the TPU; "local" on a TPU VM."""
    accumulate: int = 1
    """Micro-batches that each replica's share of a batch is cut into, to fit into memory."""
    remat: bool = False
    """Whether the backward pass computes each block anew instead of keeping its states: less memory,
    a third more time."""
    steps_per_call: int = 1
    """Steps between two returns to Python; more are faster on accelerators."""
    jit_compile: bool = False
    """Whether XLA compiles forward and backward pass; needs the dense layout."""

    # --- saving and looking
    save_every: int = 250
    """Steps between saved states and held-out figures; must divide `steps` and `final_steps`."""
    keep: int = 2
    """How many saved states to keep."""
    evaluate_examples: int = 512
    """Held-out examples for the figures at each saved state."""
    final_examples: int = 4096
    """Held-out examples for the report; beyond one pass, pairs and masks are drawn anew."""
    export_best: bool = False
    """Whether the model is exported into best/ whenever its held-out loss is the lowest so far."""

    def __post_init__(self):
        check_field_types(self)
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if self.steps % self.save_every or self.final_steps % self.save_every:
            raise ValueError(
                "`save_every` must divide `steps` and `final_steps`, so that a run resumes at a "
                f"boundary. Received: save_every={self.save_every}, steps={self.steps}, "
                f"final_steps={self.final_steps}."
            )
        if not 0 <= self.final_steps < self.steps:
            raise ValueError(
                "`final_steps` must be the last of `steps`. "
                f"Received: final_steps={self.final_steps}, steps={self.steps}."
            )
        if self.held_out_every < 2:
            raise ValueError(f"`held_out_every` must be at least 2. Received: {self.held_out_every}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must lie in [0, 2**32). Received: {self.seed}.")
        if not self.learning_rate > 0:
            raise ValueError(f"`learning_rate` must be positive. Received: {self.learning_rate}.")
        if self.global_clipnorm < 0:
            raise ValueError(
                f"`global_clipnorm` must not be negative. Received: {self.global_clipnorm}."
            )
        if self.ema_momentum is not None and not 0 <= self.ema_momentum < 1:
            raise ValueError(f"`ema_momentum` must lie in [0, 1). Received: {self.ema_momentum}.")
        self._check_lengths()
        self._check_machines()
        if self.new_entries < 0 or (self.new_entries and (self.records or not self.init_from)):
            raise ValueError(
                "`new_entries` must come with `init_from`, whose vocabulary gains them, and without "
                "`records`, which have a vocabulary. Received: "
                f"new_entries={self.new_entries}, init_from={self.init_from}, records={self.records}."
            )
        if self.init_from and self.tokenizer:
            raise ValueError(
                "`init_from` must come with its own tokenizer. "
                f"Received: tokenizer={self.tokenizer} beside init_from={self.init_from}."
            )
        if bool(self.final_records) != bool(self.records and self.final_steps):
            raise ValueError(
                "`final_records` must be given where `final_steps` follow on `records`, and only "
                f"there. Received: final_records={self.final_records}, records={self.records}, "
                f"final_steps={self.final_steps}."
            )
        if self.data_service and not self.records:
            raise ValueError("`data_service` must come with `records`. Received: no records.")
        if self.dtype != "auto":
            keras.dtype_policies.get(self.dtype)
        self.make_schedule()

    def _check_lengths(self):
        if self.init_from:
            return  # the checkpoint's position table decides
        longest = self.encoder_config().max_length
        lengths = {"max_length": self.max_length}
        if self.final_steps:
            lengths["final_length"] = self.final_length
        for name, length in lengths.items():
            if length > longest:
                raise ValueError(
                    f"`{name}` must not exceed the position table. "
                    f"Received: {name}={length}, {self.preset} has {longest}."
                )

    def _check_machines(self):
        if self.layout != "dense" and (self.jit_compile or self.strategy == "tpu"):
            raise ValueError(
                "`layout` must be dense for XLA and TPUs, which need static shapes. Received: "
                f"layout={self.layout}, jit_compile={self.jit_compile}, strategy={self.strategy}."
            )
        if (self.strategy == "tpu") != (self.tpu is not None):
            raise ValueError(
                '`tpu` must be given with strategy "tpu", and only with it. '
                f"Received: strategy={self.strategy}, tpu={self.tpu}."
            )

    @property
    def has_sentence_head(self):
        """Whether the objective asks for the order of sentences."""
        return self.objective != "full_sentences"

    def encoder_config(self, **overrides):
        """The EncoderConfig of the run; its vocabulary's size and padding are known later."""
        fields = {
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
            "max_position_embeddings": self.max_position_embeddings,
            "type_vocab_size": self.type_vocab_size,
            "use_pooler": self.use_pooler,
            "embedding_size": self.embedding_size,
            "num_hidden_groups": self.num_hidden_groups,
        }
        fields |= overrides
        if self.model_type in ROBERTAS:
            fields["position_offset"] = fields.get("pad_token_id", 0) + 1
        return EncoderConfig.from_preset(self.preset, **fields)

    def make_schedule(self):
        """The learning rate over steps."""
        return WarmupDecay(
            self.learning_rate, self.warmup_steps, self.steps, self.schedule, self.decay_power
        )

    def make_optimizer(self, config):
        """The optimizer of a model with this EncoderConfig."""
        average = self.ema_momentum is not None
        return {"adamw": AdamW, "lamb": LAMB}[self.optimizer](
            self.make_schedule(),
            self.weight_decay,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            global_clipnorm=self.global_clipnorm or None,
            rate_factors=() if self.layer_decay == 1 else layer_decay(config, self.layer_decay),
            **({"use_ema": True, "ema_momentum": self.ema_momentum} if average else {}),
        )


_COUNTS = (
    "steps",
    "save_every",
    "keep",
    "batch_size",
    "accumulate",
    "steps_per_call",
    "block_shards",
    "evaluate_examples",
    "final_examples",
)
