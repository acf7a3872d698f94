"""The model that a checkpoint was written from, whichever it is."""

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.discriminator import BertDiscriminator
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.pretrainer import BertMaskedLM, BertPretrainer
from keras_bert.models.question_answering import BertQuestionAnswering
from keras_bert.models.token_classifier import BertTokenClassifier

MODELS = {
    "encoder": BertEncoder,
    "pretraining": BertPretrainer,
    "masked_lm": BertMaskedLM,
    "sequence_classification": BertClassifier,
    "token_classification": BertTokenClassifier,
    "question_answering": BertQuestionAnswering,
    "multiple_choice": BertMultipleChoice,
    "replaced_token_detection": BertDiscriminator,
}


def load_pretrained(path, head=None, **options):
    """Reads a checkpoint as the model that it was written from.

    Args:
        path: As `from_pretrained` takes it.
        head: Which model to read instead, a key of `MODELS`.
        **options: As `from_pretrained` takes them.

    Raises:
        ValueError: When the checkpoint does not say what it is of, and `head` does not either; and as
            `from_pretrained` does.
    """
    path = local_directory(path)
    head = head or open_checkpoint(path).head
    if head not in MODELS:
        raise ValueError(
            f"`head` must be one of {', '.join(MODELS)}, where the checkpoint does not say. "
            f"Received: {head!r} for {path}."
        )
    return MODELS[head].from_pretrained(path, **options)
