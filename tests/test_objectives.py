"""keras_bert.data.objectives and corpus: pairs, orders, labels and rows, by counting."""

import io
import itertools
import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from counting_corpus import (
    SEP,
    SPECIALS,
    corpus_of,
    docstring_like_corpus,
    original_tokens,
    owners,
    segments,
    tokenizer_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from keras_bert.data.corpus import build_corpus, find_chunks, pack_sentences
from keras_bert.data.objectives import OBJECTIVES, make_objective
from keras_bert.data.pretraining import PretrainingData
from keras_bert.text.bytepair import BytePairTokenizer
from keras_bert.text.sentence_piece import SentencePieceTokenizer
from keras_bert.text.vocabulary_training import train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer

LENGTH, PAIRS = 32, ("next_sentence", "sentence_order")
CORPUS = docstring_like_corpus()
DOCUMENTS = [
    'The "cat" sat on the mats. The dogs, however, were running. Nobody knew why!\n\nIt rained.',
    "Pretraining reads unlabelled text. A tokenizer cuts it into pieces. It's done in 1999.",
    "One sentence alone",
    "The mats were wet. The cats knew. Running dogs read nothing; cats don't run. That is all.",
]


def rows_of(data, epochs):
    """(original tokens (B, T), labels (B,) or None) of whole epochs, unshuffled."""
    count = len(data)
    numbers = tf.range(epochs * count, dtype=tf.int64)
    batch = data.examples(numbers // count, numbers % count)
    x, y, weights = ({name: value.numpy() for name, value in part.items()} for part in batch)
    return original_tokens(x, y, weights), y.get("sentence")


def make(objective, corpus=CORPUS, separators=1, **options):
    options = {"max_length": LENGTH, "max_predictions": 6, "seed": 3, **options}
    return PretrainingData(corpus, tokenizer_of(corpus, separators), objective, **options)


@pytest.mark.parametrize("separators", [1, 2])
def test_next_sentences_lie_where_their_label_says(separators):
    starts, owner = set(CORPUS.sentence_offsets.tolist()), owners(CORPUS)
    for row, label in zip(*rows_of(make("next_sentence", separators=separators), 3), strict=True):
        a, b = (np.array(segment) - SPECIALS for segment in segments(row, separators))
        for segment in (a, b):
            assert (np.diff(segment) == 1).all()
            assert len(segment) >= 1
            assert owner[segment[0]] == owner[segment[-1]]
        assert a[-1] + 1 in starts  # a ends, and b begins, with a sentence
        assert b[0] in starts
        if label:
            assert owner[a[0]] != owner[b[0]]
        else:
            assert a[-1] + 1 == b[0]


@pytest.mark.parametrize("separators", [1, 2])
def test_sentence_orders_are_what_their_label_says(separators):
    """And where a row is not full, its two segments are a whole chunk."""
    data = make("sentence_order", separators=separators, short_rate=0.0)
    rows, labels = rows_of(data, 3)
    room, starts = LENGTH - 2 - separators, set(CORPUS.sentence_offsets.tolist())
    chunks = CORPUS.sentence_offsets[find_chunks(CORPUS, room, min_sentences=2)[:, 1:]].tolist()
    whole = 0
    for row, label, (start, end) in zip(rows, labels, 3 * chunks, strict=True):
        a, b = (np.array(segment) - SPECIALS for segment in segments(row, separators))
        for segment in (a, b):
            assert (np.diff(segment) == 1).all()
            assert start <= segment[0] <= segment[-1] < end
        assert len(a) + len(b) == min(room, end - start)
        assert b[0] in starts
        assert a[-1] + 1 in starts | {end}
        if not label:
            assert a[-1] + 1 == b[0]
        else:
            assert b[-1] < a[0]
        if end - start <= room:
            whole += label
            assert sorted([*a, *b]) == list(range(start, end))
    assert whole > 200


@pytest.mark.parametrize(("objective", "length"), [("next_sentence", 32), ("sentence_order", 128)])
def test_labels_are_even_and_tell_nothing_of_length(objective, length):
    data = make(objective, max_length=length)
    rows, labels = rows_of(data, 10_000 // len(data))
    assert set(labels.tolist()) == {0, 1}
    assert stats.binomtest(int(labels.sum()), len(labels)).pvalue > 1e-4
    a, b = np.array([[len(s) for s in segments(row)] for row in rows]).T
    for statistic in (a, b, a + b, a - b):
        best = max(  # accuracy of the best threshold on a length
            max(np.mean((statistic > cut) == labels), np.mean((statistic <= cut) == labels))
            for cut in range(-length, length)
        )
        assert best < 0.56


@pytest.mark.parametrize("objective", PAIRS)
def test_splits_are_even(objective):
    """Documents of one chunk of five sentences; `a` is of one to four of them."""
    corpus = corpus_of([[3] * 5] * 300)
    rows, labels = rows_of(make(objective, corpus, short_rate=0.0), 8)
    sizes = np.array([[len(segment) // 3 for segment in segments(row)] for row in rows])
    for label in (0, 1):
        assert stats.chisquare(np.bincount(sizes[labels == label, 0])[1:]).pvalue > 1e-4
    if objective == "sentence_order":
        assert (sizes.sum(1) == 5).all()


def test_other_documents_are_drawn_evenly():
    rows, labels = rows_of(make("next_sentence"), 6)
    starts = np.array([segments(row)[1][0] for row in rows[labels == 1]]) - SPECIALS
    counts = np.bincount(owners(CORPUS)[starts], minlength=CORPUS.documents)
    usable = np.diff(CORPUS.document_offsets) >= 2
    assert not counts[~usable].any()
    assert stats.chisquare(counts[usable]).pvalue > 1e-4


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_share_of_the_rows_is_short(objective):
    long = corpus_of([[15] * 60] * 30)
    room = LENGTH - make_objective(objective, long, tokenizer_of(long), LENGTH).special_tokens
    full = room if objective in PAIRS else room // 15 * 15
    default = 0.1 if objective in PAIRS else 0.0
    for rate, expected in ((None, default), (0.0, 0.0), (1.0, 1.0)):
        data = make(objective, long, short_rate=rate)
        rows, _ = rows_of(data, 4000 // len(data) + 1)
        lengths = (rows >= SPECIALS).sum(1)
        # short lengths are uniform on 2..room, so some of them are full all the same
        share = expected * (full - 2) / (room - 1)
        assert abs((lengths < full).mean() - share) < 0.025
        if rate == 1:
            counts = np.bincount(lengths, minlength=full + 1)[2:full]
            assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("objective", PAIRS)
def test_every_chunk_comes_once_in_an_epoch(objective):
    chunks = find_chunks(CORPUS, LENGTH - 3, min_sentences=2)
    data = make(objective, short_rate=0.0)
    assert len(data) == len(chunks)
    seen = []
    for x, y, weights in data.training_batches(1).take(len(data)).as_numpy_iterator():
        a, _ = segments(original_tokens(x, y, weights)[0])
        seen.append(np.searchsorted(CORPUS.sentence_offsets[chunks[:, 1]], a[-1] - SPECIALS, "right"))
    assert sorted(seen) == list(range(1, len(data) + 1))


def full_rows(sentence_lengths, room):
    """The rows of full sentences, without special tokens around them, token by token."""
    rows, row, owner, tokens = [], [], None, itertools.count(SPECIALS)
    for document, lengths in enumerate(sentence_lengths):
        for length in lengths:
            sentence = list(itertools.islice(tokens, length))
            for piece in (sentence[i : i + room] for i in range(0, length, room)):
                border = [SEP] if row and owner != document else []
                if len(row) + len(border) + len(piece) > room:
                    rows.append(row)
                    row, border = [], []
                row, owner = row + border + piece, document
    return [*rows, row]


LENGTHS = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=6), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(2, 20), st.sampled_from([1, 2]))
def test_full_sentences_match_a_plain_loop(sentence_lengths, room, separators):
    corpus = corpus_of(sentence_lengths)
    tokenizer = tokenizer_of(corpus, separators)
    objective = make_objective("full_sentences", corpus, tokenizer, room + 2)
    numbers = tf.range(len(objective), dtype=tf.int64)
    (starts, lengths), b, labels = objective.segments(numbers, numbers)
    tokens = objective.tokens.numpy()
    rows = [
        tokens[start : start + length].tolist()
        for start, length in zip(starts.numpy(), lengths.numpy(), strict=True)
    ]
    assert b is labels is None
    assert rows == full_rows(sentence_lengths, room)


def test_full_sentences_have_each_token_once_in_order():
    rows, labels = rows_of(make("full_sentences"), 1)
    assert labels is None
    owner, seen, borders = owners(CORPUS), [], 0
    for row in rows:
        (start, *inner, end) = row[row != 0]
        assert (start, end) == (2, SEP)
        content = [token for token in inner if token != SEP]
        changes = [owner[a - SPECIALS] != owner[b - SPECIALS] for a, b in itertools.pairwise(content)]
        expected = content[:1]
        for changed, token in zip(changes, content[1:], strict=True):
            expected += [SEP, token] if changed else [token]
        assert inner == expected
        borders += sum(changes)
        seen += content
    assert seen == list(range(SPECIALS, SPECIALS + len(CORPUS.tokens)))
    assert borders > 100


def test_sentences_packed_by_hand():
    starts, ends = np.array([0, 4, 5, 10]), np.array([4, 5, 9, 18])
    assert pack_sentences(starts, ends, 6).tolist() == [[0, 5], [5, 9], [10, 16], [16, 18]]


def test_chunks_by_hand():
    corpus = corpus_of([[4, 4, 4, 1], [9], [20, 1, 1], [2, 2]])
    chunks = find_chunks(corpus, 8, min_sentences=2).tolist()
    assert chunks == [[0, 0, 2], [0, 2, 4], [2, 5, 8], [3, 8, 10]]
    assert find_chunks(corpus, 8, min_sentences=1).tolist()[2:4] == [[1, 4, 5], [2, 5, 6]]


def test_documents_too_short_are_counted():
    short = int((np.diff(CORPUS.document_offsets) < 2).sum())
    left_out = {name: make(name).documents_left_out for name in OBJECTIVES}
    assert left_out == {"next_sentence": short, "sentence_order": short, "full_sentences": 0}
    assert short > 0


def wordpiece():
    return WordPieceTokenizer(train_vocabulary(DOCUMENTS, 110, min_frequency=1))


def sentence_piece():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(DOCUMENTS),
        model_writer=model,
        vocab_size=75,
        hard_vocab_limit=False,
        control_symbols="[CLS],[SEP],[MASK]",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    return SentencePieceTokenizer(model.getvalue())


def byte_pair():
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=310,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(DOCUMENTS, trainer)
    model = json.loads(theirs.to_str())["model"]
    return BytePairTokenizer(model["vocab"], [tuple(pair) for pair in model["merges"]])


TOKENIZERS = {"wordpiece": wordpiece, "sentence_piece": sentence_piece, "byte_pair": byte_pair}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def test_tokens_are_those_of_running_text(tokenizer):
    """Sentences are cut apart and tokenized one by one, and yet."""
    corpus = build_corpus(DOCUMENTS, tokenizer)
    assert corpus.sentences == 12
    texts = [document.replace("\n\n", " ") for document in DOCUMENTS]
    np.testing.assert_array_equal(corpus.tokens, tokenizer.tokenize(texts).values)


@pytest.mark.parametrize("masking", ["whole_word", "ngram"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_rows_have_the_form_of_their_tokenizer(tokenizer, objective, masking):
    """Words stay whole; words are those of `tokenize_with_offsets`, a sentence at a time."""
    corpus = build_corpus(DOCUMENTS, tokenizer)
    words = tokenizer.tokenize_with_offsets([d.replace("\n\n", " ") for d in DOCUMENTS])
    ids, numbers = (words[name].to_list() for name in ("token_ids", "word_ids"))
    data = PretrainingData(
        corpus, tokenizer, objective, 40, masking_rate=0.3, masking=masking, type_vocab_size=1
    )
    epochs = tf.range(60 * len(data), dtype=tf.int64)
    batch = data.examples(epochs // len(data), epochs % len(data))
    x, y, weights = ({name: value.numpy() for name, value in part.items()} for part in batch)
    separators = tokenizer.pair_separators
    pairs = 0
    for row, positions, real in zip(
        original_tokens(x, y, weights), x["mask_positions"], weights["masked_lm"] > 0, strict=True
    ):
        row = row[: np.flatnonzero(row != tokenizer.pad_token_id)[-1] + 1]
        assert row[0] == tokenizer.cls_token_id
        at = np.flatnonzero(row == tokenizer.sep_token_id).tolist()
        assert at[-1] == len(row) - 1
        if objective in PAIRS:
            assert at[:-1] == list(range(at[0], at[0] + separators))
        chosen = set(positions[real].tolist())
        for begin, end in itertools.pairwise([0, *at]):
            text = row[begin + 1 : end].tolist()
            if not text:
                continue
            places = [
                of_document[i : i + len(text)]
                for tokens, of_document in zip(ids, numbers, strict=True)
                for i in range(len(tokens))
                if tokens[i : i + len(text)] == text
            ]
            for left, right in itertools.pairwise(range(len(text))):
                # by itself a piece of punctuation does not tell that it belongs to a word
                is_letters = tokenizer.vocabulary[text[right]].lstrip("#").isalpha()
                if is_letters and all(words[left] == words[right] for words in places):
                    together = {begin + 1 + left, begin + 1 + right} & chosen
                    assert len(together) in (0, 2)
                    pairs += len(together)
    assert pairs > 200
    assert not x["segment_ids"].any()


@pytest.mark.parametrize(
    ("objective", "documents", "words"),
    [
        ("next_sentence", [[5, 5, 5]], "at least two documents.*Received: 1 such of 1 documents"),
        ("next_sentence", [[5, 5], [5], [5]], "Received: 1 such of 3 documents"),
        ("sentence_order", [[5], [5]], "a document of two sentences.*Received: 2 documents"),
    ],
)
def test_too_small_a_corpus_is_refused(objective, documents, words):
    corpus = corpus_of(documents)
    with pytest.raises(ValueError, match=words):
        make_objective(objective, corpus, tokenizer_of(corpus), LENGTH)


def test_one_document_suffices_for_orders_and_one_sentence_for_rows():
    corpus = corpus_of([[5, 5]])
    assert len(make("sentence_order", corpus)) == 1
    corpus = corpus_of([[1]])
    rows, _ = rows_of(make("full_sentences", corpus), 1)
    assert rows.tolist() == [[2, 5, 3] + [0] * (LENGTH - 3)]


@pytest.mark.parametrize(
    ("objective", "length", "separators", "special"),
    [("next_sentence", 4, 1, 3), ("sentence_order", 5, 2, 4), ("full_sentences", 3, 2, 2)],
)
def test_too_short_rows_are_refused(objective, length, separators, special):
    tokenizer = tokenizer_of(CORPUS, separators)
    with pytest.raises(ValueError, match=f"beside {special} special ones. Received: {length}"):
        make_objective(objective, CORPUS, tokenizer, length)
    make_objective(objective, CORPUS, tokenizer, length + 1)


def test_an_unknown_objective_is_refused():
    with pytest.raises(ValueError, match="'next_sentence' or .* or 'full_sentences'. Received: 'nsp'"):
        make_objective("nsp", CORPUS, tokenizer_of(CORPUS), LENGTH)
