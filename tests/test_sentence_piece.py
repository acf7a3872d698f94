"""keras_bert.text.sentence_piece: ids against sentencepiece and plain Python, offsets, refusals."""

import io
import json
import unicodedata

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.sentence_piece import SentencePieceTokenizer

RNG = np.random.default_rng(0)
WORDS = """
the of and to a in that it is was for with as on be at by this had not are but from or have an they
which one you were her all she there would their we him been has when who will more no if out so
said what quick brown fox jumps over lazy dog unaffable tokenizer masked language model pretraining
café naïve straße don't can't (yes) "quoted" well-known e.g. 中文字符 日本語 パンダ 한국어 가나다
мир дом λόγος λόγου ½ ﬁn ™ 10% €5
""".replace("\n", " ")
WORDS = WORDS.strip().split(" ")
NUMBERS = [f"{n}{end}" for n in (1, 9, 19, 20, 1999, 2000) for end in ("", ",", ",", ".")]
CORPUS = [" ".join(RNG.choice(WORDS + NUMBERS, size=12)) for _ in range(1500)]


def train(preprocess=str, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=map(preprocess, CORPUS),
        model_writer=model,
        hard_vocab_limit=False,
        character_coverage=0.9995,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return model.getvalue()


def prepare(text, lowercase, strip_accents):
    """The original's text rules, in plain Python."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if strip_accents:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in text if not unicodedata.combining(c))
    return text.lower() if lowercase else text


def cut_before_comma(piece, encode):
    """The original's second cut of a piece like "▁1999,"."""
    if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
        return [piece]
    parts = encode(piece[:-1].replace("▁", ""))
    if piece[0] != "▁" and parts[0][0] == "▁":
        parts = parts[1:] if parts[0] == "▁" else [parts[0][1:], *parts[1:]]
    return [*parts, ","]


ALBERT = {
    "control_symbols": "[CLS],[SEP]",
    "user_defined_symbols": '(,),"""",-,.,€,[MASK]',
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "split_digits": False,
}
MODELS = {
    "uncased": train(lambda text: prepare(text, True, True), vocab_size=420, **ALBERT),
    "cased": train(lambda text: prepare(text, False, False), vocab_size=450, **ALBERT),
    "bpe": train(model_type="bpe", vocab_size=450, normalization_rule_name="identity", **ALBERT),
    "plain": train(vocab_size=450),
}
OPTIONS = {
    "uncased": {"lowercase": True},
    "cased": {"strip_accents": False},
    "bpe": {"lowercase": True, "strip_accents": False},
    "plain": {"strip_accents": False, "albert_rules": False},
}
# The reference's [MASK] is a control symbol, of type 3, and so never found in a text.
AS_USER_DEFINED, AS_CONTROL = (b"[MASK]\x15\0\0\0\0\x18" + kind for kind in (b"\4", b"\3"))
PROCESSORS = {
    name: sentencepiece.SentencePieceProcessor(model_proto=model.replace(AS_USER_DEFINED, AS_CONTROL))
    for name, model in MODELS.items()
}
PIECES = {name: [p.id_to_piece(i) for i in range(len(p))] for name, p in PROCESSORS.items()}
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>", *PIECES["plain"][3:], "<mask>"]
OPTIONS["plain"] |= {
    "vocabulary": FAIRSEQ,
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pair_separators": 2,
}
OPTIONS["plain"] |= {"mask_token": AddedToken("<mask>", lstrip=True)}
TOKENIZERS = {
    name: SentencePieceTokenizer(MODELS[name], **options) for name, options in OPTIONS.items()
}
each_model = pytest.mark.parametrize("name", MODELS)


def reference(name, text):
    """Pieces by sentencepiece and plain Python; what the vocabulary lacks is "<unk>"."""
    processor, options = PROCESSORS[name], OPTIONS[name]
    # an unknown run that spells a control symbol is looked up by name in the original: a hole
    known = {piece for i, piece in enumerate(PIECES[name]) if not processor.is_control(i)}
    if options.get("albert_rules", True):
        text = prepare(text, options.get("lowercase", False), options.get("strip_accents", True))
    pieces = processor.encode(text, out_type=str)
    if options.get("albert_rules", True):
        pieces = [
            part
            for piece in pieces
            for part in cut_before_comma(piece, lambda x: processor.encode(x, out_type=str))
        ]
    return [piece if piece in known else "<unk>" for piece in pieces]


def score(name, pieces):
    processor = PROCESSORS[name]
    return sum(processor.get_score(processor.piece_to_id(piece)) for piece in pieces)


def assert_as_the_original(name, texts):
    """The same pieces; or, since releases of sentencepiece break ties differently, as good ones."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.tokenize(texts)
    assert ids.dtype == tf.int32
    ties = 0
    for text, ours in zip(texts, ids.to_list(), strict=True):
        ours = [tokenizer.vocabulary[i] for i in ours]
        theirs = reference(name, text)
        if ours != theirs:
            assert "".join(ours) == "".join(theirs), repr(text)
            assert score(name, ours) == pytest.approx(score(name, theirs), abs=1e-3), repr(text)
            ties += 1
    assert ties <= 1 + len(texts) // 50
    return ids


NASTY = """
|   |a|Hello World!|the quick brown fox, in 1999, was not 20,000, or 19,|1,9,2000,|9,|x9,y
``quoted'' text|```|'''x''''|' '|` `|don't can't|(the)|well-known|e.g. the|naïve café
cafe\u0301 e\u0301\u0327x|½ cup|…and so…on|™ ® ©|①②③, ⒈,|\U0001f101 zero|ﬁ ﬂ ligature
Ｆｕｌｌ　ｗｉｄｔｈ，９，|straße ẞ İstanbul ıI
ΑΣ ΑΣΑ Σ|λόγος|Ⅷ|ǅ|K Å Ω|中文字符 test中a国|パンダ が カ\u3099|한국어 가 \u1100\u1161\u11a8|мир
a\u00a0b|x\u3000y|a\u2028b\u2029c|a\u0085b|a\x1cb\x0bc\x0cd\x7fe|a\u1680b\u2007c\u202fd\u205fe|a \t\r b
soft\u00adhyphen|zero\u200bwidth|\ufeffbom|nul\0É|\0|a\x01b|\x01the|the \x01\u200b dog
\u200b\u3000the|\ufffd
a¨b|¨|x ¨|\u0301|a \u0301b|\u0301a|ﷺ the ﷺ|a ﷺ|👨\u200d👩|😀great😀|a▁b|▁|▁▁ the|the▁
[MASK]|the [MASK].|[CLS] the [SEP]|<pad>the<unk>|<s>|<mask>|\uffff|\U000e0041a|नमस्ते दुनिया|ไทยภาษา
""".replace("\n", "|").split("|")
NASTY += ["a\nb\r\nc", "\n", "the\n\n quick  fox\n", "é" * 500, "quick" * 200, "19," * 100, "` `" * 50]


@each_model
def test_nasty_strings_as_the_original(name):
    ids = assert_as_the_original(name, NASTY)
    unknown = np.mean(ids.values == TOKENIZERS[name].unk_token_id)
    assert 0.01 < unknown < 0.5
    assert len(set(ids.values.numpy().tolist())) > 60


# in Unicode since 2002, so that TensorFlow's tables and every Python's agree on them
OLD = [c for c in map(chr, range(0xF0000)) if unicodedata.ucd_3_2_0.category(c) not in "Cn Cs"]


@each_model
def test_every_character_as_the_original(name):
    assert_as_the_original(name, [f"the{c}dog 19,{c}" for c in OLD[::11]])


def test_white_space_is_that_of_python():
    texts = [f"`{c}`" for c in map(chr, range(0x20000)) if c.isspace()]
    normalized = TOKENIZERS["cased"].normalize(tf.constant(texts))
    assert len(texts) == 29
    assert set(normalized.numpy()) == {b"` `"}


@each_model
def test_ordinary_text_as_the_original(name):
    assert_as_the_original(name, CORPUS)


characters = st.sampled_from(sorted(set("".join(NASTY + CORPUS)))) | st.sampled_from(OLD)
TEXTS = st.lists(
    st.lists(st.text(characters, max_size=6) | st.sampled_from(NASTY + WORDS + NUMBERS)).map(" ".join),
    min_size=1,
    max_size=8,
)


def visible(name, text):
    """The characters that pieces come of, where one stands by itself."""
    return np.array([set(reference(name, c)) - {"▁"} != set() for c in text], bool)


def assert_offsets_lie_on_the_pieces(name, texts):
    tokenizer, processor, options = TOKENIZERS[name], PROCESSORS[name], OPTIONS[name]
    found = tokenizer.tokenize_with_offsets(texts)
    assert found["token_ids"].to_list() == tokenizer.tokenize(texts).to_list()
    assert all(values.dtype == tf.int32 for values in found.values())
    for text, *row in zip(texts, *(values.to_list() for values in found.values()), strict=True):
        covered = np.zeros(len(text), bool)
        before = (0, 0)
        for i, start, end, _ in zip(*row, strict=True):
            assert before[0] <= start <= end <= len(text), repr(text)
            assert before[1] <= end, repr(text)
            before = start, end
            covered[start:end] = True
            piece, inside = tokenizer.vocabulary[i], text[start:end]
            if piece == "▁":
                assert inside == "" or piece in processor.normalize(f"x{inside}"), repr(text)
            elif i != tokenizer.unk_token_id:
                if options.get("albert_rules", True):
                    inside = prepare(
                        inside, options.get("lowercase"), options.get("strip_accents", True)
                    )
                inside = processor.normalize(f"x{inside}").replace("ς", "σ")
                assert piece.strip("▁").replace("ς", "σ") in inside, repr(text)
            if end > start and not (end - start == 1 and piece == "▁"):
                assert visible(name, text[start]), repr(text)
        assert not np.any(visible(name, text) & ~covered), repr(text)
        words = row[3]
        assert words == sorted(words)
        assert set(words) == set(range(len(set(words))))


@each_model
def test_offsets_of_nasty_strings_lie_on_the_pieces(name):
    assert_offsets_lie_on_the_pieces(name, NASTY)
    assert_offsets_lie_on_the_pieces(name, CORPUS[:50])


@each_model
@settings(max_examples=40, deadline=None, database=None)
@given(texts=TEXTS)
def test_any_text(name, texts):
    assert_as_the_original(name, texts)
    assert_offsets_lie_on_the_pieces(name, texts)


def spans(name, text):
    """(piece, what it stands on, number of its word), by the public method."""
    found = {k: v.numpy().tolist() for k, v in TOKENIZERS[name].tokenize_with_offsets(text).items()}
    ids, starts, ends, words = found.values()
    pieces = [TOKENIZERS[name].vocabulary[i] for i in ids]
    return [(p, text[s:e], w) for p, s, e, w in zip(pieces, starts, ends, words, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  the\u00a0 quick", [("▁the", "the", 0), ("▁quick", "quick", 1)]),
        ("cafe\u0301 the", [("▁cafe", "cafe\u0301", 0), ("▁the", "the", 1)]),
        ("``st''", [("▁", "", 0), ('"', "``", 0), ("s", "s", 1), ("t", "t", 1), ('"', "''", 2)]),
        ("in 1999, the", [("▁in", "in", 0), ("▁1999", "1999", 1), (",", ",", 2), ("▁the", "the", 3)]),
        (
            "caf\u00e9 19,\x01\u200bthe",
            [("▁cafe", "café", 0), ("▁19", "19", 1), (",", ",\x01", 2), ("▁the", "the", 3)],
        ),
        ("the ½", [("▁the", "the", 0), ("▁1⁄2", "½", 1)]),
        ("the \x01\u200b dog", [("▁the", "the", 0), ("▁dog", "dog", 1)]),
    ],
)
def test_spans_and_words(text, expected):
    assert spans("uncased", text) == expected


def test_words_stand_alone_where_there_are_no_spaces():
    words = [word for _, _, word in spans("plain", "日本語 дом")]
    pieces = [piece for piece, _, _ in spans("plain", "日本語 дом")]
    assert pieces[-1] == "▁дом"
    assert words == list(range(len(pieces)))
    tokenizer = TOKENIZERS["uncased"]
    ids = [
        tokenizer.vocabulary.index(piece) for piece in ["▁the", '"', "-", "s", "[MASK]", "<unk>", "▁"]
    ]
    assert tokenizer.is_continuation[ids].tolist() == [False, False, False, True, False, False, False]


@each_model
def test_special_tokens_in_a_text_are_plain_text(name):
    assert (AS_USER_DEFINED in MODELS[name]) == (name != "plain")
    tokenizer = TOKENIZERS[name]
    cls_token, mask = (
        tokenizer.vocabulary[i] for i in (tokenizer.cls_token_id, tokenizer.mask_token_id)
    )
    text = f"the {mask} dog{cls_token}"
    special = {*tokenizer.special_token_ids} - {tokenizer.unk_token_id}
    assert special.isdisjoint(tokenizer.tokenize(text).numpy())
    ids = tokenizer.tokenize(text, parse_special_tokens=True).numpy().tolist()
    the, dog = (tokenizer.tokenize(word).numpy().tolist() for word in ("the", "dog"))
    assert ids == [*the, tokenizer.mask_token_id, *dog, tokenizer.cls_token_id]
    assert tokenizer.pair_separators == OPTIONS[name].get("pair_separators", 1)


def test_special_tokens_that_the_model_lacks_come_behind():
    model = train(vocab_size=300, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1)
    tokenizer = SentencePieceTokenizer(model, added_tokens=["[CLS]", "[SEP]", "[MASK]"])
    size = tokenizer.vocabulary_size
    assert tokenizer.vocabulary[-3:] == ("[CLS]", "[SEP]", "[MASK]")
    assert (tokenizer.cls_token_id, tokenizer.mask_token_id) == (size - 3, size - 1)
    with pytest.raises(ValueError, match=r"without \[CLS\], \[SEP\], \[MASK\]"):
        SentencePieceTokenizer(model)


def test_ids_are_those_of_the_vocabulary():
    tokenizer = TOKENIZERS["plain"]
    assert tokenizer.vocabulary == tuple(FAIRSEQ)
    again = SentencePieceTokenizer.for_fairseq(MODELS["plain"])
    assert again.get_config() == tokenizer.get_config()
    ids = tokenizer.tokenize("the \u0416 dog").numpy().tolist()
    assert [FAIRSEQ[i] for i in ids] == ["▁the", "▁", "<unk>", "▁dog"]
    with pytest.raises(ValueError, match="every piece of the model. Received: .* without '▁dog'"):
        SentencePieceTokenizer(
            MODELS["plain"], **{**OPTIONS["plain"], "vocabulary": [p for p in FAIRSEQ if p != "▁dog"]}
        )


@each_model
def test_text_comes_back(name):
    tokenizer = TOKENIZERS[name]
    texts = ["the quick brown fox", "don't (yes) be at 10%", "this was it."]
    ids = tokenizer.tokenize(texts)
    assert tokenizer.detokenize(ids).numpy().tolist() == [text.encode() for text in texts]
    ids = [tokenizer.cls_token_id, *ids[0].numpy(), tokenizer.sep_token_id]
    names = [tokenizer.vocabulary[i] for i in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    assert tokenizer.detokenize(ids).numpy().decode() == f"{names[0]} {texts[0]} {names[1]}"
    assert tokenizer.detokenize(ids, skip_special_tokens=True).numpy().decode() == texts[0]


def test_bytes_stand_for_unknown_characters():
    model = train(vocab_size=600, byte_fallback=True, user_defined_symbols="<pad>,[CLS],[SEP],[MASK]")
    tokenizer = SentencePieceTokenizer(model, strip_accents=False)
    text = "the ж😀 dog"
    found = tokenizer.tokenize_with_offsets(text)
    pieces = [tokenizer.vocabulary[i] for i in found["token_ids"]]
    assert pieces == ["▁the", "▁", "<0xD0>", "<0xB6>", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁dog"]
    assert found["char_starts"].numpy().tolist() == [0, 4, 4, 4, 5, 5, 5, 5, 7]
    assert found["char_ends"].numpy().tolist() == [3, 4, 5, 5, 6, 6, 6, 6, 10]
    assert tokenizer.detokenize(found["token_ids"]).numpy().decode() == text


def test_graphs_datasets_and_saved_models_agree(tmp_path):
    tokenizer = SentencePieceTokenizer(MODELS["uncased"], **OPTIONS["uncased"])
    module = tf.Module()
    module.tokenizer = tokenizer
    # traced before any eager call: the tables of code points are built while a graph is
    module.run = tf.function(
        lambda text: {k: v.to_tensor() for k, v in tokenizer.tokenize_with_offsets(text).items()},
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, tmp_path / "model")
    reloaded = tf.saved_model.load(tmp_path / "model")
    expected = {
        k: v.to_tensor().numpy() for k, v in TOKENIZERS["uncased"].tokenize_with_offsets(NASTY).items()
    }
    dataset = tf.data.Dataset.from_tensors(NASTY).map(module.run)
    for found in (module.run(NASTY), reloaded.run(NASTY), next(iter(dataset))):
        for key, values in found.items():
            np.testing.assert_array_equal(values, expected[key], err_msg=key)
    assert {k: v.shape for k, v in reloaded.run(tf.constant([], tf.string)).items()} == dict.fromkeys(
        expected, (0, 0)
    )


def test_seeds_leave_the_model_alone():
    tokenizer = SentencePieceTokenizer(MODELS["uncased"], **OPTIONS["uncased"])
    keras.utils.set_random_seed(1)  # TensorFlow drops its kernels, and what they own
    assert tokenizer.tokenize("the dog").shape == TOKENIZERS["uncased"].tokenize("the dog").shape


@each_model
def test_config_needs_no_file(name, tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(MODELS[name])
    tokenizer = SentencePieceTokenizer(path, **OPTIONS[name])
    config = tokenizer.get_config()
    path.unlink()
    again = SentencePieceTokenizer(**json.loads(json.dumps(config)))
    assert again.get_config() == config
    assert again.vocabulary == tokenizer.vocabulary
    assert again.tokenize(NASTY).to_list() == TOKENIZERS[name].tokenize(NASTY).to_list()


@pytest.mark.parametrize(
    "content",
    [b"", b"[PAD]\n[UNK]\n[CLS]\n", MODELS["plain"][:1000], b"\xff\xfe", b'{"model": {"type": "BPE"}}'],
)
def test_what_is_no_model_is_refused(content, tmp_path):
    with pytest.raises(ValueError, match="must be a SentencePiece model.* bytes that is none"):
        SentencePieceTokenizer(content)
    path = tmp_path / "spiece.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be a SentencePiece model.*spiece.model that is none"):
        SentencePieceTokenizer(path)


def test_missing_file_and_white_space_behind_pieces_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must be an existing file, or bytes. Received: .*/no.model"):
        SentencePieceTokenizer(tmp_path / "no.model")
    model = train(vocab_size=300, treat_whitespace_as_suffix=True)
    with pytest.raises(ValueError, match="white space as ▁ in front.*treat_whitespace_as_suffix=True"):
        SentencePieceTokenizer(model)
