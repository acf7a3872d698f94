"""One or two texts in a row, `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, and how to cut them to fit.

All of it is arithmetic on row lengths: no loop over rows and no op of tf-text, so it works eagerly, in
`tf.function`, in `tf.data`, in a SavedModel, and with XLA wherever shapes are static.
"""

import tensorflow as tf

TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")
PADDINGS = ("max_length", "longest", "do_not_pad")
# what a field holds at special tokens and padding; `token_ids` has ids for these
OUTSIDE = {"char_starts": 0, "char_ends": 0, "word_ids": -1}


def longest_first(a_lengths, b_lengths, limit):
    """How many tokens of each text remain when the longer one gives up a token at a time.

    The loop of google-research/bert (`truncate_seq_pair`), in closed form; on a tie `b` gives way.

    Shapes (B pairs):
        a_lengths, b_lengths  (B,)  int
        limit                 (B,) or ()  int: most tokens of both together
        returns               two of (B,)

    >>> [int(n) for n in longest_first(tf.constant(10), tf.constant(3), tf.constant(8))]
    [5, 3]
    """
    a_kept = tf.minimum(a_lengths, tf.maximum(limit - b_lengths, limit - limit // 2))
    return a_kept, tf.minimum(b_lengths, limit - a_kept)


def combine(
    a,
    b=None,
    *,
    tokenizer,
    max_length,
    truncation="longest_first",
    padding="max_length",
    pad_to_multiple_of=None,
    type_vocab_size=2,
):
    """Turns tokenized texts, or pairs of them, into a batch for the encoder.

    With a = [7 8], b = [9], max_length = 8, word_ids [0 0] and [0]:

        token_ids     CLS  7   8  SEP  9  SEP PAD PAD      padding_mask  1 1 1 1 1 1 0 0
        word_ids      -1   0   0  -1   0  -1  -1  -1       segment_ids   0 0 0 0 1 1 0 0

    Where `tokenizer.pair_separators` is 2, as for RoBERTa, a pair is `<s> a </s> </s> b </s>`. A text
    without tokens (empty, blank, nothing but dropped characters) leaves its separators standing:
    `[CLS] [SEP]` alone, `[CLS] [SEP] [SEP]` for a pair of two such.

    Shapes (B texts or pairs, T tokens):
        a, b     (B, pieces) ragged int: token ids as `tokenize` gives them, or the dict of such that
                 `tokenize_with_offsets` gives
        returns  a dict of (B, T) int32: token_ids, padding_mask, segment_ids; for dicts also
                 char_starts, char_ends (0 outside of the texts), word_ids (-1 outside). Offsets and
                 word numbers stay those of each text: segment_ids tell which one is meant

    Args:
        a, b: The first texts, and for pairs the second ones.
        tokenizer: The tokenizer that made the ids.
        max_length: Most tokens in a row, special ones included.
        truncation: What gives way in a row that is longer: "longest_first" takes a token at a time
            from the end of the longer text (of `b` on a tie), "only_first" and "only_second" cut the
            end of one text, "do_not_truncate" (or None) nothing. A row that still is too long is an
            error when the graph runs. XLA leaves such checks out: there a row is cut at `max_length`.
        padding: "max_length" for T = max_length, known when the graph is built; "longest" for T = the
            longest row of the batch; "do_not_pad" for ragged rows.
        pad_to_multiple_of: Rounds T up to a multiple of this, of which `max_length` must be one.
        type_vocab_size: Of the encoder. Where it has 1 type, or none, segment ids are all 0.

    Raises:
        ValueError: When arguments contradict each other.
        tf.errors.InvalidArgumentError: When a row is too long after truncation, or `a` and `b` differ
            in rows.
    """
    truncation = truncation or "do_not_truncate"
    separators = tokenizer.pair_separators
    special = 2 if b is None else 2 + separators
    _check_options(max_length, special, truncation, padding, pad_to_multiple_of, is_pair=b is not None)
    a, a_starts, a_lengths = _flat(a, "a")
    texts = [a]
    if b is None:
        b_lengths = 0
    else:
        b, b_starts, b_lengths = _flat(b, "b")
        if set(a) != set(b):
            raise ValueError(
                f"`a` and `b` must have the same fields. Received: {sorted(a)} and {sorted(b)}."
            )
        tf.debugging.assert_equal(
            tf.shape(a_starts), tf.shape(b_starts), "`a` and `b` must have the same number of rows."
        )
        b_starts += tf.shape(a["token_ids"])[0]  # behind all of `a`
        texts.append(b)
    # one value more, for slots without a text to look at in a batch without tokens
    fields = {name: tf.concat([*(text[name] for text in texts), [0]], axis=0) for name in a}

    a_lengths, b_lengths = _truncate(a_lengths, b_lengths, max_length, special, truncation)
    lengths = a_lengths + b_lengths + special
    width = max_length
    if padding != "max_length":
        width = tf.maximum(tf.reduce_max(lengths), special)  # also in a batch without rows
    if padding == "longest" and pad_to_multiple_of:
        width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
    rows = frame(
        fields,
        (a_starts, a_lengths),
        None if b is None else (b_starts, b_lengths),
        width,
        tokenizer,
        separators,
        type_vocab_size,
    )
    if padding == "do_not_pad":
        rows = {name: tf.RaggedTensor.from_tensor(x, lengths) for name, x in rows.items()}
    return rows


def frame(fields, a, b, length, tokenizer, separators=1, type_vocab_size=2):
    """Cuts texts out of flat arrays of tokens, into padded rows with special tokens around them.

    Each slot of a row works out where in the flat array its token lies, so one gather fills a field.

    Shapes (B rows, N flat tokens, T = length):
        fields   a dict of (N,) int32, N at least 1: `token_ids`, and others of `OUTSIDE`
        a, b     each two of (B,) int32 or int64: where the texts begin in `fields`, and how many
                 tokens they have, which with the special ones must be at most T; b = None for rows of
                 single texts
        length   int, or () int32
        returns  a dict of (B, T) int32: `fields`, padding_mask and segment_ids

    Args:
        separators: How many [SEP] stand between `a` and `b`.
        type_vocab_size: Segment ids are all 0 below 2.
    """
    starts, lengths = (x[:, None] for x in a)
    slot = tf.range(length, dtype=starts.dtype)[None, :]  # (1, T)
    shift = starts - 1  # from a slot to its token in `fields`
    end = last = lengths + 1  # the slot behind the text, and that of the last separator
    if b is not None:
        starts, lengths = (x[:, None] for x in b)
        begin = end + separators
        last = begin + lengths
        in_second = slot >= begin  # (B, T)
        shift = tf.where(in_second, starts - begin, shift)
        end = tf.where(in_second, last, end)
    is_text = (slot > 0) & (slot < end)
    source = tf.where(is_text, slot + shift, 0)
    is_real = slot <= last
    special = tf.where(slot == 0, tokenizer.cls_token_id, tokenizer.sep_token_id)
    outside = {**OUTSIDE, "token_ids": tf.where(is_real, special, tokenizer.pad_token_id)}
    rows = {
        name: tf.where(is_text, tf.gather(flat, source), outside[name]) for name, flat in fields.items()
    }
    rows["padding_mask"] = tf.cast(is_real, tf.int32)
    # tokenizers with two separators tell their models nothing of segments
    if b is None or type_vocab_size < 2 or tokenizer.pair_separators > 1:
        rows["segment_ids"] = tf.zeros_like(rows["padding_mask"])
    else:
        rows["segment_ids"] = tf.cast(in_second & is_real, tf.int32)
    return rows


def _truncate(a_lengths, b_lengths, max_length, special, truncation):
    room = max_length - special
    if truncation == "longest_first":
        return longest_first(a_lengths, b_lengths, room)
    if truncation == "only_first":
        a_lengths = tf.minimum(a_lengths, tf.maximum(room - b_lengths, 0))
    if truncation == "only_second":
        b_lengths = tf.minimum(b_lengths, tf.maximum(room - a_lengths, 0))
    tf.debugging.assert_less_equal(
        tf.reduce_max(a_lengths + b_lengths),
        room,
        f"Every row must fit into `max_length` = {max_length} tokens, {special} of them special, after "
        f"truncation {truncation}. Received: a row of x other tokens, where there is room for y.",
    )
    return a_lengths, b_lengths


def _flat(text, name):
    """The fields of a text argument as flat int32 values, and the starts and lengths of its rows."""
    if not isinstance(text, dict):
        text = {"token_ids": text}
    if "token_ids" not in text or not set(text) <= {"token_ids", *OUTSIDE}:
        raise ValueError(
            f"`{name}` must have the field token_ids and may have {', '.join(OUTSIDE)}. "
            f"Received: {sorted(text)}."
        )
    for field, x in text.items():
        if not isinstance(x, tf.RaggedTensor) or x.shape.rank != 2 or not x.dtype.is_integer:
            received = f"{x.dtype.name} {x.shape}" if tf.is_tensor(x) else type(x).__name__
            raise ValueError(
                f"`{name}` must hold ragged tensors (B, pieces) of integers, as `tokenize` gives them "
                f"for a vector of strings. Received: {field} = {received}."
            )
    ids = text["token_ids"]
    flat = {field: tf.cast(x.values, tf.int32) for field, x in text.items()}
    return flat, tf.cast(ids.row_starts(), tf.int32), tf.cast(ids.row_lengths(), tf.int32)


def _check_options(max_length, special, truncation, padding, multiple, is_pair):
    if truncation not in TRUNCATIONS:
        raise ValueError(
            f"`truncation` must be one of {', '.join(TRUNCATIONS)}. Received: {truncation!r}."
        )
    if truncation == "only_second" and not is_pair:
        raise ValueError('`truncation="only_second"` must come with a `b` to cut. Received: b=None.')
    if padding not in PADDINGS:
        raise ValueError(f"`padding` must be one of {', '.join(PADDINGS)}. Received: {padding!r}.")
    if max_length <= special:
        raise ValueError(
            f"`max_length` must leave room for a token beside {special} special ones. "
            f"Received: {max_length}."
        )
    if multiple is not None and (multiple < 1 or max_length % multiple):
        raise ValueError(
            "`max_length` must be a multiple of `pad_to_multiple_of`. "
            f"Received: max_length={max_length}, pad_to_multiple_of={multiple}."
        )
    if multiple is not None and padding == "do_not_pad":
        raise ValueError(
            f'`pad_to_multiple_of` must be None with `padding="do_not_pad"`. Received: {multiple}.'
        )
