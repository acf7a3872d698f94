"""WordPiece vocabularies: read, write, train on a stream of texts, extend by a domain's words."""

import itertools
from collections import Counter

import numpy as np
import tensorflow as tf

from keras_bert.text import normalization
from keras_bert.text.wordpiece import WordPieceTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Planes 15 and 16 are for private use: one character for each initial and each inner character.
_INITIAL, _INNER, _PLANE = 0xF0000, 0x100000, 0xFFFE


def train_vocabulary(
    texts,
    size,
    lowercase=True,
    strip_accents=None,
    min_frequency=2,
    max_characters=1000,
    reserved=(),
):
    """Trains a vocabulary for `WordPieceTokenizer` with the same `lowercase` and `strip_accents`.

    Longer pieces are found by byte-pair merges of the most frequent neighbours inside words. The
    result depends on the texts alone, not on threads, hash seeds or the order of the texts.

    Its order: [PAD] [UNK] [CLS] [SEP] [MASK]; `reserved`; single characters, `c` and `##c`, by code
    point (punctuation and CJK ideographs are words of their own and need no `##c`); longer pieces,
    the ones that the texts use most first.

    Args:
        texts: Iterable of strings, read once, so it may be a generator over any amount of text.
        size: Number of pieces. There are fewer only when no more neighbours occur
            `min_frequency` times.
        lowercase: Whether text is lower-cased.
        strip_accents: Whether accents are dropped; None follows `lowercase`.
        min_frequency: How often two neighbours must occur to become one piece.
        max_characters: How many different characters are kept, most frequent first; a word with any
            other will be [UNK].
        reserved: Pieces to put behind the special tokens, such as "[unused1]".

    Returns:
        The list of pieces, as `write_vocabulary` and `WordPieceTokenizer` take it.
    """
    _check_texts("texts", texts)
    if not 1 <= max_characters <= _PLANE:
        raise ValueError(
            f"`max_characters` must be between 1 and {_PLANE}. Received: {max_characters}."
        )
    fixed = [*SPECIAL_TOKENS, *reserved]
    if len(set(fixed)) < len(fixed):
        raise ValueError(
            "`reserved` must hold different pieces, none of them a special token. "
            f"Received: {list(reserved)}."
        )
    strip_accents = lowercase if strip_accents is None else strip_accents
    words = _count_words(texts, lowercase, strip_accents)
    if not words:
        raise ValueError("`texts` must hold at least one word. Received: none.")

    characters = Counter()
    for word, count in words.items():
        for c in word:
            characters[c] += count
    kept = sorted(sorted(characters, key=lambda c: (-characters[c], c))[:max_characters])
    known = set(kept)
    words = {word: count for word, count in words.items() if known.issuperset(word)}
    fixed += [form for form in _forms(kept) if form not in reserved]
    if size < len(fixed):
        raise ValueError(
            f"`size` must be at least {len(fixed)}: {len(SPECIAL_TOKENS)} special tokens, "
            f"{len(reserved)} reserved pieces and {len(kept)} characters. Received: {size}."
        )
    longer = _merge(words, kept, size - len(fixed), min_frequency, exclude=reserved)
    uses = _count_uses(words, fixed + longer)
    return fixed + sorted(longer, key=lambda piece: (-uses[piece], piece))


def extend_vocabulary(tokenizer, documents, new_entries, min_frequency=2):
    """Adds a domain's words to a vocabulary that cuts them into pieces, for continued pretraining.

    Chosen are the words that save most pieces: how often a word occurs, times its pieces less one. The
    result depends on the documents alone, not on threads, hash seeds or their order.

    All new entries are whole words. A new "##" piece could be cut out of any word, and change how the
    model reads words that it knows; a new word changes only those that begin with it. It is left out
    when that costs more pieces than it saves, or makes one of the documents' words unknown. Words that
    are [UNK] stay so: there is no row of a model that theirs could start from.

    Args:
        tokenizer: A WordPieceTokenizer.
        documents: Iterable of strings, read once, so it may be a generator over any amount of text.
        new_entries: Number of words to add. There are fewer only when no more are cut into pieces.
        min_frequency: How often a word must occur to be added.

    Returns:
        The list of pieces: the tokenizer's, which keep their ids, then the new ones.

    Example:

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "he", "##pa", "##titis"]
    >>> old = WordPieceTokenizer(pieces)
    >>> longer = extend_vocabulary(old, ["Hepatitis A", "HEPATITIS B"], new_entries=1)
    >>> longer[len(pieces):]
    ['hepatitis']
    >>> new = WordPieceTokenizer.from_config({**old.get_config(), "vocabulary": longer})
    """
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise ValueError(
            "The tokenizer must be a WordPieceTokenizer: the pieces of others come from merges or from "
            f"a model, which no list extends. Received: a {type(tokenizer).__name__}."
        )
    _check_texts("documents", documents)
    if new_entries < 1:
        raise ValueError(f"`new_entries` must be at least 1. Received: {new_entries}.")
    vocabulary = list(tokenizer.vocabulary)
    count = _count_split_words(tokenizer, documents)
    words, counts = list(count), np.array(list(count.values()), np.int64)
    _, pieces = _cut(tokenizer, vocabulary, words)
    savings = dict(zip(words, (counts * (pieces - 1)).tolist(), strict=True))
    candidates = sorted(savings.keys() - set(vocabulary), key=lambda word: (-savings[word], word))
    candidates = [word for word in candidates if count[word] >= min_frequency]
    while chosen := candidates[:new_entries]:
        first, new_pieces = _cut(tokenizer, vocabulary + chosen, words)
        saved = np.zeros(len(vocabulary) + len(chosen), np.int64)
        np.add.at(saved, first, counts * (pieces - new_pieces))
        harmful = {word for word, n in zip(chosen, saved[len(vocabulary) :], strict=True) if n <= 0}
        for i in np.flatnonzero((first == tokenizer.unk_token_id) & (pieces > 1)):
            # pieces are matched longest first: by this one its rest was left without a match
            harmful.add(max((word for word in chosen if words[i].startswith(word)), key=len))
        if not harmful:
            break
        candidates = [word for word in candidates if word not in harmful]
    return vocabulary + chosen


def _check_texts(name, texts):
    if isinstance(texts, str | bytes):
        raise ValueError(f"`{name}` must be an iterable of strings. Received: {texts[:40]!r}.")


def _batches(items, length):
    items = iter(items)
    while batch := list(itertools.islice(items, length)):
        yield batch


def _count_words(texts, lowercase, strip_accents):
    """Counts the words that a tokenizer would cut into pieces."""
    counts = Counter()
    for batch in _batches(texts, 512):
        text = normalization.drop_invalid_bytes(tf.constant(batch, tf.string))
        text = normalization.normalize(text, lowercase, strip_accents)
        words, _, times = tf.unique_with_counts(normalization.split_words(text).values, tf.int64)
        counts.update(dict(zip(words.numpy(), times.numpy().tolist(), strict=True)))
    words = ((word.decode(), count) for word, count in counts.items())
    return {word: count for word, count in words if len(word) <= normalization.MAX_WORD_LENGTH}


def _count_split_words(tokenizer, texts):
    """Counts the words, as the tokenizer normalises them, that it cuts into two pieces or more."""
    counts = Counter()
    for batch in _batches(texts, 512):
        ids = tokenizer.tokenize(tf.constant(batch, tf.string)).values
        starts = tf.where(~tokenizer.is_continuation[ids.numpy()])[:, 0]
        pieces = tf.RaggedTensor.from_row_starts(ids, starts)
        split = tf.ragged.boolean_mask(pieces, pieces.row_lengths() > 1)
        words, _, times = tf.unique_with_counts(tokenizer.detokenize(split), tf.int64)
        counts.update(dict(zip(words.numpy(), times.numpy().tolist(), strict=True)))
    return {word.decode(): count for word, count in counts.items()}


def _cut(tokenizer, vocabulary, words):
    """First piece, and number of pieces, of normalised words, cut with another vocabulary.

    Shapes (W words):
        returns  (W,) int32, (W,) int64
    """
    plain = {"lowercase": False, "strip_accents": False, "added_tokens": ()}
    cutter = tokenizer.from_config({**tokenizer.get_config(), **plain, "vocabulary": vocabulary})
    first, pieces = np.zeros(0, np.int32), np.zeros(0, np.int64)
    for batch in _batches(words, 65536):
        ids = cutter.tokenize(batch)
        first = np.append(first, tf.gather(ids.values, ids.row_starts()))
        pieces = np.append(pieces, ids.row_lengths())
    return first, pieces


def _forms(characters):
    """`c`, and `##c` unless the character is always a word of its own."""
    spaced = normalization.space_out(tf.constant(characters)).numpy()
    for c, spaced_c in zip(characters, spaced, strict=True):
        yield c
        if spaced_c.decode() == c:
            yield f"##{c}"


def _merge(words, characters, number, min_frequency, exclude):
    """Learns `number` pieces of two or more characters, most frequent merge first.

    The library's WordPiece trainer numbers its "##" characters in the order of a hash table, so
    ties fall differently in each process. Its BPE trainer sorts the alphabet; a word is given to it
    with a first character from one private plane and inner characters from another.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    initial = {ord(c): _INITIAL + i for i, c in enumerate(characters)}
    inner = {ord(c): _INNER + i for i, c in enumerate(characters)}
    coded = {word[0].translate(initial) + word[1:].translate(inner): n for word, n in words.items()}

    def stream():
        for word, count in coded.items():
            for start in range(0, count, 4096):
                yield f"{word} " * min(4096, count - start)

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    symbols = set().union(*coded)
    trainer = trainers.BpeTrainer(
        # `exclude` may hold pieces that are learned: as many more make up for them
        vocab_size=len(symbols) + number + len(exclude),
        min_frequency=min_frequency,
        show_progress=False,
    )
    bpe.train_from_iterator(stream(), trainer)

    by_id = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
    pieces = (
        ("##" if ord(coded_piece[0]) >= _INNER else "")
        + "".join(characters[ord(c) & 0xFFFF] for c in coded_piece)
        for coded_piece, _ in by_id
        if len(coded_piece) > 1
    )
    return list(itertools.islice((piece for piece in pieces if piece not in exclude), number))


def _count_uses(words, vocabulary):
    """Counts how often each piece occurs when the words are cut with `vocabulary`."""
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=False)  # the words are folded already
    uses = np.zeros(len(vocabulary))
    for batch in _batches(words.items(), 65536):
        texts, counts = zip(*batch, strict=True)
        ids = tokenizer.tokenize(texts)
        weights = np.repeat(np.array(counts, float), ids.row_lengths())
        uses += np.bincount(ids.values, weights, minlength=len(vocabulary))
    return dict(zip(vocabulary, uses, strict=True))
