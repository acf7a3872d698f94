"""keras_bert.text.vocabulary and vocabulary_training: files, worked trainings and extensions."""

import itertools
import os
import subprocess
import sys
from collections import Counter

import pytest
import tensorflow as tf
from bert_tokenization import pieces, words

from keras_bert.text.bytepair import BytePairTokenizer, byte_alphabet
from keras_bert.text.vocabulary import read_vocabulary, write_vocabulary
from keras_bert.text.vocabulary_training import SPECIAL_TOKENS, extend_vocabulary, train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer

TEXTS = [
    "The unaffable café, the unaffable naïve Straße; the unknown affairs of the fairies.",
    "In 2024 fairness (and affinity) was unfair: don't run, running runners ran unaware…",
    "中文 text 中国 ½ Łódź, ŁÓDŹ, łódź; the ΑΣ of the Σ, \u0301accents\u0327 e\u0301 é",
    "low lower lowest new newer newest wide wider widest " * 3,
] * 3


@pytest.mark.parametrize("ending", ["\n", "\r\n", " \n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_lines_are_read_as_the_original_does(ending, last, tmp_path):
    path = tmp_path / "vocab.txt"
    lines = ["[PAD]", "\u2028", "##é", "a\u0085b", "中"]
    path.write_bytes((ending.join(lines) + last).encode())
    assert read_vocabulary(path) == ["[PAD]", "", "##é", "a\u0085b", "中"]


@pytest.mark.parametrize("root", ["ram://vocabulary", None])
def test_writing_replaces_the_file_and_reads_back(root, tmp_path):
    root = root or str(tmp_path)
    for vocabulary in (["a", "##b", "", "é", ""], ["c"], []):
        write_vocabulary(f"{root}/vocab.txt", vocabulary)
        assert read_vocabulary(f"{root}/vocab.txt") == vocabulary
        assert tf.io.gfile.listdir(root) == ["vocab.txt"]


@pytest.mark.parametrize("word", ["a\n", " a", "a\nb", "\u3000"])
def test_pieces_that_would_not_read_back_are_not_written(word, tmp_path):
    with pytest.raises(ValueError, match="one line.*Received: .* as piece 2"):
        write_vocabulary(tmp_path / "vocab.txt", ["a", word])
    assert not list(tmp_path.iterdir())


def test_unreadable_files_are_refused(tmp_path):
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(ValueError, match=f"existing file. Received: {path}"):
            read_vocabulary(path)
    path = tmp_path / "latin1.txt"
    path.write_bytes("[PAD]\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"UTF-8. Received: {path} with b'\\xe9' at byte 9"):
        read_vocabulary(path)


def test_training_by_hand():
    """ "ab" 5 times, "cab" 3 times, "b" twice, "!" once.

    Neighbours: a##b 5, c##a 3, ##a##b 3. First "ab"; then of the two with 3 either "ca" or "##ab",
    and with it "cab". Cut greedily, "cab" is one piece and the one between is never used.
    """
    texts = ["Ab ab ab", "ab AB cab! b", "cab\tcab b"]
    vocabulary = train_vocabulary(texts, 16, reserved=["[unused1]", "b"])
    characters = ["!", "a", "##a", "##b", "c", "##c"]
    assert vocabulary[:13] == [*SPECIAL_TOKENS, "[unused1]", "b", *characters]
    assert vocabulary[13:15] == ["ab", "cab"]
    assert vocabulary[15:] in (["##ab"], ["ca"])
    # nothing else is there to merge
    assert train_vocabulary(texts, 99, reserved=["[unused1]", "b"]) == vocabulary
    assert train_vocabulary(texts, 99, min_frequency=4)[-1] == "ab"
    # a reserved piece that would be learned takes its own place only
    again = train_vocabulary(texts, 15, reserved=["cab"])
    assert len(again) == len(set(again)) == 15
    assert again.index("cab") == 5


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_training_follows_the_tokenizer(lowercase, strip_accents):
    size = 160
    vocabulary = train_vocabulary(TEXTS, size, lowercase, strip_accents, reserved=["[unused1]"])
    assert len(vocabulary) == len(set(vocabulary)) == size
    assert vocabulary[:6] == [*SPECIAL_TOKENS, "[unused1]"]

    count = Counter(w for text in TEXTS for w in words(text, lowercase, strip_accents))
    alone = set("中文国,;.:()'…")
    single = sorted(set("".join(count)))
    expected = [form for c in single for form in ((c,) if c in alone else (c, f"##{c}"))]
    longer = vocabulary[6 + len(expected) :]
    assert vocabulary[6 : 6 + len(expected)] == expected

    uses = Counter()
    for word, n in count.items():
        for piece in pieces(word, set(vocabulary)):
            uses[piece] += n
    assert "[UNK]" not in uses
    assert longer == sorted(longer, key=lambda piece: (-uses[piece], piece))
    assert uses[longer[0]] > uses[longer[-1]]


def test_rare_characters_are_left_out():
    vocabulary = train_vocabulary(["aab aac abd", "aa za"], 20, max_characters=2, min_frequency=1)
    assert vocabulary == [*SPECIAL_TOKENS, "a", "##a", "b", "##b", "aa", "aab"]
    assert train_vocabulary(["ab cb"], 20, max_characters=1) == [*SPECIAL_TOKENS, "b", "##b"]


def test_words_over_the_limit_are_not_learned_from():
    vocabulary = train_vocabulary(["ab " + "cd" * 101] * 9, 99)
    assert vocabulary == [*SPECIAL_TOKENS, "a", "##a", "b", "##b", "ab"]


def test_order_of_texts_and_laziness_change_nothing():
    expected = train_vocabulary(TEXTS, 150)
    assert train_vocabulary((text for text in reversed(TEXTS)), 150) == expected
    assert train_vocabulary([" ".join(TEXTS)], 150) == expected


# every pair of neighbours is as frequent as any other: each merge is a tie
TIES = ["".join(letters) for letters in itertools.product("abcdefgж", repeat=3)] * 2


def test_every_process_trains_the_same_bytes(tmp_path):
    code = (
        "import sys; from test_vocabulary import *;"
        "vocabulary = train_vocabulary(TIES, 80);"
        "write_vocabulary(sys.argv[1], vocabulary);"
        "longer = extend_vocabulary(WordPieceTokenizer(vocabulary), TIES, 40);"
        "write_vocabulary(sys.argv[1] + '.longer', longer)"
    )
    runs = []
    for seed, threads in (("1", "1"), ("2", "3")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        runs.append(subprocess.Popen(command, env=env))
    assert [run.wait() for run in runs] == [0, 0]
    for name, size in (("", 80), (".longer", 120)):
        first, second = ((tmp_path / f"{seed}{name}").read_bytes() for seed in "12")
        assert first == second
        assert first.count(b"\n") == size
    assert read_vocabulary(tmp_path / "1") == train_vocabulary(TIES, 80)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "at least one word. Received: none"),
        (iter(["", " \t\n", "\u00ad"]), {}, "at least one word. Received: none"),
        ("one string", {}, "iterable of strings. Received: 'one string'"),
        (["ab!"], {"size": 9}, r"at least 10: 5 special.* 0 reserved.* 3 characters. Received: 9"),
        (["ab"], {"max_characters": 0}, "between 1 and 65534. Received: 0"),
        (["ab"], {"reserved": ["[MASK]"]}, r"none of them a special token. Received: .*MASK"),
        (["ab"], {"reserved": ["x", "x"]}, "must hold different pieces"),
    ],
)
def test_impossible_trainings_are_refused(texts, options, message):
    with pytest.raises(ValueError, match=message):
        train_vocabulary(texts, **{"size": 100, **options})


def test_extension_by_hand():
    """ "hepatitis" saves 2 of 3 pieces three times, "cat" 1 of 2 four times, "hats" 1 of 2 twice."""
    old = [*SPECIAL_TOKENS, "he", "##pa", "##titis", "c", "##at", "h", "##ats", "the", ",", "##x"]
    tokenizer = WordPieceTokenizer(old)
    documents = ["The hepatitis, the Cat", "cat hátš hats,Hepatitis cat", "hepatitis the the cat cx"]
    assert extend_vocabulary(tokenizer, documents, 2) == [*old, "hepatitis", "cat"]
    assert extend_vocabulary(tokenizer, iter(documents), 9) == [*old, "hepatitis", "cat", "hats"]
    once = extend_vocabulary(tokenizer, documents, 9, min_frequency=1)
    assert once == [*old, "hepatitis", "cat", "hats", "cx"]
    assert extend_vocabulary(tokenizer, documents, 9, min_frequency=4) == [*old, "cat"]
    assert extend_vocabulary(tokenizer, [], 9) == old


def test_words_that_make_others_unknown_are_left_out():
    """With "ab", longest first, "abc" would be "ab" and a rest without a piece."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "a", "##b", "##bc", "##bcd"])
    old = list(tokenizer.vocabulary)
    documents = ["ab " * 9, "abc abc"]
    assert extend_vocabulary(tokenizer, documents, 1) == [*old, "abc"]
    assert extend_vocabulary(tokenizer, documents, 2) == [*old, "ab", "abc"]
    # and neither of them where "abcd" would be left with its "##d"
    assert extend_vocabulary(tokenizer, [*documents, "abcd"], 2) == old


def test_words_that_cost_more_than_they_save_are_left_out():
    """ "ab" saves one piece twice, and costs one in each word that begins with it."""
    old = [*SPECIAL_TOKENS, "a", "##b", "##bcd", "##bce", "##c", "##d", "##e"]
    documents = ["ab ab", "abcd"]
    assert extend_vocabulary(WordPieceTokenizer(old), documents, 9) == [*old, "ab"]
    documents = ["ab ab", "abcd", "abce"]
    assert extend_vocabulary(WordPieceTokenizer(old), documents, 9) == old


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_extension_takes_the_words_that_save_most(lowercase, strip_accents):
    old = train_vocabulary(TEXTS, 130, lowercase, strip_accents)
    tokenizer = WordPieceTokenizer(old, lowercase, strip_accents)
    count = Counter(w for text in TEXTS for w in words(text, lowercase, strip_accents))
    savings = {word: n * (len(pieces(word, set(old))) - 1) for word, n in count.items()}
    ranked = sorted((word for word in savings if savings[word]), key=lambda w: (-savings[w], w))
    longer = extend_vocabulary(tokenizer, TEXTS, 10)
    assert longer == old + ranked[:10]
    assert longer == extend_vocabulary(tokenizer, [" ".join(reversed(TEXTS))], 10)
    new = WordPieceTokenizer(longer, lowercase, strip_accents)
    before, after = (int(t.tokenize(TEXTS).row_lengths().numpy().sum()) for t in (tokenizer, new))
    changed = {w: n for w, n in count.items() if pieces(w, set(longer)) != pieces(w, set(old))}
    assert before - after == sum(
        n * (len(pieces(w, set(old))) - len(pieces(w, set(longer)))) for w, n in changed.items()
    )
    assert before - after >= sum(savings[word] for word in ranked[:10]) // 2 > 0


def test_added_tokens_keep_their_ids_and_are_no_words():
    old = [*SPECIAL_TOKENS, "a", "##b", "##c", "[", "]"]
    tokenizer = WordPieceTokenizer(old, added_tokens=["[ab]", "ac"])
    longer = extend_vocabulary(tokenizer, ["[ab] [ab] ac ac AC AC abc abc"], 9)
    assert longer == [*old, "[ab]", "ac", "abc"]
    new = WordPieceTokenizer.from_config({**tokenizer.get_config(), "vocabulary": longer})
    assert new.tokenize("ac [ab] abc").numpy().tolist() == [11, 10, 12]
    assert tokenizer.tokenize("ac [ab]").numpy().tolist() == [11, 10]


@pytest.mark.parametrize(
    ("documents", "new_entries", "message"),
    [
        ("one string", 5, "`documents` must be an iterable of strings. Received: 'one string'"),
        (["ab"], 0, "`new_entries` must be at least 1. Received: 0"),
    ],
)
def test_impossible_extensions_are_refused(documents, new_entries, message):
    with pytest.raises(ValueError, match=message):
        extend_vocabulary(WordPieceTokenizer([*SPECIAL_TOKENS, "a"]), documents, new_entries)


def test_other_tokenizers_are_refused_by_name():
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = BytePairTokenizer([*tokens, *byte_alphabet()], [])
    with pytest.raises(ValueError, match="be a WordPieceTokenizer.* Received: a BytePairTokenizer"):
        extend_vocabulary(tokenizer, ["a"], 1)
