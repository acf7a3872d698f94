"""A tiny model of every kind that can be served, with what it is asked."""

import functools

from conftest import scramble

from keras_bert import (
    BertClassifier,
    BertMaskedLM,
    BertMultipleChoice,
    BertPretrainer,
    BertQuestionAnswering,
    BertTokenClassifier,
    BytePairTokenizer,
    EncoderConfig,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##x", "##y", ".", "who"]
TEXTS = [
    "ax b",
    "",
    "d. a",
    "who  Ax\tb — cxy d. a b c",
    "\u200b",
    "b " * 40,
    "b\ud7ff c",
    b"caf\xff b\xe9 c",
    "a [MASK] b [MASK] <mask>.",
]
QUESTIONS = ["who", "", "a b c d a b c d a b c d", "who b", "a", "d", "ax", b"\xff", "b"]


@functools.cache
def tokenizer(kind="word_piece"):
    if kind == "word_piece":
        return WordPieceTokenizer(PIECES)
    if kind == "byte_pair":
        from test_bytepair import train

        return BytePairTokenizer(*train(300))
    from test_sentence_piece import ALBERT, train

    return SentencePieceTokenizer(train(vocab_size=200, **ALBERT))


def make(model, text="word_piece", layers=1, model_options=None, **config):
    its_tokenizer = tokenizer(text)
    config = EncoderConfig(
        vocab_size=its_tokenizer.vocabulary_size,
        hidden_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=12,
        initializer_range=0.5,
        **{"max_position_embeddings": 24, **config},
    )
    return scramble(model(config, tokenizer=its_tokenizer, **(model_options or {})))


def _classifier(**options):
    return functools.partial(make, BertClassifier, model_options=options)


# {kind: (function that makes it, names of its columns of texts, options of its export)}
KINDS = {
    "classifier": (_classifier(label_names=["no", "maybe", "yes"]), ["text"], {}),
    "pairs": (_classifier(num_labels=2), ["text", "text_pair"], {"pairs": True}),
    "multi_label": (
        _classifier(label_names=["x", "y"], problem_type="multi_label"),
        ["text"],
        {"max_length": 12},
    ),
    "regression": (_classifier(num_labels=1), ["text"], {}),
    "tagger": (
        functools.partial(
            make,
            BertTokenClassifier,
            model_options={"label_names": ["O", "B-p", "I-p", "S-q", "E-q", "I-q"]},
        ),
        ["text"],
        {"words": True, "max_length": 8, "stride": 3},
    ),
    "words": (
        functools.partial(make, BertTokenClassifier, model_options={"label_names": ["DET", "NOUN"]}),
        ["text"],
        {},
    ),
    "answers": (
        functools.partial(
            make, BertQuestionAnswering, model_options={"no_answer_threshold": 0.5}, layers=2
        ),
        ["question", "context"],
        {"n_best": 3},
    ),
    "masks": (functools.partial(make, BertMaskedLM), ["text"], {"top_k": 3}),
    "pretrainer": (functools.partial(make, BertPretrainer), ["text"], {}),
    "choices": (functools.partial(make, BertMultipleChoice), ["context", "choices"], {}),
    "roberta": (
        functools.partial(
            make,
            BertTokenClassifier,
            text="byte_pair",
            type_vocab_size=1,
            position_offset=2,
            model_type="roberta",
            hidden_act="gelu_new",
            model_options={"label_names": ["O", "B-p", "I-p"]},
        ),
        ["text"],
        {},
    ),
    "albert": (
        functools.partial(
            make,
            BertMaskedLM,
            text="sentence_piece",
            embedding_size=4,
            hidden_act="relu",
        ),
        ["text"],
        {},
    ),
}


def columns_of(names):
    """Columns of TEXTS, as a server is given them."""
    if names[-1] == "choices":
        return {"context": TEXTS, "choices": [[text, "a b", b"\xfec d"] for text in TEXTS]}
    if names[0] == "question":
        return {"question": QUESTIONS, "context": TEXTS}
    return dict(zip(names, (TEXTS, TEXTS[::-1]), strict=False))
