"""keras_bert.text.pretrained: directories as other libraries write them, and back."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_bytepair import MERGES, VOCABULARY
from test_sentence_piece import MODELS

from keras_bert import BytePairTokenizer, SentencePieceTokenizer, WordPieceTokenizer, load_tokenizer
from keras_bert.text.pairing import combine

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNCASED = [*SPECIAL, "the", "cafe", "un", "##aff", "##able", "!", "[unused1]", "a", "##b"]
CASED = [*UNCASED, "The", "Café"]
TEXTS = ["The Café! unaffable", "the [MASK] cafe", "UNAFFABLE\u3000the!", "", "中国 aB"]


def write(directory, **files):
    """Files by name; anything but str and bytes becomes JSON. `_` in a name stands for the dot."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / name.replace("__", ".")
        if isinstance(content, list) and path.suffix == ".txt":
            content = "".join(f"{line}\n" for line in content)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


@pytest.mark.parametrize("root", ["ram://pretrained", None])
def test_wordpiece_saved_and_loaded(root, tmp_path):
    directory = root or tmp_path / "new"
    tokenizer = WordPieceTokenizer(
        CASED,
        lowercase=False,
        strip_accents=True,
        parse_special_tokens=True,
        max_word_length=5,
        tokenize_chinese_chars=False,
        mask_token={"content": "[MASK]", "special": True, "lstrip": True},
        added_tokens=[{"content": "[unused1]", "special": True}, "NewTok"],
    )
    for _ in range(2):  # the second save replaces the first
        tokenizer.save_pretrained(directory)
    assert sorted(tf.io.gfile.listdir(str(directory))) == ["tokenizer_config.json", "vocab.txt"]
    loaded = WordPieceTokenizer.from_pretrained(directory)
    assert loaded.get_config() == tokenizer.get_config()
    assert loaded.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()


def test_a_bare_vocabulary_is_lower_cased_unless_it_cannot_be(tmp_path):
    bare = load_tokenizer(write(tmp_path / "uncased", vocab__txt=UNCASED))
    assert isinstance(bare, WordPieceTokenizer)
    assert (bare.lowercase, bare.strip_accents, bare.parse_special_tokens) == (True, True, False)
    cased = write(tmp_path / "cased", vocab__txt=CASED)
    with pytest.raises(ValueError, match=r"`lowercase=False` for a cased .*'The', 'Café'"):
        load_tokenizer(cased)
    assert not load_tokenizer(cased, lowercase=False).lowercase


def test_options_of_the_config(tmp_path):
    config = {
        "tokenizer_class": "BertTokenizerFast",
        "do_lower_case": False,
        "strip_accents": None,
        "tokenize_chinese_chars": False,
        "model_max_length": 512,
        "mask_token": {"content": "<m>", "lstrip": True, "special": True, "__type": "AddedToken"},
        "additional_special_tokens": ["[unused1]"],
    }
    directory = write(tmp_path, vocab__txt=[*CASED, "<m>"], tokenizer_config__json=config)
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (False, False)
    assert not tokenizer.tokenize_chinese_chars
    assert tokenizer.mask_token_id == len(CASED)
    ids = tokenizer.tokenize("the <m>[unused1] [MASK]", parse_special_tokens=True).numpy().tolist()
    assert ids[:3] == [CASED.index("the"), len(CASED), CASED.index("[unused1]")]
    assert len(ids) == 6  # [MASK] is not this tokenizer's mask
    overridden = load_tokenizer(directory, parse_special_tokens=True)
    assert overridden.tokenize("<m>").numpy().tolist() == [len(CASED)]


def test_names_of_special_tokens_in_their_own_file(tmp_path):
    names = {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "unk_token": "[UNK]"}
    directory = write(tmp_path, vocab__txt=[*UNCASED, "<s>", "</s>"], special_tokens_map__json=names)
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.cls_token_id, tokenizer.sep_token_id) == (len(UNCASED), len(UNCASED) + 1)


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizer_json_alone_as_its_library_reads_it(lowercase, tmp_path):
    from tokenizers import BertWordPieceTokenizer

    vocabulary = {piece: i for i, piece in enumerate(UNCASED if lowercase else CASED)}
    reference = BertWordPieceTokenizer(vocabulary, lowercase=lowercase, strip_accents=lowercase)
    reference.add_tokens(["C++"])
    reference.add_special_tokens(["[unused1]", "<e>"])
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path, parse_special_tokens=True)
    assert tokenizer.vocabulary_size == reference.get_vocab_size()
    for text in [*TEXTS, "aC++b [unused1]<e>the"]:
        expected = reference.encode(text, add_special_tokens=False)
        located = tokenizer.tokenize_with_offsets(text)
        assert located["token_ids"].numpy().tolist() == expected.ids, text
        spans = zip(located["char_starts"].numpy(), located["char_ends"].numpy(), strict=True)
        assert list(spans) == expected.offsets, text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"vocab.txt .*none|no file of a known tokenizer"),
        ({"vocab__txt": UNCASED, "tokenizer_config__json": "{"}, "must be JSON.*tokenizer_config.json"),
        (
            {"vocab__txt": UNCASED, "tokenizer_config__json": {"tokenizer_class": "DebertaTokenizer"}},
            "Received: DebertaTokenizer in",
        ),
        (
            {"vocab__txt": UNCASED, "tokenizer_config__json": {"do_lower_case": "false"}},
            "`do_lower_case` must be true, false or null. Received: 'false'",
        ),
        (
            {"vocab__txt": UNCASED, "tokenizer_config__json": {"never_split": ["a"]}},
            "`never_split`",
        ),
        (
            {"vocab__txt": UNCASED, "added_tokens__json": {"x": len(UNCASED) + 1}},
            "behind it without a gap",
        ),
        (
            {
                "vocab__txt": UNCASED,
                "tokenizer_config__json": {
                    "added_tokens_decoder": {"14": {"content": "x", "single_word": True}}
                },
            },
            "`single_word` of the token 'x'",
        ),
        (
            {
                "vocab__txt": UNCASED,
                "tokenizer__json": {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}},
            },
            "must hold the same pieces",
        ),
        (
            {"tokenizer__json": {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 2}}}},
            "must be 0, 1, 2",
        ),
        (
            {"tokenizer__json": {"model": {"type": "Unigram", "vocab": []}}},
            "must hold spiece.model or",
        ),
        (
            {"tokenizer__json": {"registered_name": "keras_hub>T5Tokenizer"}},
            "Received: keras_hub>T5Tokenizer",
        ),
        ({"modules__json": [{"type": "x.Pooling", "path": ""}]}, "one module of type Transformer"),
    ],
)
def test_bad_directories_are_refused(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_tokenizer(write(tmp_path / "x", **files))


def test_no_directory_and_another_class(tmp_path):
    with pytest.raises(ValueError, match="must be an existing directory"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(ValueError, match="must hold a BytePairTokenizer.*with a WordPieceTokenizer"):
        BytePairTokenizer.from_pretrained(write(tmp_path, vocab__txt=UNCASED))


def test_sentence_transformers_directories(tmp_path):
    modules = [
        {"idx": 0, "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write(tmp_path, modules__json=modules)
    inner = tmp_path / "0_Transformer"
    write(inner, vocab__txt=CASED, tokenizer_config__json={"do_lower_case": False})
    assert not load_tokenizer(tmp_path).lowercase
    # lower-cases before the tokenizer, which keeps accents
    write(inner, sentence_bert_config__json={"do_lower_case": True, "max_seq_length": 128})
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, False)


def test_presets_that_keras_hub_saved(tmp_path):
    import keras_nlp

    keras_nlp.models.BertTokenizer(UNCASED, lowercase=True).save_to_preset(tmp_path / "bert")
    tokenizer = load_tokenizer(tmp_path / "bert")
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, True)
    assert tokenizer.vocabulary == tuple(UNCASED)

    hub = keras_nlp.models.RobertaTokenizer(VOCABULARY, [" ".join(pair) for pair in MERGES])
    hub.save_to_preset(tmp_path / "roberta")
    tokenizer = load_tokenizer(tmp_path / "roberta")
    assert isinstance(tokenizer, BytePairTokenizer)
    assert tokenizer.tokenize("the text the").numpy().tolist() == list(hub("the text the"))

    hub = keras_nlp.models.AlbertTokenizer(MODELS["uncased"])
    hub.save_to_preset(tmp_path / "albert")
    tokenizer = load_tokenizer(tmp_path / "albert")
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert tokenizer.tokenize("the fox and").numpy().tolist() == list(hub("the fox and"))


def test_byte_pair_saved_and_loaded(tmp_path):
    tokenizer = BytePairTokenizer(VOCABULARY, MERGES, add_prefix_space=True, added_tokens=["NewTok"])
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_config() == tokenizer.get_config()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loaded))
    assert again.get_config() == tokenizer.get_config()


def test_byte_pair_in_tokenizer_json_alone(tmp_path):
    from tokenizers import ByteLevelBPETokenizer

    reference = ByteLevelBPETokenizer(VOCABULARY, MERGES)
    reference.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "<mask>"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.tokenize("the text").numpy().tolist() == reference.encode("the text").ids
    # taken with the white space in front, as Hugging Face's class does
    masked = tokenizer.tokenize("the <mask>", parse_special_tokens=True)
    assert masked.numpy().tolist()[-1] == tokenizer.mask_token_id
    assert len(masked) == len(tokenizer.tokenize("the")) + 1


@pytest.mark.parametrize(
    "tokenizer",
    [
        SentencePieceTokenizer(MODELS["uncased"], lowercase=True, added_tokens=["NewTok"]),
        SentencePieceTokenizer(MODELS["cased"], strip_accents=False, parse_special_tokens=True),
        SentencePieceTokenizer.for_fairseq(MODELS["plain"]),
        SentencePieceTokenizer.for_fairseq(MODELS["plain"], "camembert", parse_special_tokens=True),
    ],
    ids=["uncased", "cased", "xlm-roberta", "camembert"],
)
def test_sentence_piece_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_config() == tokenizer.get_config()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loaded))
    assert again.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()


def test_only_known_sentence_piece_kinds_are_saved(tmp_path):
    with pytest.raises(ValueError, match=r"ALBERT's, XLM-R's or CamemBERT's. Received: the order"):
        SentencePieceTokenizer(MODELS["uncased"], albert_rules=False).save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("family", "tokenizer"),
    [
        ("bert", WordPieceTokenizer(UNCASED)),
        ("roberta", BytePairTokenizer(VOCABULARY, MERGES)),
        ("albert", SentencePieceTokenizer(MODELS["uncased"], lowercase=True)),
        ("xlm-roberta", SentencePieceTokenizer.for_fairseq(MODELS["plain"])),
        ("camembert", SentencePieceTokenizer.for_fairseq(MODELS["plain"], "camembert")),
    ],
)
def test_released_files_name_the_family_alone(family, tokenizer, tmp_path):
    """Without a class, or without the file: config.json decides, as for AutoTokenizer."""
    tokenizer.save_pretrained(tmp_path)
    expected = tokenizer.tokenize("the fox and").numpy()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    for _ in range(2):
        loaded = load_tokenizer(tmp_path)
        assert type(loaded) is type(tokenizer)
        np.testing.assert_array_equal(loaded.tokenize("the fox and"), expected)
        if family != "bert":
            (tmp_path / "tokenizer_config.json").unlink(missing_ok=True)


def test_a_class_that_its_own_files_contradict(tmp_path):
    """The multilingual MiniLMs are BERTs with the tokenizer of XLM-R, under the name of BERT's."""
    tokenizer = SentencePieceTokenizer.for_fairseq(MODELS["plain"])
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "BertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": []}}))
    loaded = load_tokenizer(tmp_path)
    text = "the fox and"
    np.testing.assert_array_equal(loaded.tokenize(text), tokenizer.tokenize(text))
    pair = combine(
        *(loaded.tokenize([text]) for _ in range(2)), tokenizer=loaded, max_length=32, type_vocab_size=2
    )
    assert not pair["segment_ids"].numpy().any()  # as in transformers


@pytest.mark.parametrize("slow", [False, True])
def test_transformers_reads_the_same_ids(slow, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra `benchmark`")
    special = {"content": "[unused1]", "special": True}
    tokenizers = {
        # the slow class lower-cases added tokens too
        "uncased": WordPieceTokenizer(UNCASED, added_tokens=[special, *["NewTok"][slow:]]),
        "cased": WordPieceTokenizer(CASED, lowercase=False, tokenize_chinese_chars=False),
        "roberta": BytePairTokenizer(VOCABULARY, MERGES, added_tokens=["NewTok"]),
        "albert": SentencePieceTokenizer(MODELS["uncased"], lowercase=True),
        "xlm-roberta": SentencePieceTokenizer.for_fairseq(MODELS["plain"]),
        "camembert": SentencePieceTokenizer.for_fairseq(MODELS["plain"], "camembert"),
    }
    for name, ours in tokenizers.items():
        ours.save_pretrained(tmp_path / name)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name, use_fast=not slow)
        for text in ["The Café! unaffable the", "the fox NewTok and the", "中国 aB", theirs.mask_token]:
            expected = theirs.encode(text, add_special_tokens=False)
            found = ours.tokenize(text, parse_special_tokens=True).numpy().tolist()
            assert found == expected, (name, text)
