"""A corpus that names itself: every token is its own word, so rows tell where theirs came from."""

from types import SimpleNamespace

import numpy as np

from keras_bert.data.corpus import Corpus

PAD, CLS, SEP, MASK = 0, 2, 3, 4
SPECIALS = 5  # the first token of the corpus


def corpus_of(sentence_lengths):
    """[[tokens of each sentence] of each document] -> a Corpus with tokens 5, 6, 7, ..."""
    sentences = [length for document in sentence_lengths for length in document]
    counts = [len(document) for document in sentence_lengths]
    return Corpus(
        np.arange(SPECIALS, SPECIALS + sum(sentences), dtype="int32"),
        np.concatenate([[0], np.cumsum(sentences)]).astype("int64"),
        np.concatenate([[0], np.cumsum(counts)]).astype("int64"),
        characters=0,
    )


def tokenizer_of(corpus, pair_separators=1):
    size = SPECIALS + len(corpus.tokens)
    return SimpleNamespace(
        vocabulary=tuple(map(str, range(size))),
        vocabulary_size=size,
        is_special=np.arange(size) < SPECIALS,
        is_continuation=np.zeros(size, bool),
        pad_token_id=PAD,
        cls_token_id=CLS,
        sep_token_id=SEP,
        mask_token_id=MASK,
        pair_separators=pair_separators,
    )


def docstring_like_corpus():
    """400 documents of sentences of 1 to 40 tokens: many short ones, a few long."""
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.geometric(0.12, 400), 60)
    return corpus_of([np.minimum(rng.geometric(0.06, count), 40).tolist() for count in counts])


def owners(corpus):
    """The document of each token, (N,)."""
    sentences = np.repeat(np.arange(corpus.documents), np.diff(corpus.document_offsets))
    return np.repeat(sentences, np.diff(corpus.sentence_offsets))


def joined(batches):
    """Batches as one (x, y, sample_weight) of all rows."""
    batches = list(batches)
    return [
        {name: np.concatenate([batch[part][name] for batch in batches]) for name in batches[0][part]}
        for part in range(3)
    ]


def original_tokens(x, y, weights):
    """The rows as they were before masking; rows of weight 0 stay as they are."""
    ids = np.array(x["token_ids"])
    rows, predictions = np.nonzero(weights["masked_lm"])
    positions = x["mask_positions"][rows, predictions]
    ids[rows, positions] = y["masked_lm"][rows, predictions]
    return ids


def segments(row, separators=1):
    """Tokens of `a` and of `b`, checked for [CLS] a [SEP] b [SEP] padding."""
    row = row.tolist()
    *between, last = (index for index, token in enumerate(row) if token == SEP)
    assert between == list(range(between[0], between[0] + separators))
    assert row[0] == CLS
    assert not any(row[last + 1 :])
    return row[1 : between[0]], row[between[-1] + 1 : last]


def assert_equal_batches(some, others):
    for one, other in zip(some, others, strict=True):
        for part, part_other in zip(one, other, strict=True):
            assert list(part) == list(part_other)
            for name, value in part.items():
                np.testing.assert_array_equal(value, part_other[name])
