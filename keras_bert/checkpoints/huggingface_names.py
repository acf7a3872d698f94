"""What `transformers` calls the weights of each family, and its classes."""

import itertools

from keras_bert.checkpoints.weights import HEADS, Entry, Style
from keras_bert.config import ROBERTAS

TORCH = Style(".weight", ".bias", ".weight", ".bias", transposed=True)
_CLASS_PREFIXES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "albert": "Albert",
    "distilbert": "DistilBert",
    "electra": "Electra",
}
_SUFFIXES = {
    "encoder": "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
    "replaced_token_detection": "ForPreTraining",
}


def table(config, head):
    """Names of the tensors, without the library's prefix of encoders: {component: entries}.

    Where the library has no such model, its components have names that no file holds.
    """
    kind = config.model_type
    dense = TORCH.dense
    blocks = (TORCH.block(index, _block_names(kind, index)) for index in range(config.groups))
    is_albert = kind == "albert"
    components = {
        "encoder": [*_embeddings(config), *itertools.chain.from_iterable(blocks)],
        "pooler": dense("encoder/pooler", _pooler_name(kind, head)),
        "masked_lm": _masked_lm(kind),
        "sentence": dense(
            "sentence", "sop_classifier.classifier" if is_albert else "cls.seq_relationship"
        ),
        "classifier": dense(
            "classifier", "classifier.out_proj" if _has_dense_classifier(kind) else "classifier"
        ),
        "token_classifier": dense("token_classifier", "classifier"),
        "span": dense("span", "qa_outputs"),
        "choice": dense("choice", "classifier"),
        "discriminator": [
            *dense("discriminator/dense", "discriminator_predictions.dense"),
            *dense("discriminator/scores", "discriminator_predictions.dense_prediction"),
        ],
    }
    return {name: components[name] for name in ("encoder", *HEADS[head])}


def _embeddings(config):
    tables = {"word_table": "word", "position_table": "position", "segment_table": "token_type"}
    if not config.type_vocab_size:
        del tables["segment_table"]
    entries = [
        Entry(f"encoder/embeddings/{ours}", f"embeddings.{theirs}_embeddings.weight")
        for ours, theirs in tables.items()
    ]
    entries += TORCH.norm("encoder/embeddings/norm", "embeddings.LayerNorm")
    if config.embedding_width != config.hidden_size:
        is_albert = config.model_type == "albert"
        theirs = "encoder.embedding_hidden_mapping_in" if is_albert else "embeddings_project"
        entries += TORCH.dense("encoder/embeddings/projection", theirs)
    return entries


def _block_names(kind, index):
    if kind == "albert":
        place = f"encoder.albert_layer_groups.{index}.albert_layers.0."
        names = ("attention.query", "attention.key", "attention.value", "attention.dense")
        names += ("attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm")
    elif kind == "distilbert":
        place = f"transformer.layer.{index}."
        names = ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")
        names += ("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")
    else:
        place = f"encoder.layer.{index}."
        names = ("attention.self.query", "attention.self.key", "attention.self.value")
        names += ("attention.output.dense", "attention.output.LayerNorm")
        names += ("intermediate.dense", "output.dense", "output.LayerNorm")
    return [place + name for name in names]


def _pooler_name(kind, head):
    """The dense layer between the first token's state and a classifier, wherever the library has it."""
    if kind == "distilbert" and head in ("sequence_classification", "multiple_choice"):
        return "pre_classifier"
    if kind == "electra" and head == "multiple_choice":
        return "sequence_summary.summary"
    if _has_dense_classifier(kind) and head == "sequence_classification":
        return "classifier.dense"
    return "pooler" if kind == "albert" else "pooler.dense"


def _has_dense_classifier(kind):
    """Whether the library's head for classification has two layers."""
    return kind in ROBERTAS or kind == "electra"


def _masked_lm(kind):
    dense, norm, bias = _masked_lm_names(kind)
    entries = TORCH.dense("masked_lm/dense", dense) + TORCH.norm("masked_lm/norm", norm)
    return [*entries, Entry("masked_lm/bias", bias)]


def _masked_lm_names(kind):
    """Names of the masked LM head's dense layer, norm and bias."""
    if kind == "bert":
        place = "cls.predictions."
        return place + "transform.dense", place + "transform.LayerNorm", place + "bias"
    if kind in ROBERTAS:
        return "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
    if kind == "albert":
        return "predictions.dense", "predictions.LayerNorm", "predictions.bias"
    if kind == "distilbert":
        return "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
    return "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"


def duplicates(kind):
    """What of the masked LM head may be stored beside the tensor that it shares."""
    table_name, bias = "embeddings.word_embeddings.weight", _masked_lm_names(kind)[2]
    if kind in ("distilbert", "electra"):
        return {bias.replace(".bias", ".weight"): table_name}
    decoder = bias.replace(".bias", ".decoder")
    return {f"{decoder}.weight": table_name, f"{decoder}.bias": bias}


def weight_prefix(kind):
    """What the library puts before the names of an encoder inside of another model."""
    return "roberta" if kind in ROBERTAS else kind


def modern(name):
    """A tensor's name as it is spelled today; norms once had TensorFlow's names."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def class_name(config, head):
    """The library's class of such a model.

    Raises:
        ValueError: When there is none.
    """
    kind = config.model_type
    is_there = {
        "pretraining": kind in ("bert", "albert"),
        "replaced_token_detection": kind == "electra",
    }
    if not is_there.get(head, True):
        kinds = "bert or albert" if head == "pretraining" else "electra"
        raise ValueError(
            f"`model_type` must be {kinds} for {head.replace('_', ' ')}: transformers has no other "
            f"such model. Received: {kind!r}."
        )
    return _CLASS_PREFIXES[kind] + _SUFFIXES[head]


def head_of(name, kind):
    """The key of `HEADS` that a class of the library stands for, None for any other class."""
    for head in HEADS:
        is_discriminator = head == "replaced_token_detection"
        if head in ("pretraining", "replaced_token_detection") and is_discriminator != (
            kind == "electra"
        ):
            continue  # both are called pretraining
        if name == _CLASS_PREFIXES[kind] + _SUFFIXES[head]:
            return head
    return None
