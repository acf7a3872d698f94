"""Reads tokenizers from the directories that other libraries write."""

import functools
import os

import tensorflow as tf

from keras_bert.files import read_json
from keras_bert.modules import transformer_directory
from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.bytepair import BytePairTokenizer
from keras_bert.text.sentence_piece import SentencePieceTokenizer
from keras_bert.text.tokenizer import ROLES, Tokenizer
from keras_bert.text.vocabulary import read_vocabulary
from keras_bert.text.wordpiece import MAX_WORD_LENGTH, WordPieceTokenizer

_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
_ALBERT_MODEL = "30k-clean.model"  # google-research/albert, which has no config of tokenizers
_MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", _ALBERT_MODEL)


def load_tokenizer(directory, **options):
    """Reads the tokenizer of a directory of Hugging Face, keras-hub, google-research and others.

    The files choose the class: WordPiece for BERT, DistilBERT and ELECTRA, byte-level BPE for
    RoBERTa, SentencePiece for ALBERT, XLM-R and CamemBERT. Ids are those that the checkpoint was
    pretrained with, also where the library's own tokenizer differs from them: words of 101 to 200
    characters (Hugging Face), accents of uncased models (keras-hub).

    Args:
        directory: Local or remote (`gs://...`) path.
        **options: Arguments of the tokenizer's constructor that replace what the files say, such as
            `parse_special_tokens=True`.

    Raises:
        ValueError: When files are missing, contradict each other, or ask for something else than the
            three algorithms.
    """
    directory = os.fspath(directory)
    if not tf.io.gfile.isdir(directory):
        raise ValueError(f"The tokenizer must be an existing directory. Received: {directory}.")
    try:
        return _load(directory, options)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            "The files of a tokenizer must have the form that its library gives them. "
            f"Received: {directory}, where reading ends with {type(error).__name__}: {error}."
        ) from error


def _load(directory, options):
    if tf.io.gfile.exists(_join(directory, "modules.json")):
        return _load_sentence_transformers(directory, options)
    fast = _read_json(directory, "tokenizer.json")
    if "registered_name" in fast:
        return _load_keras_hub(directory, fast, options)
    return _load_hugging_face(directory, fast, options)


def has_tokenizer(directory):
    """Whether a directory holds files of a tokenizer, of whatever kind."""
    names = set(tf.io.gfile.listdir(transformer_directory(os.fspath(directory))))
    files = {"tokenizer_config.json", "tokenizer.json", "vocab.txt", "vocab.json", *_MODEL_FILES}
    return bool(files & names)


def _load_sentence_transformers(directory, options):
    inner = transformer_directory(directory)
    fast = _read_json(inner, "tokenizer.json")
    tokenizer = _load_hugging_face(inner, fast, options)
    lowers = _read_json(inner, "sentence_bert_config.json").get("do_lower_case")
    if not lowers or tokenizer.lowercase or "lowercase" in options:
        return tokenizer
    if isinstance(tokenizer, BytePairTokenizer):
        raise _unsupported("`do_lower_case` of sentence-transformers, before byte-level BPE", directory)
    # it lower-cases first, and leaves accents to the tokenizer
    folding = {"lowercase": True, "strip_accents": tokenizer.strip_accents}
    return _load_hugging_face(inner, fast, {**folding, **options})


def _load_keras_hub(directory, fast, options):
    name = fast["registered_name"].split(">")[-1]
    config, assets = fast.get("config", {}), _join(directory, "assets", "tokenizer")
    if name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"):
        suffix = config.get("suffix_indicator", "##")
        if suffix != "##":
            raise ValueError(f"`suffix_indicator` must be '##'. Received: {suffix!r} in {directory}.")
        found = {"lowercase": _flag(config, "lowercase", directory, default=False)}
        tokens = {"unk_token": config.get("oov_token", "[UNK]")}
        return WordPieceTokenizer(_join(assets, "vocabulary.txt"), **{**found, **tokens, **options})
    if name == "RobertaTokenizer":
        found = {"add_prefix_space": _flag(config, "add_prefix_space", directory, default=False)}
        files = (_join(assets, "vocabulary.json"), _join(assets, "merges.txt"))
        return BytePairTokenizer(*files, **{**found, **options})
    if name == "AlbertTokenizer":
        # its presets are the lower-casing checkpoints of ALBERT's authors
        return SentencePieceTokenizer(_join(assets, "vocabulary.spm"), **{"lowercase": True, **options})
    if name == "XLMRobertaTokenizer":
        return SentencePieceTokenizer.for_fairseq(_join(assets, "vocabulary.spm"), **options)
    raise _unsupported(fast["registered_name"], directory)


def _load_hugging_face(directory, fast, options):
    config = _read_json(directory, "tokenizer_config.json")
    name = (config.get("tokenizer_class") or "").removesuffix("Fast")
    kind = _kind(directory, name, fast)
    if kind is None:
        raise _unsupported(name or "no file of a known tokenizer", directory)
    if "lowercase" in options:
        config = {**config, "do_lower_case": options["lowercase"]}
    make, found = kind(directory, config, fast)
    # what Hugging Face's classes make of a mask token that is given by its name alone
    tokens, added = _tokens(directory, config, fast, lstrip_mask=make is not WordPieceTokenizer)
    tokenizer = make(**{**found, **tokens, **options})
    wrong = {
        token: i
        for token, i in added.items()
        if i >= tokenizer.vocabulary_size or tokenizer.vocabulary[i] != token
    }
    if wrong:
        raise ValueError(
            "Added tokens must stand in the vocabulary at their ids, or behind it without a gap. "
            f"Received: {wrong} in {directory}, with a vocabulary of {tokenizer.vocabulary_size}."
        )
    return tokenizer


def _wordpiece(directory, config, fast):
    path = _join(directory, "vocab.txt")
    vocabulary = _ordered(fast["model"]["vocab"], directory) if fast else None
    if tf.io.gfile.exists(path):
        if vocabulary and [piece.strip() for piece in vocabulary] != read_vocabulary(path):
            raise ValueError(
                f"vocab.txt and tokenizer.json must hold the same pieces. Received: {directory}."
            )
        vocabulary = path
    elif not vocabulary:
        raise _missing(directory, "vocab.txt or tokenizer.json")
    normalizer = fast.get("normalizer") or {}
    if normalizer and normalizer["type"] != "BertNormalizer":
        raise _unsupported(f"a normalizer {normalizer['type']}", directory)
    if set(config.get("never_split") or []) - _SPECIAL or not config.get("do_basic_tokenize", True):
        raise _unsupported("`never_split` or `do_basic_tokenize: false`", directory)
    lowercase = _flag(config, "do_lower_case", directory, normalizer.get("lowercase"))
    if lowercase is None:
        lowercase = _fits_lower_case(vocabulary, directory)
    return WordPieceTokenizer, {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "strip_accents": _flag(config, "strip_accents", directory, normalizer.get("strip_accents")),
        "tokenize_chinese_chars": _flag(
            config, "tokenize_chinese_chars", directory, normalizer.get("handle_chinese_chars", True)
        ),
        # ours; Hugging Face passes over it
        "max_word_length": config.get("max_word_length", MAX_WORD_LENGTH),
    }


def _fits_lower_case(vocabulary, directory):
    """BertTokenizer's default, true, unless the vocabulary shows that it cannot hold."""
    pieces = read_vocabulary(vocabulary) if isinstance(vocabulary, str) else vocabulary
    upper = [piece for piece in pieces if piece != piece.lower() and not piece.startswith(("[", "<"))]
    if upper:
        raise ValueError(
            "The files must say whether text is lower-cased where the vocabulary holds capitals: "
            "pass `lowercase=False` for a cased checkpoint, `lowercase=True` for an uncased one. "
            f"Received: {directory} without `do_lower_case`, with {upper[:3]}."
        )
    return True


def _byte_pair(directory, config, fast):
    vocabulary, merges = _join(directory, "vocab.json"), _join(directory, "merges.txt")
    if not (tf.io.gfile.exists(vocabulary) and tf.io.gfile.exists(merges)):
        if not fast:
            raise _missing(directory, "vocab.json and merges.txt, or tokenizer.json")
        vocabulary, merges = fast["model"]["vocab"], fast["model"]["merges"]
    splitter = fast.get("pre_tokenizer") or {"type": "ByteLevel"}
    if splitter["type"] != "ByteLevel" or fast.get("normalizer"):
        raise _unsupported("a BPE that is not RoBERTa's", directory)
    return BytePairTokenizer, {
        "vocabulary": vocabulary,
        "merges": merges,
        "add_prefix_space": _flag(
            config, "add_prefix_space", directory, splitter.get("add_prefix_space", False)
        ),
    }


def _albert(directory, config, fast):
    if not _flag(config, "remove_space", directory, default=True):
        raise _unsupported("`remove_space: false`", directory)
    return SentencePieceTokenizer, {
        "model": _sentence_piece_model(directory),
        "lowercase": _flag(config, "do_lower_case", directory, default=True),
        "strip_accents": not _flag(config, "keep_accents", directory, default=False),
    }


def _fairseq(kind, directory, config, fast):
    return functools.partial(SentencePieceTokenizer.for_fairseq, kind=kind), {
        "model": _sentence_piece_model(directory)
    }


def _sentence_piece_model(directory):
    for name in _MODEL_FILES:
        if tf.io.gfile.exists(_join(directory, name)):
            return _join(directory, name)
    raise _missing(directory, " or ".join(_MODEL_FILES))


def _kind(directory, name, fast):
    """How to read the tokenizer: by its class, unless tokenizer.json shows another algorithm."""
    model = fast.get("model", {}).get("type")
    family = _read_json(directory, "config.json").get("model_type")
    if name and name not in _KINDS and name not in _ANY_CLASS:
        return None
    if model == "Unigram" and _KINDS.get(name) in (None, _wordpiece, _byte_pair):
        # the multilingual MiniLMs call XLM-R's tokenizer a BertTokenizer
        is_albert = tf.io.gfile.exists(_join(directory, "spiece.model"))
        family = family if family in ("camembert", "albert") else "xlm-roberta"
        return _albert if is_albert else _FAMILIES[family]
    if name in _KINDS:
        return _KINDS[name]
    if model in ("WordPiece", "BPE"):
        return {"WordPiece": _wordpiece, "BPE": _byte_pair}[model]
    if fast and model is not None:
        return None
    if family in _FAMILIES:
        return _FAMILIES[family]
    for file, kind in (("vocab.txt", _wordpiece), ("merges.txt", _byte_pair)):
        if tf.io.gfile.exists(_join(directory, file)):
            return kind
    return _albert if tf.io.gfile.exists(_join(directory, _ALBERT_MODEL)) else None


def _tokens(directory, config, fast, lstrip_mask):
    """The special and added tokens as constructor arguments, and the id of each where one is given."""
    ids, known = {}, {}
    listed = [(token["id"], token) for token in fast.get("added_tokens", [])]
    listed += [(int(i), token) for i, token in config.get("added_tokens_decoder", {}).items()]
    for i, token in listed:
        ids[token["content"]] = i
        known[token["content"]] = _added_token(token, directory)
    for content, i in _read_json(directory, "added_tokens.json").items():
        ids[content] = i
        known.setdefault(content, AddedToken(content, normalized=True))
    named = {**_read_json(directory, "special_tokens_map.json"), **config}
    tokens = {}
    for role in ROLES:
        if named.get(role) is not None:
            value = named[role]
            content = value if isinstance(value, str) else value["content"]
            if content in known:
                tokens[role] = known[content]
            elif isinstance(value, dict):
                tokens[role] = _added_token({**value, "special": True}, directory)
            elif role != "mask_token" or not lstrip_mask:
                tokens[role] = content
            else:
                tokens[role] = AddedToken(content, special=True, lstrip=True)
    for value in named.get("additional_special_tokens") or []:
        content = value if isinstance(value, str) else value["content"]
        token = known.get(content) or _added_token(
            {"content": content} if isinstance(value, str) else value, directory
        )
        known[content] = AddedToken(**{**token.to_config(), "special": True})
    taken = {token if isinstance(token, str) else token.content for token in tokens.values()}
    tokens["added_tokens"] = [
        known[content]
        for content in sorted(known, key=lambda content: ids.get(content, float("inf")))
        if content not in taken
    ]
    tokens["parse_special_tokens"] = _flag(config, "parse_special_tokens", directory, default=False)
    return tokens, ids


def _added_token(token, directory):
    if token.get("single_word"):
        raise _unsupported(f"`single_word` of the token {token['content']!r}", directory)
    fields = ("content", "special", "lstrip", "rstrip", "normalized")
    return AddedToken(**{field: token[field] for field in fields if field in token})


def _ordered(ids, directory):
    """A vocabulary as a list, from a dict of ids."""
    pieces = sorted(ids, key=ids.get)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(
            f"The ids of a vocabulary must be 0, 1, 2, ... Received: {len(pieces)} pieces with ids "
            f"up to {max(ids.values())} in {directory}."
        )
    return pieces


def _flag(config, name, directory, default):
    value = config.get(name)
    value = default if value is None else value
    if not (value is None or isinstance(value, bool)):
        raise ValueError(f"`{name}` must be true, false or null. Received: {value!r} in {directory}.")
    return value


def _read_json(directory, name):
    """The content of a JSON file, {} where there is none."""
    path = _join(directory, name)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def _join(*parts):
    return tf.io.gfile.join(*parts)


def _missing(directory, names):
    files = sorted(tf.io.gfile.listdir(directory))
    return ValueError(f"The directory must hold {names}. Received: {directory} with {files}.")


def _unsupported(what, directory):
    return ValueError(
        "The tokenizer must be BERT's WordPiece, RoBERTa's byte-level BPE or the SentencePiece of "
        f"ALBERT, XLM-R or CamemBERT. Received: {what} in {directory}."
    )


_KINDS = {
    "BertTokenizer": _wordpiece,
    "DistilBertTokenizer": _wordpiece,
    "ElectraTokenizer": _wordpiece,
    "RobertaTokenizer": _byte_pair,
    "AlbertTokenizer": _albert,
    "XLMRobertaTokenizer": functools.partial(_fairseq, "xlm-roberta"),
    "CamembertTokenizer": functools.partial(_fairseq, "camembert"),
}
# what AutoTokenizer takes where no class is named
_FAMILIES = {
    "bert": _wordpiece,
    "distilbert": _wordpiece,
    "electra": _wordpiece,
    "roberta": _byte_pair,
    "albert": _albert,
    "xlm-roberta": _KINDS["XLMRobertaTokenizer"],
    "camembert": _KINDS["CamembertTokenizer"],
}
_ANY_CLASS = ("PreTrainedTokenizer", "TokenizersBackend")  # classes that say nothing

Tokenizer.load = staticmethod(load_tokenizer)
