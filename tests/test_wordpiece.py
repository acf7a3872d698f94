"""keras_bert.text.wordpiece: ids and offsets against the original rule in plain Python."""

import gzip
import json
import os
import string
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from bert_tokenization import is_dropped, is_space, tokenize, tokenize_with_offsets, words
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.normalization import split_words
from keras_bert.text.offsets import word_spans
from keras_bert.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused2]"]
LETTERS = [*string.ascii_letters, *"éàüñßəıαΣσςøŁłбж가가カパ\u0301\u0307𝐀𝐛\ue001"]
ALONE = [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~–—…。、「」·中文字国\uf900\U00020000"]
LONGER = ["the", "un", "##aff", "##able", "café", "cafe", "strasse", "straße", "##ss", "½", "™"]
LONGER += ["fi", "10", "20", "##km", "##00", "1", "2", "##ing", "hello", "Hello", "ﬁ", "😀", "mask"]
NEVER_MATCHED = ["a b", "a\u00a0b", "a-b", "[x]", "中国", "##文", "", "##", "don't", "A\u00adB"]
VOCABULARY = SPECIAL + LETTERS + [f"##{c}" for c in LETTERS] + ALONE + LONGER + NEVER_MATCHED
IDS = {piece: i for i, piece in enumerate(VOCABULARY)}
UNKNOWN = IDS["[UNK]"]

NASTY = """
   |Hello World!|unaffable|UNaffable the|naïve café résumé|cafe\u0301|Łódź|10\u00a0km
x\u3000y|a\u2028b|a\u2029b|a\u0085b|soft\u00adhyphen|\u00ad|zero\u200bwidth
👨\u200d👩\u200d👧|\ufeffbom|nul\0l|\ufffd mid\ufffddle|tab\there|carriage\rreturn
\u202eRTL|a\x1cb\x0bc\x0cd\x7fe|don't can't it's|$1,000.00 50%|http://a.b/c?d=e
straße GROSS ẞ|ﬁ ﬂ ligature|½ cup|…and so…on|™ ® ©|①②③|Ⅷ|Ｆｕｌｌ　ｗｉｄｔｈ！
ΑΣ ΑΣΑ Σ Σ. ΑΣ\u00ad ΑΣ\u0301Α ΑΣ'Α|rΣ|İstanbul ıI İ|ǅ ǆ Ǆ|K Å Ω|パンダ が|ハ゜|カ\u3099
한국어 가|中文字符 test中a国|a\uf900b|\u2f00|\U0002f800x|𠀀𠀁|㐀a|ㄅa|😀 👍🏽|🇺🇸
Cretaceous–Paleogene|a—b|a\u2011b|_a_|a·b|a\u0387b|a\u037eb|a\u1fefb|`a^b~|\ue000 \ue001
\uf059|a\ue001b|##able|[MASK] [x] [unused1]|a b|a-b|中国|A\u00adB|Ab\u0301\u0327c
q\u0323\u0307 q\u0307\u0323|\u0301|a \u0301 b|a\u0488b|a\u0903b|नमस्ते दुनिया|ไทยภาษา
שָׁלוֹם|مرحبا|𝐀𝐛 𝐁|a\u180eb|a\u1680b|a\u2007b\u202fc\u205fd|a\u061cb|a\u06ddb
\U000e0041a
""".replace("\n", "|").split("|")
NASTY += ["a\nb\r\nc", "\n\n", "Ê" * 150, "a" * 101, "a" * 5 + "-" * 300, "中" * 300, "é" * 300]
for letter in "aAé𝐀\u0301가":
    NASTY += [letter * n for n in (99, 100, 101, 199, 200, 201, 202, 400, 801, 2000)]
    NASTY += [f"the 中{letter * n}–{letter * 3}\u2028{letter * n}\u3000!" for n in (200, 201)]

CASES = [(True, None), (False, None), (True, False), (False, True)]
TOKENIZERS = {case: WordPieceTokenizer(VOCABULARY, *case) for case in CASES}
both_cases = pytest.mark.parametrize("case", CASES, ids=str)


def rows(located):
    """(id, start, end, word) of each piece, in lists, from what `tokenize_with_offsets` gives."""
    names = ("token_ids", "char_starts", "char_ends", "word_ids")
    columns = [located[name].to_list() for name in names]
    return [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]


def assert_as_the_original(case, texts):
    tokenizer = TOKENIZERS[case]
    ids = tokenizer.tokenize(texts)
    assert ids.dtype == tf.int32
    located = tokenizer.tokenize_with_offsets(texts)
    assert {values.dtype for values in located.values()} == {tf.int32}
    for text, ours, row in zip(texts, ids.to_list(), rows(located), strict=True):
        assert ours == tokenize(text, IDS, *case), repr(text)
        assert row == tokenize_with_offsets(text, IDS, *case), repr(text)
    return ids


@both_cases
def test_nasty_strings_as_the_original(case):
    ids = assert_as_the_original(case, NASTY)
    unknown = np.mean(ids.values == UNKNOWN)
    assert 0.01 < unknown < 0.5  # the comparison sees both matched and unmatched words
    assert len(set(ids.values.numpy().tolist())) > 100


# in Unicode since 2002, so that TensorFlow's tables and every Python's agree on them
OLD = [c for c in map(chr, range(0xF0000)) if unicodedata.ucd_3_2_0.category(c) not in "Cn Cs"]


@both_cases
def test_every_character_as_the_original(case):
    texts = [f"a{c}b" for c in OLD[:: 1 if case[1] is None else 7]]
    assert_as_the_original(case, texts)
    ours = split_words(TOKENIZERS[case].normalize(tf.constant(texts))).to_list()
    for text, found in zip(texts, ours, strict=True):
        assert [word.decode() for word in found] == words(text, *case), repr(text)


characters = st.sampled_from(sorted(set("".join(NASTY)))) | st.sampled_from(OLD)
TEXTS = st.lists(st.text(characters) | st.sampled_from(NASTY), min_size=1, max_size=8)


@both_cases
@settings(max_examples=100, deadline=None, database=None)
@given(texts=TEXTS)
def test_any_text_as_the_original(case, texts):
    assert_as_the_original(case, texts)


@both_cases
@settings(max_examples=100, deadline=None, database=None)
@given(text=st.text(characters | st.characters(codec="utf-8")))
def test_offsets_cover_the_text_in_order(case, text):
    (row,) = rows(TOKENIZERS[case].tokenize_with_offsets([text]))
    covered = np.zeros(len(text), bool)
    for before, (_, start, end, word) in zip([(0, 0, 0, -1), *row], row, strict=False):
        assert 0 <= start < end <= len(text)
        assert start >= before[1]
        assert end >= before[2]
        assert word - before[3] in (0, 1)
        covered[start:end] = True
    for c, is_covered in zip(text, covered, strict=True):
        if not (is_space(c) or is_dropped(c) or unicodedata.category(c) in ("Mn", "Cn", "Zl", "Zp")):
            assert is_covered, (c, row)


SLICES = [
    ("naïve Café!", ["naïve", "Café", "!"]),
    ("cafe\u0301 x", ["cafe\u0301", "x"]),  # the dropped accent belongs to its letter
    ("A\u00adffx the\u00ad", ["A\u00adffx", "the"]),  # a dropped hyphen between letters only
    ("ﬁ İΑΣ", ["ﬁ", "İΑΣ"]),
    ("𝐀x 😀the", ["𝐀x", "😀the"]),
    ("中the国", ["中", "the", "国"]),
    ("\0the\tun", ["the", "un"]),
]


@pytest.mark.parametrize(("text", "slices"), SLICES)
def test_slices_by_hand(text, slices):
    located = TOKENIZERS[True, None].tokenize_with_offsets([text])
    (spans,) = zip(*(spans.to_list() for spans in word_spans(*list(located.values())[1:])), strict=True)
    assert [text[start:end] for start, end in zip(*spans, strict=True)] == slices


@pytest.mark.parametrize("name", ["uncased", "cased", "multi_cased", "chinese"])
def test_published_vocabularies_give_the_published_ids(name):
    folder = os.environ.get("KERAS_BERT_SHARED")
    if not folder:
        pytest.skip("KERAS_BERT_SHARED must name the folder with vectors/wordpiece_gold.json.gz")
    vectors = Path(folder) / "vectors"
    with gzip.open(vectors / "wordpiece_gold.json.gz") as file:
        rows = json.load(file)
    tokenizer = WordPieceTokenizer(
        vectors / "vocab" / f"{name}.txt", lowercase=name in ("uncased", "chinese")
    )
    ids = tokenizer.tokenize([row["text"] for row in rows]).to_list()
    assert len(rows) > 800
    assert [r["text"] for r, i in zip(rows, ids, strict=True) if r[name] != i] == []


@pytest.mark.parametrize("limit", [1, 3, 200, 400])
def test_word_limit_counts_characters(limit):
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=False, max_word_length=limit)
    for letter in "aé𝐀":
        ids = tokenizer.tokenize([letter * limit, letter * (limit + 1), f"!{letter * limit}中"])
        inside = [IDS[letter]] + [IDS[f"##{letter}"]] * (limit - 1)
        assert ids.to_list() == [inside, [UNKNOWN], [IDS["!"], *inside, IDS["中"]]]
    long = "a" * (limit + 1)
    ids = tokenizer.tokenize(f"{long} {long}-{long}[MASK]{long}", parse_special_tokens=True)
    unknown = [UNKNOWN, UNKNOWN, IDS["-"], UNKNOWN, IDS["[MASK]"], UNKNOWN]
    assert ids.numpy().tolist() == unknown
    # the mark behind a long word moves no offset behind it
    text = f"é {'é' * (limit + 1)}-the {long} {long}-a"
    located = tokenizer.tokenize_with_offsets(text)
    slices = [text[a:b] for a, b in zip(located["char_starts"], located["char_ends"], strict=True)]
    assert slices == ["é", "é" * (limit + 1), "-", "the", long, long, "-", "a"]


@pytest.mark.parametrize(
    "text",
    [b"caf\xc3 the", b"\xff", b"a\xed\xa0\x80b", b"\xf4\x90\x80\x80z", b"A\xc0\x80\0 the\xe4\xb8"],
)
def test_bytes_that_are_not_utf8_are_dropped(text):
    for tokenizer in TOKENIZERS.values():
        ids = tokenizer.tokenize([b"the", text]).to_list()
        assert ids[1] == tokenizer.tokenize([text.decode(errors="ignore")]).to_list()[0]
        marked = tokenizer.tokenize([text + b"[MASK]"], parse_special_tokens=True).to_list()[0]
        assert marked == [*ids[1], IDS["[MASK]"]]


def test_turkish_locale_changes_nothing():
    code = (
        "from keras_bert.text.normalization import normalize;"
        "print(normalize(['TITLE İI é'], strip_accents=False).numpy()[0])"
    )
    env = {**os.environ, "LC_ALL": "tr_TR.UTF-8"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert run.stdout.startswith("b'title i"), run


def test_shapes_of_one_and_of_no_string():
    tokenizer = TOKENIZERS[CASES[0]]
    one = tokenizer.tokenize("the the")
    assert (one.shape, one.dtype) == ((2,), tf.int32)
    assert tokenizer.tokenize("").shape == (0,)
    assert tokenizer.tokenize(["", " "]).to_list() == [[], []]
    assert tokenizer.tokenize(tf.zeros((0,), tf.string)).shape == (0, None)
    with pytest.raises(ValueError, match=r"a vector of strings. Received: .* shape \(1, 2\)"):
        tokenizer.tokenize([["the", "the"]])


@pytest.mark.parametrize("parse", [False, True])
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_graphs_give_the_eager_ids(case, parse, tmp_path):
    tokenizer = TOKENIZERS[case]
    texts = [*NASTY, "é [MASK]\0[SEP] the", "[MASK]"]
    expected = tokenizer.tokenize(texts, parse).to_list()
    located = rows(tokenizer.tokenize_with_offsets(texts, parse))
    assert [[piece[0] for piece in row] for row in located] == expected

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def graph(text):
        return tokenizer.tokenize(text, parse)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def graph_with_offsets(text):
        return tokenizer.tokenize_with_offsets(text, parse)

    assert graph(tf.constant(texts)).to_list() == expected
    assert rows(graph_with_offsets(tf.constant(texts))) == located

    dataset = tf.data.Dataset.from_tensor_slices(texts)
    ones = dataset.map(lambda text: tokenizer.tokenize(text, parse))
    assert [ids.tolist() for ids in ones.as_numpy_iterator()] == expected
    batches = dataset.batch(50).map(lambda text: tokenizer.tokenize(text, parse))
    assert [ids for batch in batches for ids in batch.to_list()] == expected

    batches = dataset.batch(50).map(lambda text: tokenizer.tokenize_with_offsets(text, parse))
    assert [row for batch in batches for row in rows(batch)] == located

    module = tf.Module()
    module.tokenizer, module.tokenize, module.locate = tokenizer, graph, graph_with_offsets
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.tokenize(texts).to_list() == expected
    assert rows(loaded.locate(texts)) == located


def test_one_long_text_among_many_short_ones():
    """No step may build a matrix of all texts by the longest one, here 10 GB of row numbers."""
    texts = ["é the"] * 2000 + ["é " * 600_000]
    located = TOKENIZERS[True, None].tokenize_with_offsets(texts)
    assert located["word_ids"].row_lengths()[-1] == 600_000
    assert located["char_starts"].values[-1] == 1_199_998


def test_a_tokenizer_made_inside_a_function_outlives_it():
    made = []

    @tf.function
    def graph(text):
        made.append(WordPieceTokenizer(VOCABULARY))
        return made[-1].tokenize(text)

    assert graph(["the"]).to_list() == made[0].tokenize(["the"]).to_list() == [[IDS["the"]]]


@both_cases
def test_special_tokens_in_text(case):
    tokenizer = TOKENIZERS[case]
    text = "the[MASK]the [SEP] [mask] [MA\u00adSK] [unused2][unused3]"
    plain = tokenizer.tokenize(text).numpy().tolist()
    assert plain == tokenize(text, IDS, *case)
    assert not set(plain) & (set(tokenizer.special_token_ids) - {UNKNOWN})

    def ids(text):
        return tokenizer.tokenize(text).numpy().tolist()

    the, rest = IDS["the"], ids("[mask] [MA\u00adSK] [unused2][unused3]")
    expected = [the, IDS["[MASK]"], the, IDS["[SEP]"], *rest]
    assert tokenizer.tokenize(text, parse_special_tokens=True).numpy().tolist() == expected
    located = tokenizer.tokenize_with_offsets("é [MASK] [SEP]the", parse_special_tokens=True)
    assert located["char_starts"].numpy().tolist()[1:] == [2, 9, 14]
    assert located["char_ends"].numpy().tolist()[1:] == [8, 14, 17]
    assert located["word_ids"].numpy().tolist() == [0, 1, 2, 3]

    by_default = WordPieceTokenizer(VOCABULARY, *case, parse_special_tokens=True)
    assert by_default.tokenize(text).numpy().tolist() == expected
    assert by_default.tokenize(text, parse_special_tokens=False).numpy().tolist() == plain


def test_added_tokens_are_atomic_and_keep_their_case():
    added = ["NewTok", "the", AddedToken("[unused2]", special=True), AddedToken("C++", normalized=True)]
    tokenizer = WordPieceTokenizer(VOCABULARY, added_tokens=added)
    new, c = len(VOCABULARY), len(VOCABULARY) + 1
    assert tokenizer.vocabulary_size == len(VOCABULARY) + 2
    assert tokenizer.vocabulary[new:] == ("NewTok", "C++")
    plain = TOKENIZERS[True, None]

    def ids(text, tokenizer=tokenizer, **options):
        return tokenizer.tokenize(text, **options).numpy().tolist()

    assert ids("aNewTokb c++ C++") == [*ids("a"), new, *ids("b"), c, c]
    assert ids("newtok NEWTOK") == ids("newtok NEWTOK", plain)
    assert ids("other") == [*ids("o"), IDS["the"], *ids("r")]  # also where it is a piece
    assert ids("[unused2]") == ids("[unused2]", plain)
    assert ids("[unused2]", parse_special_tokens=True) == [IDS["[unused2]"]]
    assert tokenizer.is_special[IDS["[unused2]"]]
    assert not tokenizer.is_special[new]
    again = WordPieceTokenizer(**json.loads(json.dumps(tokenizer.get_config())))
    assert again.get_config() == tokenizer.get_config()
    assert ids("aNewTokb c++ C++", again) == ids("aNewTokb c++ C++")


def test_white_space_that_a_token_takes_along():
    mask = AddedToken("[MASK]", special=True, lstrip=True, rstrip=True)
    tokenizer = WordPieceTokenizer(VOCABULARY, mask_token=mask, parse_special_tokens=True)
    located = tokenizer.tokenize_with_offsets("é\u3000 [MASK]\n the [MASK]")
    assert located["token_ids"].numpy().tolist()[1:] == [IDS["[MASK]"], IDS["the"], IDS["[MASK]"]]
    assert located["char_starts"].numpy().tolist() == [0, 3, 11, 15]
    assert located["char_ends"].numpy().tolist() == [1, 9, 14, 21]


@pytest.mark.parametrize("token", ["", " ", "\u3000"])
def test_blank_added_tokens_are_refused(token):
    with pytest.raises(ValueError, match="must hold a character"):
        WordPieceTokenizer(VOCABULARY, added_tokens=[token])


@settings(max_examples=100, deadline=None, database=None)
@given(texts=TEXTS)
def test_ideographs_inside_words(texts):
    tokenizer = WordPieceTokenizer(VOCABULARY, tokenize_chinese_chars=False)
    texts = [*texts, "中国", "a中国b, 中!", f"中{'国' * 200}-a"]
    ids = tokenizer.tokenize(texts).to_list()
    for text, ours, row in zip(texts, ids, rows(tokenizer.tokenize_with_offsets(texts)), strict=True):
        assert row == tokenize_with_offsets(text, IDS, ideographs_alone=False), repr(text)
        assert ours == [piece[0] for piece in row]


@pytest.mark.parametrize("parse", [False, True])
def test_control_characters_cannot_forge_a_special_token(parse):
    for text in ["\x01mask", "\x01MASK", "the \x01mask", "\x010 \x015"]:
        ids = TOKENIZERS[True, None].tokenize(text, parse).numpy().tolist()
        assert ids == tokenize(text, IDS)


def test_pieces_by_id():
    tokenizer = TOKENIZERS[CASES[0]]
    assert tokenizer.vocabulary == tuple(VOCABULARY)
    assert tokenizer.vocabulary_size == len(VOCABULARY)
    named = [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id]
    named += [tokenizer.sep_token_id, tokenizer.mask_token_id]
    assert named == [0, 2, 3, 4, 5]
    assert tokenizer.special_token_ids == (0, 2, 3, 4, 5)
    assert np.flatnonzero(tokenizer.is_special).tolist() == list(range(7))
    continuations = [i for i, piece in enumerate(VOCABULARY) if piece.startswith("##")]
    assert np.flatnonzero(tokenizer.is_continuation).tolist() == continuations

    ids = tokenizer.tokenize(["Unaffable the!", "", "able"])
    assert tokenizer.pieces(ids).to_list()[0] == [b"un", b"##aff", b"##able", b"the", b"!"]
    assert tokenizer.detokenize(ids).numpy().tolist() == [b"unaffable the !", b"", b"able"]
    padded = [3, IDS["the"], 4, 0]
    assert tokenizer.pieces(padded).numpy().tolist() == [b"[CLS]", b"the", b"[SEP]", b"[PAD]"]
    assert tokenizer.detokenize(padded).numpy() == b"[CLS] the [SEP] [PAD]"
    assert tokenizer.detokenize(padded, skip_special_tokens=True).numpy() == b"the"


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([], "must not be empty. Received: a list"),
        ([*SPECIAL, "a", "b", "a", "a"], r"different.*'a' on lines \[8, 10, 11\]"),
        (SPECIAL[1:], r"must hold .* Received: a list of 6 pieces without \[PAD\]\."),
        (["[PAD]", "[CLS]", "a"], r"3 pieces without \[UNK\], \[SEP\], \[MASK\]\."),
    ],
)
def test_unusable_vocabularies_are_refused(vocabulary, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocabulary)
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary))
    with pytest.raises(ValueError, match=message.replace("a list", str(path))):
        WordPieceTokenizer(path)


@pytest.mark.parametrize("limit", [0, 401])
def test_word_limits_out_of_reach_are_refused(limit):
    with pytest.raises(ValueError, match=f"between 1 and 400. Received: {limit}"):
        WordPieceTokenizer(VOCABULARY, max_word_length=limit)
