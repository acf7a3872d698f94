"""Every setting of a fine-tuning run as one frozen value."""

import dataclasses
from typing import ClassVar, Literal

import keras

from keras_bert.data.labelled import TFDS
from keras_bert.tasks.table import TASKS, of_tfds
from keras_bert.tasks.task import path_of


@dataclasses.dataclass(frozen=True)
class FinetuneRecipe:
    """Every setting of a fine-tuning run; refused at birth when inconsistent."""

    # what may differ when a run goes on
    free_fields: ClassVar = {"workdir", "seeds", "accumulate", "strategy", "jit_compile"}

    # --- what
    task: str = "classification"
    """A task of the table (tasks/table.py): a published one, or a kind for data of your own."""
    init: str = ""
    """The pretrained directory, or hf://owner/name: whatever `from_pretrained` reads."""
    workdir: str = "runs/finetune"
    """Where everything is written."""
    data: str | None = None
    """Folder of the task's files; tfds for the task's data set of TensorFlow Datasets, tfds:NAME for
    another one. Or name the files by the next flags."""
    train: str | None = None
    """File of the training data."""
    dev: str | None = None
    """File that chooses the best epoch."""
    test: str | None = None
    """File that is predicted, and scored if it has labels, at the end."""
    text: str | None = None
    """Column of the text, where the task's is not it."""
    text_pair: str | None = None
    """Column of the second text of pairs."""
    label: str | None = None
    """Column of the label."""
    columns: tuple[str, ...] | None = None
    """Names of the columns, where files have no header."""

    # --- how texts are read
    max_length: int = 128
    """Most tokens of a row, or of a window over a long text."""
    stride: int = 32
    """Tokens from one window to the next (tagging, answers)."""

    # --- training
    epochs: int = 3
    """Passes over the training data."""
    batch_size: int = 32
    """Examples in a batch, over all replicas and micro-batches."""
    learning_rate: float = 5e-5
    """Its peak."""
    warmup_rate: float = 0.1
    """Share of the steps in which it rises."""
    schedule: Literal["linear", "cosine", "polynomial"] = "linear"
    """How it falls after that."""
    weight_decay: float = 0.01
    """Of AdamW."""
    global_clipnorm: float = 1.0
    """Largest norm of all gradients together; 0 for no limit."""
    layer_decay: float = 1.0
    """Rate of a block in units of that of the block above it."""
    freeze_layers: int = 0
    """How many of the lowest blocks, and the embeddings below them, stay as they are."""
    dropout: float | None = None
    """Dropout in the encoder; None for the checkpoint's."""
    label_smoothing: float = 0.0
    """Share of the truth that is spread over all labels."""
    focal_gamma: float = 0.0
    """Power of the focal loss."""
    balance: bool = False
    """Whether rare labels count as much as frequent ones in the loss."""
    patience: int | None = None
    """Epochs without a better score after which training stops; None for never."""
    metric: str | None = None
    """The score that chooses the best epoch; None for the task's."""
    seeds: int = 1
    """How many runs, of which mean and spread are told."""
    seed: int = 0
    """The first of their seeds."""

    # --- machines
    accumulate: int = 1
    """Micro-batches that a batch is worked through in."""
    layout: Literal["dense", "packed", "unpadded"] = "unpadded"
    """How rows lie in a batch of training: unpadded computes no padding, which is fastest on CPU and
    GPU; dense rows are all of `max_length`, for XLA; packed ones too, with several texts in each (of
    tasks with a label for each text or word), and a batch holds `batch_size` texts on average."""
    jit_compile: bool = False
    """Whether XLA compiles the step; with layout dense or packed."""
    dtype: str = "float32"
    """Keras dtype policy: float32, mixed_bfloat16 or mixed_float16; the tools also take auto:
    mixed_bfloat16 where the processor or accelerator is fast at it, else float32."""
    strategy: Literal["none", "mirrored"] = "none"
    """One device, or all that are here."""

    def __post_init__(self):
        if self.task not in TASKS:
            raise ValueError(f"`task` must be one of {', '.join(TASKS)}. Received: {self.task!r}.")
        for name in ("epochs", "batch_size", "seeds", "accumulate", "max_length", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if not 0 <= self.warmup_rate <= 1:
            raise ValueError(f"`warmup_rate` must lie in [0, 1]. Received: {self.warmup_rate}.")
        if self.dtype != "auto":
            keras.dtype_policies.get(self.dtype)
        if self.jit_compile and self.layout == "unpadded":
            raise ValueError(
                "`layout` must be dense or packed for XLA, which needs static shapes. "
                f"Received: layout={self.layout}, jit_compile=True."
            )

    @property
    def begun(self):
        """What a run that has begun has in its directory."""
        return (f"seed_{self.seed}",)

    @property
    def encoder_layout(self):
        """That of the model: packed rows are dense."""
        return "dense" if self.layout == "packed" else self.layout

    def resolve_task(self):
        """The Task, with the columns that flags name."""
        task = TASKS[self.task]
        if self._data and self._data.startswith(TFDS):
            task = of_tfds(self.task, task)
        given = {
            name: getattr(self, name)
            for name in ("text", "text_pair", "label", "columns", "metric")
            if getattr(self, name) is not None
        }
        return dataclasses.replace(task, **given)

    @property
    def _data(self):
        """`data`, with the name of the task's own data set."""
        if self.data != TFDS.removesuffix(":"):
            return self.data
        name = TASKS[self.task].tfds
        if name is None:
            raise ValueError(
                f"`data` must name a data set, tfds:NAME: the task {self.task} has none of its own. "
                "Received: tfds."
            )
        return TFDS + name

    def paths(self, task):
        """{split: file} of all splits that there are.

        Raises:
            ValueError: When there is no training or no development data.
        """
        found = {"train": self.train, "dev": self.dev, "test": self.test}
        if self._data:
            for split in {**found, **task.files}:
                found[split] = found.get(split) or path_of(task, self._data, split)
        for split in ("train", "dev"):
            if found[split] is None:
                raise ValueError(
                    f"`{split}` must be given, or be in `data` as {task.files.get(split, 'a file')}. "
                    f"Received: data={self.data}, {split}=None."
                )
        return {split: path for split, path in found.items() if path}
