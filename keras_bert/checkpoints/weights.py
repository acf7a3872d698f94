"""What all checkpoint formats share: tables of names, and the one place where weights change hands."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_bert.config import EncoderConfig

BLOCK_PARTS = (
    "query",
    "key",
    "value",
    "attention_output",
    "attention_norm",
    "intermediate",
    "output",
    "output_norm",
)


FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint, and the weight of ours that it is, or is a part of.

    Args:
        ours: Path of the weight below the model, such as "encoder/block_0/attention/qkv_kernel".
        theirs: The tensor's name.
        part: Which of the three parts of a fused weight: 0 query, 1 key, 2 value.
        transposed: Whether their kernel is (out, in).
        shape: Their shape, where it is not that of our weight or part, with heads side by side.
    """

    ours: str
    theirs: str
    part: int | None = None
    transposed: bool = False
    shape: tuple[int, ...] | None = None

    def their_shape(self, ours):
        """Shape that their tensor must have, given that of our whole weight."""
        if self.shape is not None:
            return self.shape
        if self.part is not None:  # (D, 3, H, K) or (3, H, K)
            ours = (*ours[:-3], ours[-2] * ours[-1])
        return tuple(ours[::-1] if self.transposed else ours)

    def put(self, tensor, weight):
        """Writes their tensor into an array of our weight's shape."""
        place = self._place(weight)
        place[...] = (tensor.T if self.transposed else tensor).reshape(place.shape)

    def take(self, weight):
        """Their tensor, from an array of our weight."""
        shape = self.their_shape(weight.shape)
        place = self._place(weight).reshape(shape[::-1] if self.transposed else shape)
        return np.ascontiguousarray(place.T if self.transposed else place)

    def _place(self, weight):
        return weight if self.part is None else weight[..., self.part, :, :]


@dataclasses.dataclass(frozen=True)
class Style:
    """How a format names the weights of layers, and which way round its kernels lie."""

    kernel: str
    bias: str
    gamma: str
    beta: str
    transposed: bool = False

    def dense(self, ours, theirs):
        return [
            Entry(f"{ours}/kernel", theirs + self.kernel, transposed=self.transposed),
            Entry(f"{ours}/bias", theirs + self.bias),
        ]

    def norm(self, ours, theirs):
        return [Entry(f"{ours}/gamma", theirs + self.gamma), Entry(f"{ours}/beta", theirs + self.beta)]

    def block(self, index, names):
        """The entries of one block; `names` are those of its parts, in the order of `BLOCK_PARTS`."""
        ours = f"encoder/block_{index}"
        names = dict(zip(BLOCK_PARTS, names, strict=True))
        entries = []
        for part, name in enumerate(("query", "key", "value")):
            kernel, bias = names[name] + self.kernel, names[name] + self.bias
            entries.append(Entry(f"{ours}/attention/qkv_kernel", kernel, part, self.transposed))
            entries.append(Entry(f"{ours}/attention/qkv_bias", bias, part))
        return [
            *entries,
            *self.dense(f"{ours}/attention/output", names["attention_output"]),
            *self.norm(f"{ours}/attention_norm", names["attention_norm"]),
            *self.dense(f"{ours}/intermediate", names["intermediate"]),
            *self.dense(f"{ours}/output", names["output"]),
            *self.norm(f"{ours}/output_norm", names["output_norm"]),
        ]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A stored tensor: its shape and type are known, its values are read when asked for."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of some format, opened: what it is of, but no values yet.

    Args:
        path: Where it lies, for errors.
        kind: The format, in words.
        config: Architecture of its encoder.
        head: Which model it was written from, a key of `HEADS`; None where the files do not say.
        head_options: What its head's constructor is to be given: `label_names`, `problem_type`, ...
        foreign: What else its config holds; written back as it is.
        tensors: {name: Tensor}
        table: table(config, head) -> {component: entries}: the names in this format. The component
            "encoder" is in every checkpoint; others may be missing, and are then new in the model.
        duplicates: {name: the name of the tensor that it must be a copy of}
        refused: {component: why it cannot be taken}, of heads that compute something else than ours.
    """

    path: str
    kind: str
    config: EncoderConfig
    head: str | None
    tensors: Mapping[str, Tensor]
    table: Callable[[EncoderConfig, str], dict[str, list[Entry]]]
    head_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    foreign: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    duplicates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def has_pooler(self):
        """Whether the encoder's pooler was stored."""
        entries = self.table(dataclasses.replace(self.config, use_pooler=True), "encoder")
        return any(entry.theirs in self.tensors for entry in entries.get("pooler", []))


# Models that checkpoints are written from, and the components that each may have beside "encoder".
HEADS = {
    "encoder": ("pooler",),
    "pretraining": ("pooler", "masked_lm", "sentence"),
    "masked_lm": ("pooler", "masked_lm"),
    "sequence_classification": ("pooler", "classifier"),
    "token_classification": ("pooler", "token_classifier"),
    "question_answering": ("pooler", "span"),
    "multiple_choice": ("pooler", "choice"),
    "replaced_token_detection": ("pooler", "discriminator"),
}


def find_head(tensors, config, table):
    """The key of `HEADS` whose components, but for the pooler, are those that tensors are there for.

    None where no model has these. `config` and `table` are those of a Checkpoint.
    """
    tables = itertools.chain.from_iterable(table(config, head).items() for head in HEADS)
    there = {name for name, entries in tables if any(entry.theirs in tensors for entry in entries)}
    there -= {"encoder", "pooler"}
    return next((head for head, names in HEADS.items() if there == {*names} - {"pooler"}), None)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint.

    Args:
        new: Components of the model that the checkpoint does not hold: they keep their initial values.
        unused: Names of tensors that belong to heads which the model does not have.
        rows: (their name, their shape, what of ours it is) of every tensor that was taken.
    """

    new: list[str]
    unused: list[str]
    rows: list[tuple[str, tuple[int, ...], str]]


def plan(shapes, checkpoint, head, new_head=False):
    """Finds for every weight the tensors it is made of; refuses a checkpoint that does not fit.

    Args:
        shapes: {path below the model: shape} of all weights.
        checkpoint: A Checkpoint.
        head: The model's, a key of `HEADS`.
        new_head: Whether all but the encoder and its pooler keeps its initial values.

    Returns:
        {path: entries}, LoadReport

    Raises:
        ValueError: When tensors are missing, misshapen or not known; it lists all of them.
    """
    tensors = checkpoint.tensors
    table = checkpoint.table(checkpoint.config, head)
    stored = checkpoint.table(checkpoint.config, checkpoint.head) if checkpoint.head else table
    stored_names = {entry.theirs for entries in stored.values() for entry in entries}
    missing, misshapen, not_floats, new, rows, chosen = [], [], [], [], [], {}
    for component, entries in table.items():
        entries = [entry for entry in entries if entry.ours in shapes]
        present = [entry for entry in entries if _source(entry.theirs, checkpoint) in tensors]
        is_head = component not in ("encoder", "pooler")
        if entries and component in checkpoint.refused and not new_head:
            raise ValueError(
                f"The {component.replace('_', ' ')} of a checkpoint must compute what ours does; with "
                f"`new_head=True` a new one takes its place. Received: {checkpoint.refused[component]}."
            )
        # a tensor of the same name may be another head's
        is_other = is_head and component not in stored
        is_other = is_other and any(entry.theirs in stored_names for entry in entries)
        if component != "encoder" and (not present or is_other or (is_head and new_head)):
            new += [component] if entries else []
            continue
        for entry in entries:
            name = _source(entry.theirs, checkpoint)
            expected = entry.their_shape(tuple(shapes[entry.ours]))
            if name not in tensors:
                missing.append(f"{entry.theirs} {expected}")
            elif tuple(tensors[name].shape) != expected:
                misshapen.append(f"{name} {tuple(tensors[name].shape)} where {expected} must be")
            elif tensors[name].dtype not in FLOATS:
                not_floats.append(f"{name} {tensors[name].dtype}")
            else:
                chosen.setdefault(entry.ours, []).append((entry, name))
                part = "" if entry.part is None else f" ({BLOCK_PARTS[entry.part]})"
                rows.append((name, expected, entry.ours + part))
    known = _known_names(checkpoint)
    taken = {name for name, _, _ in rows}
    unused = sorted(set(tensors) - taken)
    unknown = [f"{name} {tuple(tensors[name].shape)}" for name in unused if name not in known]
    problems = [
        f"{len(names)} {what}: {_list(names)}"
        for what, names in (
            ("missing", missing),
            ("misshapen", misshapen),
            ("unknown", unknown),
            ("no floats", not_floats),
        )
        if names
    ]
    if problems:
        raise ValueError(
            f"The tensors of {checkpoint.path} must be those of a {checkpoint.config.model_type} "
            f"for {head.replace('_', ' ')}. Received: " + "; ".join(problems) + "."
        )
    uncovered = set(shapes) - {e.ours for entries in table.values() for e in entries}
    if uncovered:
        raise ValueError(
            f"The format ({checkpoint.kind}) must have a place for every weight of the model. "
            f"Received: none for {sorted(uncovered)}."
        )
    return chosen, LoadReport(new, [name for name in unused if name not in checkpoint.duplicates], rows)


def check_sizes(checkpoint):
    """Compares a config with the shapes that were stored, before a model of that size is built.

    Raises:
        ValueError: When they differ.
    """
    config, path = checkpoint.config, checkpoint.path
    if config.groups > len(checkpoint.tensors):
        raise ValueError(
            "Every block must have tensors. "
            f"Received: {config.groups} blocks, {len(checkpoint.tensors)} tensors, in {path}."
        )
    width = config.embedding_width
    expected = {
        "encoder/embeddings/word_table": (config.vocab_size, width),
        "encoder/embeddings/position_table": (config.max_position_embeddings, width),
        "encoder/embeddings/segment_table": (config.type_vocab_size, width),
        "encoder/block_0/intermediate/kernel": (config.hidden_size, config.intermediate_size),
    }
    misshapen = []
    for entry in checkpoint.table(config, "encoder")["encoder"]:
        tensor = checkpoint.tensors.get(entry.theirs)
        if entry.ours in expected and tensor is not None:
            shape = entry.their_shape(expected[entry.ours])
            if tuple(tensor.shape) != tuple(shape):
                misshapen.append(f"{entry.theirs} {tuple(tensor.shape)} where {shape} must be")
    if misshapen:
        raise ValueError(
            f"The tensors of {path} must have the sizes that its config says. "
            f"Received: {len(misshapen)} misshapen: {_list(misshapen)}."
        )


def load(weights, checkpoint, head, new_head=False):
    """Assigns a checkpoint's tensors to the weights of a model, one weight after the other.

    Args:
        weights: {path below the model: keras Variable}
        checkpoint, head, new_head: As `plan` takes them.

    Returns:
        A LoadReport.

    Raises:
        ValueError: As `plan` does, before anything is assigned; or when two tensors that must be
            copies of each other are not.
    """
    shapes = {path: tuple(weight.shape) for path, weight in weights.items()}
    chosen, report = plan(shapes, checkpoint, head, new_head)
    taken = {name for name, _, _ in report.rows}
    for name, original in checkpoint.duplicates.items():
        # a decoder of its own must not be lost: our head scores words with the word table
        is_used = "masked_lm" in HEADS[head] and name in checkpoint.tensors and original in taken
        if is_used and not _are_equal(checkpoint.tensors, name, original):
            raise ValueError(
                f"{name} must be a copy of {original}: the masked LM head shares it. "
                f"Received: other values, in {checkpoint.path}."
            )
    for path, entries in chosen.items():
        shape = shapes[path]
        if len(entries) == 1 and entries[0][0].part is None:
            entry, name = entries[0]
            tensor = checkpoint.tensors[name].read()
            weights[path].assign((tensor.T if entry.transposed else tensor).reshape(shape))
            continue
        value = None
        for entry, name in entries:
            tensor = checkpoint.tensors[name].read()
            value = np.empty(shape, tensor.dtype) if value is None else value
            entry.put(tensor, value)
        weights[path].assign(value)
    return report


def collect(weights, table):
    """{their name: array} of a model's weights, for a writer.

    Args:
        weights: {path below the model: keras Variable}
        table: {component: entries}

    Raises:
        ValueError: When the format has no place for a weight.
    """
    entries = list(itertools.chain.from_iterable(table.values()))
    uncovered = sorted(set(weights) - {entry.ours for entry in entries})
    if uncovered:
        raise ValueError(
            f"The format must have a place for every weight. Received: none for {uncovered}."
        )
    arrays = {}
    for path, group in itertools.groupby(entries, key=lambda entry: entry.ours):
        if path in weights:
            value = np.asarray(weights[path])
            arrays.update({entry.theirs: entry.take(value) for entry in group})
    return arrays


def _source(name, checkpoint):
    """The name under which a tensor is stored: its own, or that of its copy."""
    if name in checkpoint.tensors:
        return name
    copies = [copy for copy, original in checkpoint.duplicates.items() if original == name]
    return next((copy for copy in copies if copy in checkpoint.tensors), name)


def _known_names(checkpoint):
    """Every name that the format has for this architecture, whatever the head."""
    config = dataclasses.replace(checkpoint.config, use_pooler=True)
    names = set(checkpoint.duplicates)
    for head in HEADS:
        for entries in checkpoint.table(config, head).values():
            names.update(entry.theirs for entry in entries)
    return names


def _are_equal(tensors, name, other):
    one, two = tensors[name].read(), tensors[other].read()
    return one.shape == two.shape and np.array_equal(one, two)


def _list(names, limit=20):
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
