"""keras_bert.text.bytepair: ids, offsets and words against Hugging Face's byte-level BPE."""

import inspect
import itertools
import json
import random
import re
import string
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken as TheirToken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.bytepair import BytePairTokenizer, byte_alphabet

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LANGUAGES = """
Größere Übungen, straße. L'été où naïve cafés déjà vus; garçon, cœur. El niño soñó mañana, ¿qué?
Привет, мир! Съешь ещё этих мягких булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
नमस्ते दुनिया। हिन्दी में लिखा गया पाठ। สวัสดีชาวโลก ภาษาไทยง่ายนิดเดียว
日本語のテキスト、これは文です。中文字符测试：你好，世界！ 한국어 문장입니다.
שלום עולם, זה טקסט. مرحبا بالعالم، هذا نص عربي ١٢٣٤٥. ႀႁ ៣ ⅷ ½ 𝟘𝟙 𝐀𝐛
😀👍🏽 👨‍👩‍👧 🇺🇸 — “quoted” ‘single’ … 100\u00a0km a\u3000b\u2028c  \u3000 d
don't we'll I've they're I'm he'd it's  double  spaces\n\n\tindented\n    four
"""
TABLE = """
'|the cat| the cat|  the|   the   |\nthe|\n\n\nthe|\n\n\n|a \n |\t\tx|\t x|x\t|x \t|a  \tb|\r\nx
don't we'll I've they're I'm he'd it's|DON'T WE'LL I'M It'S|'still 'sss 'tt 'rev 'ver 'llama 'do
''s|'''ll|!'s|! 's|a's's|a'sb|1's2|'s1|'re're|'l l|'|''|a'|a'r|a'l|'\u0301s|\u2019s don\u2019t
a\u00a0b|a\u00a0\u00a0b|\u00a0 b| \u00a0b|a\u3000 b|a \u3000b|\u3000\u3000|a\u0085b|\u0085 \u0085b
a\x1cb|\x1c\x1d\x1e\x1f|a \x1c b|\x1c \x1d|a\u200bb|\u200b |\ufeffx|a\u180eb|\u180e x|a\u2028\u2029b
a\u0301 e\u0301\u0302x|\u0301|  \u0301|\u0903|١٢٣ 123٣|½x x½|²³|ⅷx|𝟘1|🄀1|a1b2|1a2b|3.14|1,000
😀|😀😀|a😀b| 😀|👨‍👩‍👧|🇺🇸|日本語|日 本|中1文|é|éé é|ñ1|𠀀𠀁|\U0010ffff|\U000e0041|\x00|\x7f|\xad|ÿ|þÿ
<s>|</s>|<mask>| <mask>|<pad> <unk>|Ġ|Ġthe|Ċ|▁the|\ufffd|##ing|[MASK]
""".replace("\n", "|").split("|")
TABLE += ["x" * 5000, "ab" * 3000, "!" * 3000, " " * 3000, "\u3000" * 999 + "x", "12" * 2000]


def train(size):
    """A vocabulary of `size` pieces (dict) and its merges, of documentation and other languages."""
    documentation = [inspect.getdoc(m) or "" for m in (re, json, random, string, inspect, itertools)]
    texts = [inspect.getsource(string), *documentation, *3 * LANGUAGES.split("\n")]
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    model = json.loads(theirs.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def their_tokenizer(vocabulary, merges, trim=True, prefix=False):
    theirs = Tokenizer(models.BPE(vocabulary, merges))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    theirs.post_processor = processors.ByteLevel(trim_offsets=trim, add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    return theirs


class Both:
    """Our tokenizer and theirs, of one vocabulary."""

    def __init__(self, vocabulary, merges, prefix=False):
        self.ours = BytePairTokenizer(vocabulary, merges, add_prefix_space=prefix)
        self.prefix = prefix
        self.theirs = their_tokenizer(vocabulary, merges, prefix=prefix)
        self.trimmed, self.untrimmed = (
            their_tokenizer(vocabulary, merges, trim) for trim in (True, False)
        )

    def compare(self, texts):
        texts = list(texts)
        found = {k: v.to_list() for k, v in self.ours.tokenize_with_offsets(texts).items()}
        assert self.ours.tokenize(texts).to_list() == found["token_ids"]
        for text, *ours in zip(texts, *found.values(), strict=True):
            assert ours[0] == self.theirs.encode(text, add_special_tokens=False).ids, repr(text)
            # a space that is there gives the places; one that is put there gives strange ones
            added = self.prefix and not text.startswith(" ") and bool(text)
            trimmed, untrimmed = (t.encode(added * " " + text) for t in (self.trimmed, self.untrimmed))
            assert ours[0] == trimmed.ids
            assert ours[3] == trimmed.word_ids, repr(text)
            places = [
                kept if begin == end else (begin, end)
                for (begin, end), kept in zip(trimmed.offsets, untrimmed.offsets, strict=True)
            ]
            places = [tuple(max(0, place - added) for place in both) for both in places]
            assert list(zip(ours[1], ours[2], strict=True)) == places, repr(text)
        return found


VOCABULARY, MERGES = train(1000)
PAIRS = {prefix: Both(VOCABULARY, MERGES, prefix) for prefix in (False, True)}
TOKENIZER = PAIRS[False].ours
both_prefixes = pytest.mark.parametrize("prefix", [False, True])


@both_prefixes
def test_table_as_hugging_face(prefix):
    found = PAIRS[prefix].compare(TABLE)
    assert len({i for row in found["token_ids"] for i in row}) > 120


@both_prefixes
def test_other_languages_and_code_as_hugging_face(prefix):
    texts = [*LANGUAGES.split("\n"), LANGUAGES, *inspect.getsource(random).split("\n\n")]
    found = PAIRS[prefix].compare(texts)
    sizes = [len(i) / len(t) for i, t in zip(found["token_ids"], texts, strict=True) if t]
    assert min(sizes) < 0.6 < 1.3 < max(sizes)  # both long pieces and parts of characters


def known_characters():
    """Every one if their tables are of Unicode 16 as ours are, else those that no version disputes."""
    words = PAIRS[False].theirs.pre_tokenizer.pre_tokenize_str("a\u1c89!\U00010940")
    if len(words) == 2:  # a letter of Unicode 16, and one of 17, which is not known
        return [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    return [c for c in map(chr, range(0xF0000)) if unicodedata.ucd_3_2_0.category(c) not in "Cn Cs"]


CHARACTERS = known_characters()


def test_every_character_as_hugging_face():
    # the blocks of ideographs and of private use, and all that lies between them, in steps
    chosen = [
        c for c in CHARACTERS if c < "\u3400" or "\ua000" < c < "\uac00" or "\uf900" < c < "\U00017000"
    ]
    chosen += [c for c in CHARACTERS if "\U00018af0" < c < "\U0001fc00"]
    chosen += [c for c in CHARACTERS if c < "\U00034000" and ord(c) % 32 in (0, 29, 30, 31)]
    chosen += CHARACTERS[0x34000::4093]
    # behind and before a letter, a number, a mark, white space, and itself
    texts = ["".join(f"a{c}1{c}!{c}{c} {c}\t{c} " for c in chosen[i::200]) for i in range(200)]
    theirs = PAIRS[False].theirs.encode_batch(texts)
    ours = TOKENIZER.tokenize_with_offsets(texts)
    for encoding, ids, words in zip(theirs, ours["token_ids"], ours["word_ids"], strict=True):
        np.testing.assert_array_equal(ids, encoding.ids)
        np.testing.assert_array_equal(words, encoding.word_ids)


characters = (
    st.sampled_from(sorted(set("".join(TABLE) + LANGUAGES)))
    | st.sampled_from(" \n\t'\u00a0\u3000strevmldab1!")
    | st.sampled_from(CHARACTERS)
)
TEXTS = st.lists(st.text(characters) | st.sampled_from(TABLE[:100]), min_size=1, max_size=12)


@both_prefixes
@settings(max_examples=50, deadline=None, database=None)
@given(texts=TEXTS)
def test_any_text_as_hugging_face_and_back(prefix, texts):
    PAIRS[prefix].compare(texts)
    back = PAIRS[prefix].ours.detokenize(PAIRS[prefix].ours.tokenize(texts)).numpy()
    added = [text and prefix and not text.startswith(" ") for text in texts]
    assert [b.decode() for b in back] == [" " * bool(a) + t for a, t in zip(added, texts, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_merges_that_no_training_would_give(seed):
    """A piece with several splits, in any order: most of them come up in no text."""
    rng = random.Random(seed)
    pieces, merges = list("abc"), []
    while len(merges) < 60:
        pair = rng.choice(pieces), rng.choice(pieces)
        if len(pair[0] + pair[1]) < 6 and pair not in merges:
            merges.append(pair)
            pieces.append("".join(pair))
    rng.shuffle(merges)
    longer = dict.fromkeys(piece for piece in pieces if len(piece) > 1)
    assert len(longer) < len(merges)  # some pieces have two merges
    vocabulary = [*SPECIAL, *byte_alphabet(), *longer]
    texts = ["".join(rng.choices("abc", k=rng.randrange(20))) for _ in range(1000)]
    Both({piece: i for i, piece in enumerate(vocabulary)}, merges).compare(texts)


def test_parts_of_a_character_have_its_place():
    bare = BytePairTokenizer([*SPECIAL, *byte_alphabet()], [])
    found = bare.tokenize_with_offsets("é 😀x")
    starts, ends = found["char_starts"].numpy().tolist(), found["char_ends"].numpy().tolist()
    assert starts == [0, 0, 1, 2, 2, 2, 2, 3]
    assert ends == [1, 1, 2, 3, 3, 3, 3, 4]
    assert found["word_ids"].numpy().tolist() == [0, 0, 1, 1, 1, 1, 1, 2]


@both_prefixes
def test_pieces_without_the_space_in_front(prefix):
    merges = ["Ġ t", "h e", "Ġt he", "Ċ Ġ", "Ġ Ġ"]
    made = [merge.replace(" ", "") for merge in merges]
    tokenizer = BytePairTokenizer([*SPECIAL, *byte_alphabet(), *made], merges, add_prefix_space=prefix)
    for text, expected in {
        " the the\n  the": ["the", "the", "\n", "the"],
        "the\n  ": ["the", "\n", " "] if prefix else ["t", "he", "\n", " "],
        "     ": ["  ", "  ", " "],
        "the": ["the"] if prefix else ["t", "he"],
        "x": ["", "x"] if prefix else ["x"],  # the space that is put there is nowhere
    }.items():
        found = tokenizer.tokenize_with_offsets(text)
        places = zip(found["char_starts"].numpy(), found["char_ends"].numpy(), strict=True)
        assert [text[begin:end] for begin, end in places] == expected


def test_detokenize_gives_all_bytes_back():
    bare = BytePairTokenizer([*SPECIAL, *byte_alphabet()], [])
    every_byte = list(range(5, 261))
    assert bare.detokenize(every_byte).numpy() == bytes(range(256))
    assert bare.detokenize(tf.ragged.constant([every_byte[:3], []], tf.int32)).numpy().tolist() == [
        b"\0\1\2",
        b"",
    ]
    padded = [[0, 5 + ord("a"), 2, 1], [0, 4, 5 + 0xE9, 2]]
    assert bare.detokenize(padded).numpy().tolist() == [b"<s>a</s><pad>", b"<s><mask>\xe9</s>"]
    assert bare.detokenize(padded, skip_special_tokens=True).numpy().tolist() == [b"a", b"\xe9"]
    theirs = PAIRS[False].theirs
    ids = [0, *theirs.encode("L'été “naïve” 😀\n").ids, 2]
    assert TOKENIZER.detokenize(ids).numpy().decode() == theirs.decode(ids, skip_special_tokens=False)


@both_prefixes
def test_special_and_added_tokens_as_hugging_face(prefix):
    theirs = their_tokenizer(VOCABULARY, MERGES, prefix=prefix)
    theirs.add_special_tokens([TheirToken("<mask>", lstrip=True, normalized=False), *SPECIAL[:4]])
    theirs.add_tokens([TheirToken("<é>", normalized=False)])
    ours = BytePairTokenizer(VOCABULARY, MERGES, prefix, added_tokens=["<é>"])
    texts = ["the <mask> the<mask>the", "<s>the</s></s> the</s>", " <mask>", "<mask>", "a<pad><unk> b"]
    texts += ["the \n\u3000<mask> .", "<é>the <é> <mask><é>", "", "'s<mask>'s", "the"]
    for text in texts:
        ids = ours.tokenize(text, parse_special_tokens=True).numpy().tolist()
        assert ids == theirs.encode(text).ids, repr(text)
    plain = ours.tokenize(texts).to_list()
    assert not {i for row in plain for i in row} & set(ours.special_token_ids)
    assert ours.vocabulary_size == len(VOCABULARY) + 1
    assert (
        ours.detokenize(ours.tokenize("a<é>b")).numpy().decode()
        == prefix * " " + "a<é>" + prefix * " " + "b"
    )
    found = ours.tokenize_with_offsets("é <mask> the", parse_special_tokens=True)
    assert found["char_starts"].numpy()[-2:].tolist() == [2, 9]
    assert found["char_ends"].numpy()[-2:].tolist() == [8, 12]


def test_shapes_of_one_and_of_no_string():
    assert TOKENIZER.tokenize("").shape == (0,)
    assert TOKENIZER.tokenize("the the").dtype == tf.int32
    assert TOKENIZER.tokenize(["", " the", ""]).to_list() == [[], [VOCABULARY["Ġthe"]], []]
    assert TOKENIZER.tokenize(tf.zeros((0,), tf.string)).to_list() == []
    found = TOKENIZER.tokenize_with_offsets(["", " the", "", ""])
    assert [ragged.to_list() for ragged in found.values()] == [
        [[], [value], [], []] for value in (VOCABULARY["Ġthe"], 1, 4, 0)
    ]
    assert {ragged.dtype for ragged in found.values()} == {tf.int32}
    none = TOKENIZER.tokenize_with_offsets(tf.zeros((0,), tf.string))
    assert [ragged.to_list() for ragged in none.values()] == [[]] * 4


@pytest.mark.parametrize(
    "text", [b"caf\xc3 the", b"\xff", b"a\xff\xfeb", b"\xf4\x90\x80\x80z", b"\xed\xa0\x80"]
)
def test_bytes_that_are_not_utf8_are_dropped(text):
    ids = TOKENIZER.tokenize([b"the", text, b"the"]).to_list()
    assert ids == TOKENIZER.tokenize(["the", text.decode(errors="ignore"), "the"]).to_list()


@both_prefixes
def test_graphs_give_the_eager_ids(prefix, tmp_path):
    tokenizer = PAIRS[prefix].ours
    expected = {k: v.to_list() for k, v in tokenizer.tokenize_with_offsets(TABLE).items()}

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def graph(text):
        return tokenizer.tokenize_with_offsets(text)

    assert {k: v.to_list() for k, v in graph(tf.constant(TABLE)).items()} == expected

    dataset = tf.data.Dataset.from_tensor_slices(TABLE)
    ones = dataset.take(50).map(tokenizer.tokenize, num_parallel_calls=2)
    assert [ids.tolist() for ids in ones.as_numpy_iterator()] == expected["token_ids"][:50]
    batches = dataset.batch(50).map(tokenizer.tokenize, num_parallel_calls=2)
    assert [ids for batch in batches for ids in batch.to_list()] == expected["token_ids"]

    module = tf.Module()
    module.tokenizer, module.tokenize = tokenizer, graph
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path)).tokenize(tf.constant(TABLE))
    assert {k: v.to_list() for k, v in loaded.items()} == expected


def test_a_tokenizer_made_inside_a_function_outlives_it():
    made = []

    @tf.function
    def graph(text):
        made.append(BytePairTokenizer([*SPECIAL, *byte_alphabet(), "he"], ["h e"]))
        return made[-1].tokenize(text)

    assert graph(["the"]).to_list() == made[0].tokenize(["the"]).to_list() == [[5 + ord("t"), 261]]


def test_pieces_by_id():
    assert TOKENIZER.pair_separators == 2
    named = [TOKENIZER.cls_token_id, TOKENIZER.pad_token_id, TOKENIZER.sep_token_id]
    assert [*named, TOKENIZER.unk_token_id, TOKENIZER.mask_token_id] == [0, 1, 2, 3, 4]
    assert np.flatnonzero(TOKENIZER.is_special).tolist() == [0, 1, 2, 3, 4]
    alphabet = byte_alphabet()

    def shown(text, end=None):
        return "".join(alphabet[byte] for byte in text.encode()[:end])

    begin = [
        "Ġ",
        "Ġthe",
        "Ċ",
        "'s",
        "!",
        ".)",
        "—",
        "…",
        "\u3000",
        "😀",
        "Ġé",
        "\u0301",
        "<mask>",
        "▁x",
    ]
    rest = ["the", "ing", "1", "é", "ñandú", "Ж", "日本", "½", "१"]
    continues = TOKENIZER._continues_word
    assert [p for p in begin if continues(p if p[0] in "Ġ<▁Ċ" else shown(p))] == []
    assert [p for p in rest if not continues(shown(p))] == []
    assert not any(continues(shown("😀", end)) for end in (2, 3))
    assert all(continues(shown("日", end)) for end in (1, 2))
    assert all(continues(alphabet[byte]) for byte in range(0x80, 0xC0))


def write_files(folder, header="#version: 0.2\n", newline="\n"):
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps(VOCABULARY), encoding="utf-8")
    lines = header + "".join(" ".join(pair) + "\n" for pair in MERGES)
    merges.write_bytes(lines.replace("\n", newline).encode())
    return vocabulary, merges


@pytest.mark.parametrize("header", ["#version: 0.2\n", ""])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_files_and_plain_arguments_are_the_same(header, newline, tmp_path):
    expected = TOKENIZER.get_config()
    assert json.loads(json.dumps(expected)) == expected
    assert BytePairTokenizer(*write_files(tmp_path, header, newline)).get_config() == expected
    ordered = sorted(VOCABULARY, key=VOCABULARY.get)
    assert BytePairTokenizer(ordered, [" ".join(pair) for pair in MERGES]).get_config() == expected
    loaded = BytePairTokenizer(**expected)
    assert loaded.get_config() == expected
    assert loaded.tokenize(TABLE).to_list() == TOKENIZER.tokenize(TABLE).to_list()


def test_config_holds_every_argument():
    arguments = {
        "add_prefix_space": True,
        "unk_token": "<|endoftext|>",
        "mask_token": AddedToken("<|mask|>", special=True, rstrip=True).to_config(),
        "added_tokens": [AddedToken("<|x|>", lstrip=True).to_config()],
        "parse_special_tokens": True,
    }
    pieces = ["<pad>", "<s>", "</s>", "<|endoftext|>", "<|mask|>", *byte_alphabet()]
    config = BytePairTokenizer(pieces, [], **arguments).get_config()
    assert {name: config[name] for name in arguments if name != "unk_token"} == {
        name: value for name, value in arguments.items() if name != "unk_token"
    }
    assert (config["unk_token"]["content"], config["vocabulary"]) == ("<|endoftext|>", pieces)
    assert config.keys() == inspect.signature(BytePairTokenizer).parameters.keys()


BYTES = [*SPECIAL, *byte_alphabet()]


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        (BYTES[1:], [], "must hold the special .* Received: a list of 260 pieces without <s>"),
        ([*BYTES, "a"], [], r"different.*'a' on lines \[103, 262\]"),
        ([], [], "must not be empty"),
        ([p for p in BYTES if p not in "Ġaÿ"], [], "256 bytes.* Received: a list without a, ÿ, Ġ."),
        (
            {p: i for i, p in enumerate(BYTES, 1)},
            [],
            "261 pieces must be 0 to 260.*a dict with '<s>' at 1",
        ),
        (
            {**{p: i for i, p in enumerate(BYTES)}, "ab": 7},
            [],
            "262 pieces must be 0 to 261, each once",
        ),
        ({**{p: i for i, p in enumerate(BYTES)}, "ab": 300}, [], "Received: a dict with 'ab' at 300"),
        (BYTES, ["a b"], "'a b' on line 1 of `merges` without 'ab'"),
        ([*BYTES, "ab", "abc"], ["a b", "ab cd"], "'ab cd' on line 2 of `merges` without 'cd'"),
        ([*BYTES, "ab"], ["a b", "a b c"], "must be two pieces. Received: 'a b c' on line 2"),
        ([*BYTES, "ab"], ["a b", ""], "must be two pieces. Received: '' on line 2"),
        ([*BYTES, "ab"], [("a", "")], "must be two pieces"),
    ],
)
def test_unusable_arguments_are_refused(vocabulary, merges, message):
    with pytest.raises(ValueError, match=message):
        BytePairTokenizer(vocabulary, merges)


def test_unusable_files_are_refused(tmp_path):
    vocabulary, merges = write_files(tmp_path, "#what 0.2\n")
    with pytest.raises(ValueError, match=f"'#what 0.2' on line 1 of {merges} without '#what'"):
        BytePairTokenizer(vocabulary, merges)
    with pytest.raises(ValueError, match=f"must be a JSON file. Received: {merges}"):
        BytePairTokenizer(merges, merges)
    with pytest.raises(ValueError, match="The merges must be an existing file"):
        BytePairTokenizer(vocabulary, tmp_path / "none.txt")
