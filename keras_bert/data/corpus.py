"""A corpus as three arrays, and the chunks that training examples are cut from."""

import dataclasses
import functools
import itertools

import numpy as np
import tensorflow as tf

from keras_bert.text.offsets import row_ids
from keras_bert.text.sentences import split_sentences

_DOCUMENTS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Token ids of all sentences of all documents, in order.

    Shapes (N tokens, S sentences, D documents):
        tokens            (N,)      int32
        sentence_offsets  (S + 1,)  int64, sentence s is tokens[offsets[s] : offsets[s + 1]]
        document_offsets  (D + 1,)  int64, document d is sentences offsets[d] to offsets[d + 1]
        characters        int, of the text that the tokens came from
    """

    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    characters: int

    @property
    def documents(self):
        return len(self.document_offsets) - 1

    @property
    def sentences(self):
        return len(self.sentence_offsets) - 1


def build_corpus(documents, tokenizer, split=split_sentences):
    """Splits documents into sentences and those into tokens, in the graph.

    Sentences and documents without a token are dropped. A sentence keeps a space in front, except at
    the beginning of its document: to byte-level BPE, the tokens are those of running text then.

    Args:
        documents: Iterable of strings.
        tokenizer: A tokenizer of `keras_bert.text`.
        split: Graph function (B,) strings -> (B, sentences) ragged strings.
    """
    tokenize = _tokenize_documents(tokenizer, split)
    tokens, sentence_lengths, document_lengths, characters = [], [], [], 0
    documents = iter(documents)
    while batch := list(itertools.islice(documents, _DOCUMENTS_AT_ONCE)):
        ids, lengths, counts, size = (x.numpy() for x in tokenize(tf.constant(batch)))
        owner = np.repeat(np.arange(len(batch)), counts)
        kept = np.bincount(owner[lengths > 0], minlength=len(batch))
        tokens.append(ids)
        sentence_lengths.append(lengths[lengths > 0])
        document_lengths.append(kept[kept > 0])
        characters += int(size)
    if not document_lengths or not sum(map(len, tokens)):
        raise ValueError(
            "The corpus must hold a document with text. Received: nothing that gives a token."
        )
    return Corpus(
        np.concatenate(tokens), _offsets(sentence_lengths), _offsets(document_lengths), characters
    )


@functools.lru_cache(maxsize=4)  # a function traced for each block of documents would never be freed
def _tokenize_documents(tokenizer, split):
    """Graph function: documents to tokens, tokens of each sentence, sentences of each document."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(texts):
        sentences = split(texts)
        starts = sentences.row_starts()
        owners = row_ids(sentences)
        is_first = tf.range(tf.size(sentences.flat_values, starts.dtype)) == tf.gather(starts, owners)
        tokens = tokenizer.tokenize(tf.where(is_first, "", " ") + sentences.flat_values)
        characters = tf.reduce_sum(tf.strings.length(sentences.flat_values, unit="UTF8_CHAR"))
        return tokens.flat_values, tokens.row_lengths(), sentences.row_lengths(), characters

    return tokenize


def _offsets(lengths):
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype("int64")


def find_chunks(corpus, max_tokens, min_sentences):
    """Cuts each document into runs of whole sentences that fill `max_tokens`.

    Greedy: a chunk ends with the sentence that brings it to `max_tokens`, but never before it has
    `min_sentences`. Too few sentences left at a document's end join the chunk before them. Nothing is
    random, so the number of examples is known at once.

    Returns:
        (C, 3) int64 of (document, first sentence, sentence behind the last); documents of fewer than
        `min_sentences` have none.
    """
    chunks = []
    lengths = np.diff(corpus.sentence_offsets).tolist()
    bounds = corpus.document_offsets.tolist()
    for document, (start, stop) in enumerate(itertools.pairwise(bounds)):
        if stop - start < min_sentences:
            continue
        first, tokens = start, 0
        for sentence in range(start, stop):
            tokens += lengths[sentence]
            if tokens >= max_tokens and sentence + 1 - first >= min_sentences:
                chunks.append((document, first, sentence + 1))
                first, tokens = sentence + 1, 0
        if stop - first >= min_sentences:
            chunks.append((document, first, stop))
        elif first < stop:
            document, first, _ = chunks.pop()
            chunks.append((document, first, stop))
    return np.array(chunks, "int64").reshape(-1, 3)


def pack_sentences(starts, ends, room):
    """Packs sentences that follow each other into rows of at most `room` tokens.

    Greedy: a row ends before the sentence that would not fit. Sentences longer than `room` are cut into
    several. With room = 6, of sentences at 0 to 4, 4 to 5, 5 to 9 and 10 to 18 (something that is no
    sentence lies before the last):

        [0, 5], [5, 9], [10, 16], [16, 18]

    Args:
        starts, ends: (S,) int arrays, where each sentence begins in an array of tokens, and ends.
        room: Most tokens from the start of a row's first sentence to the end of its last.

    Returns:
        (C, 2) int64 of (start, end) of each row.
    """
    pieces = -(-(ends - starts) // room)
    owner = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = starts[owner] + number * room
    ends = np.minimum(starts + room, ends[owner])
    rows, first = [], 0
    while first < len(starts):
        behind = np.searchsorted(ends, starts[first] + room, side="right")
        rows.append((starts[first], ends[behind - 1]))
        first = behind
    return np.array(rows, "int64")
