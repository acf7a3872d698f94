"""keras_bert.data.record_data: the order of epochs, slices, starts, figures, and refusals, by counting.

Each example has one word of its own, so that a row tells which it is.
"""

import itertools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.batches import masked_batch
from keras_bert.data.corpus import build_corpus
from keras_bert.data.pretraining import PretrainingData
from keras_bert.data.record_building import RecordRecipe, build_records
from keras_bert.data.record_data import RecordData
from keras_bert.data.records import (
    Manifest,
    describe_tokenizer,
    parse_examples,
    serialize_example,
    shard_path,
)
from keras_bert.data.service import through_service
from keras_bert.hashing import fold
from keras_bert.runs.flags import in_one_line
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.wordpiece import WordPieceTokenizer

SHARDS, SIZE, LAST, LENGTH = 7, 10, 4, 12
EXAMPLES = (SHARDS - 1) * SIZE + LAST
SPECIALS = 5
TOKENIZER = WordPieceTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(EXAMPLES))]
)


def write_records(directory, objective="full_sentences", shards=SHARDS):
    """Example k is one to five times the word k; as a pair, there are three more words of it in `b`."""
    settings = {"objective": objective, "max_length": LENGTH}
    manifest = Manifest(settings, describe_tokenizer(TOKENIZER), tokens=EXAMPLES, characters=EXAMPLES)
    numbers = iter(range(EXAMPLES))
    for shard in range(shards):
        size = SIZE if shard < SHARDS - 1 else LAST
        path = shard_path(str(directory), shard)
        with tf.io.TFRecordWriter(path) as file:
            for number in itertools.islice(numbers, size):
                pair = [] if objective == "full_sentences" else [[SPECIALS + number] * 3, number % 2]
                file.write(serialize_example([SPECIALS + number] * (1 + number % 5), *pair))
        length = tf.io.gfile.stat(path).length
        manifest.shards.append({"examples": size, "crc32": 0, "bytes": length})
    manifest.row_tokens = sum(3 + number % 5 for number in range(EXAMPLES))
    manifest.write(str(directory))
    tf.io.gfile.GFile(f"{directory}/word_counts.json", "w").write(json.dumps([0, 1]))
    return str(directory)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("records"))


def make_data(directory, tokenizer=TOKENIZER, kind=RecordData, **options):
    return kind(directory, tokenizer, **{"masking_rate": 0.5, "seed": 3, **options})


class Unmasked(RecordData):
    """What is read, as it is: tracing the graphs of the masks takes most of a test's time."""

    def _examples(self, records, epochs, numbers):
        tokens, (starts, _), _, _ = parse_examples(records, self._is_pair)
        tokens = tf.gather(tokens, starts)
        return (
            {"tokens": tokens, "numbers": numbers, "epochs": epochs},
            {},
            {"one": tf.ones_like(tokens, "float32")},
        )


def make_unmasked(directory, **options):
    return make_data(directory, kind=Unmasked, **options)


def numbers_of(batch):
    """The numbers of the examples in a batch, by their words."""
    x, y, weights = batch
    if "tokens" in x:
        np.testing.assert_array_equal(x["tokens"] - SPECIALS, x["numbers"])
        return x["numbers"].tolist()
    ids, real = x["token_ids"].copy(), weights["masked_lm"] > 0
    rows = np.broadcast_to(np.arange(len(ids))[:, None], real.shape)
    ids[rows[real], x["mask_positions"][real]] = y["masked_lm"][real]
    return (ids[:, 1] - SPECIALS).tolist()


def numbers(batches, count=None):
    batches = batches if count is None else batches.take(count)
    return list(itertools.chain(*map(numbers_of, batches.as_numpy_iterator())))


def contexts(pipelines, replicas):
    return [tf.distribute.InputContext(pipelines, i, replicas) for i in range(pipelines)]


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        for part, part_other in zip(one, other, strict=True):
            assert part.keys() == part_other.keys()
            for name, value in part.items():
                np.testing.assert_array_equal(value, part_other[name])


@pytest.mark.parametrize("block_shards", [1, 3, 7, 100])
def test_an_epoch_has_each_example_once_by_blocks_of_shards(directory, block_shards):
    data = make_unmasked(directory, block_shards=block_shards)
    assert len(data) == EXAMPLES
    seen = numbers(data.training_batches(8), 3 * EXAMPLES // 8)  # 64 in an epoch, without a seam
    epochs = [seen[i : i + EXAMPLES] for i in range(0, 3 * EXAMPLES, EXAMPLES)]
    shard_orders = []
    for epoch in epochs:
        assert sorted(epoch) == list(range(EXAMPLES))
        shards = [number // SIZE for number in epoch]
        order, rest = [], epoch
        while rest:
            block = set(order)
            size, members = 0, []
            # the block is what the next shards are made of: as many records as they hold
            for shard in dict.fromkeys(shards[len(epoch) - len(rest) :]):
                if len(members) < block_shards:
                    members.append(shard)
                    size += SIZE if shard < SHARDS - 1 else LAST
            assert not block & set(members)
            assert {number // SIZE for number in rest[:size]} == set(members)
            order += members
            rest = rest[size:]
        shard_orders.append(order)
    if block_shards < SHARDS:
        assert len(set(map(tuple, shard_orders))) == 3
    assert len(set(map(tuple, epochs))) == 3


def test_shards_and_records_are_permuted_evenly(directory):
    """The shard of the first place and the record of a shard's first place, over 700 epochs."""
    data = make_unmasked(directory, block_shards=1)
    arrange = tf.function(data._arrange)
    first, inside = np.zeros(SHARDS), np.zeros(SIZE)
    for epoch in range(700):
        _, shards, listed, order = arrange(tf.constant(epoch * SHARDS, tf.int64))
        first[int(shards[0])] += 1
        if len(order) == SIZE:
            inside[int(listed[order[0]]) % SIZE] += 1
    for counts in (first, inside):
        expected = counts.sum() / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < 33  # p < 1e-4 with 9 degrees of freedom


@pytest.mark.parametrize(("block_shards", "start"), [(1, 37), (2, 5), (7, 8)])
def test_a_later_start_gives_the_tail(directory, block_shards, start):
    data = make_unmasked(directory, block_shards=block_shards)
    batches = list(data.training_batches(12).take(start + 6).as_numpy_iterator())
    again = make_unmasked(directory, block_shards=block_shards)
    assert_equal(batches[start:], again.training_batches(12, start).take(6).as_numpy_iterator())


def test_another_seed_gives_another_order(directory):
    orders = [numbers(make_unmasked(directory, seed=i).training_batches(16), 4) for i in (3, 4)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_a_start_opens_no_more_shards_than_a_block_and_those_ahead(tmp_path):
    """All other shards are gone: a start at a late step does not miss them."""
    data = make_unmasked(write_records(tmp_path), block_shards=2)
    start = 3 * EXAMPLES // 4  # steps of 4: the start of the fourth epoch
    order = [data._arrange(tf.constant(12 + i, tf.int64))[1].numpy().tolist() for i in range(3)]
    assert sorted(itertools.chain(*order, [data._shard_order(3).numpy()[-1]])) == list(range(SHARDS))
    later = start + sum(map(len, order[:1])) * SIZE // 4  # within the second block
    for shard in order[0]:
        os.remove(shard_path(str(tmp_path), shard))
    assert len(numbers(data.training_batches(4, later), 1)) == 4


@pytest.fixture(scope="module")
def whole_batches(directory):
    """Of one replica: steps 2 to 5 of 12 rows, over the end of an epoch, and 31 held-out examples."""
    data = make_unmasked(directory, block_shards=1)
    training, evaluation = data.training_batches(12, 2).take(4), data.evaluation_batches(12, 31)
    return list(training.as_numpy_iterator()), list(evaluation.as_numpy_iterator())


@pytest.mark.parametrize(("pipelines", "replicas"), [(1, 1), (1, 2), (1, 4), (2, 4), (3, 3)])
def test_slices_make_up_the_global_batches(directory, whole_batches, pipelines, replicas):
    """Also with more pipelines than a block has shards."""
    data = make_unmasked(directory, block_shards=1)
    size, steps, local = 12, 4, replicas // pipelines
    parts, held_out_parts = [], []
    for context in contexts(pipelines, replicas):
        batches = data.training_batches(size, 2, context)
        assert batches.element_spec[0]["numbers"].shape == (size // replicas,)
        parts.append(list(batches.take(steps * local).as_numpy_iterator()))
        batches = data.evaluation_batches(size, 31, context)
        assert int(batches.cardinality()) == 3 * local
        held_out_parts.append(list(batches.as_numpy_iterator()))
    assert_equal(whole_batches[0], join(parts, local))
    assert_equal(whole_batches[1], join(held_out_parts, local))


def test_there_may_be_fewer_shards_than_pipelines(tmp_path):
    data = make_unmasked(write_records(tmp_path, shards=1))
    first, second = (numbers(data.training_batches(10, 0, c), 3) for c in contexts(2, 2))
    epochs = [first[i : i + 5] + second[i : i + 5] for i in (0, 5, 10)]
    assert list(map(sorted, epochs)) == [list(range(SIZE))] * 3
    assert list(itertools.chain(*epochs)) == numbers(data.training_batches(10), 3)


def join(parts, local):
    """The global batches: pipeline by pipeline, its replicas one after the other."""
    for step in range(len(parts[0]) // local):
        batches = [batch for part in parts for batch in part[step * local : (step + 1) * local]]
        yield tuple(
            {name: np.concatenate([batch[i][name] for batch in batches]) for name in batches[0][i]}
            for i in range(3)
        )


def test_evaluation_weighs_each_example_once(directory):
    data = make_data(directory)
    batches = list(data.evaluation_batches(10).as_numpy_iterator())
    assert int(data.evaluation_batches(10).cardinality()) == len(batches) == 7
    seen = list(itertools.chain(*map(numbers_of, batches)))
    # rows of weight 0 cannot be told by their predictions, but by their place
    assert seen[:EXAMPLES] == list(range(EXAMPLES))
    predictions = np.concatenate([w["masked_lm"].sum(1) for _, _, w in batches])
    words = np.array([1 + number % 5 for number in range(EXAMPLES)])
    expected = np.maximum(np.round(np.float32(0.5) * words.astype("float32")), 1)
    np.testing.assert_array_equal(predictions, [*expected, *[0] * 6])
    np.testing.assert_array_equal(batches[-1][0]["padding_mask"].sum(1) > 2, True)  # real rows


@pytest.mark.parametrize("count", [1, 20, EXAMPLES - 1, EXAMPLES + 9])
def test_evaluation_takes_the_same_share_of_each_shard(directory, count):
    data = make_unmasked(directory)
    seen = numbers(data.evaluation_batches(1, count))
    assert len(seen) == count
    rest = seen[count // EXAMPLES * EXAMPLES :]
    assert seen[: len(seen) - len(rest)] == [*range(EXAMPLES)] * (count // EXAMPLES)
    taken = np.bincount(np.array(rest, int) // SIZE, minlength=SHARDS)
    shares = len(rest) * np.array([SIZE] * (SHARDS - 1) + [LAST]) / EXAMPLES
    assert (abs(taken - shares) < 1).all()
    for shard in range(SHARDS):  # the first ones
        mine = [number for number in rest if number // SIZE == shard]
        assert mine == list(range(shard * SIZE, shard * SIZE + len(mine)))


def test_masks_differ_between_epochs(directory):
    data = make_data(directory)
    once, twice = np.split(
        np.concatenate(
            [x["token_ids"] for x, _, _ in data.evaluation_batches(64, 128).as_numpy_iterator()]
        ),
        2,
    )
    assert (once != twice).any()


def test_masks_are_those_of_the_example(directory):
    """Against the examples themselves, framed and masked by hand."""
    data = make_data(directory)
    tokens, starts, lengths = [], [], []
    for number in range(EXAMPLES):
        starts.append(len(tokens))
        lengths.append(1 + number % 5)
        tokens += [SPECIALS + number] * lengths[-1]
    keys = fold(fold(3, 0, tf.range(EXAMPLES)), 0)
    expected = masked_batch(
        tf.constant(tokens),
        (tf.constant(starts), tf.constant(lengths)),
        None,
        None,
        keys,
        tokenizer=TOKENIZER,
        max_length=LENGTH,
        max_predictions=data.max_predictions,
        masking_rate=0.5,
    )
    (batch,) = data.evaluation_batches(EXAMPLES).as_numpy_iterator()
    assert_equal([tf.nest.map_structure(lambda x: x.numpy(), expected)], [batch])


@pytest.mark.parametrize("objective", ["sentence_order", "full_sentences"])
def test_one_block_gives_the_batches_of_the_data_in_memory(objective, tmp_path):
    sentences = [f"W{i} w{i + 1} w{i + 2}." for i in range(50)]
    documents = [" ".join(sentences[i : i + 5]) for i in range(0, 50, 5)]
    (tmp_path / "texts.txt").write_text("\n\n".join(documents))
    TOKENIZER.save_pretrained(tmp_path / "tokenizer")
    recipe = RecordRecipe(
        corpus=str(tmp_path / "texts.txt"),
        text_layout="blank_line",
        tokenizer=str(tmp_path / "tokenizer"),
        output=str(tmp_path / "records"),
        held_out_every=5,
        objective=objective,
        max_length=16,
        examples_per_shard=3,
        seed=9,
    )
    build_records(recipe)
    tokenizer = load_tokenizer(recipe.output)
    corpus = build_corpus(recipe.documents("train"), tokenizer)
    memory = PretrainingData(corpus, tokenizer, objective, 16, masking="whole_word", seed=9)
    data = RecordData(
        tmp_path / "records" / "train", tokenizer, objective, 16, masking="whole_word", seed=9
    )
    assert len(data) == len(memory)
    mine, others = data.evaluation_batches(4), memory.evaluation_batches(4)
    assert mine.element_spec == others.element_spec
    assert_equal(mine.as_numpy_iterator(), others.as_numpy_iterator())
    np.testing.assert_array_equal(data.word_counts(), memory.word_counts())
    assert data.fill_rate() == pytest.approx(memory.fill_rate(len(memory)))
    assert data.characters_per_token == memory.characters_per_token
    assert data.documents_left_out == memory.documents_left_out
    assert data.max_predictions == memory.max_predictions


def test_pairs_keep_their_labels(tmp_path):
    data = make_data(write_records(tmp_path, "sentence_order"))
    for batch in data.training_batches(8).take(9).as_numpy_iterator():
        found = np.array(numbers_of(batch))
        np.testing.assert_array_equal(batch[1]["sentence"], found % 2)
        np.testing.assert_array_equal(batch[0]["padding_mask"].sum(1), 1 + found % 5 + 3 + 3)
        np.testing.assert_array_equal(batch[0]["segment_ids"].sum(1), 4)


def test_description_names_the_examples_of_a_step(directory):
    data = make_unmasked(directory, block_shards=2)
    for step in (0, 6, 13):
        (found,) = data.training_batches(10, step).take(1).as_numpy_iterator()
        found, epoch = numbers_of(found), step * 10 // EXAMPLES
        first = min(10, (epoch + 1) * EXAMPLES - step * 10)
        words = f"epoch {epoch}: examples {' '.join(map(str, found[:first]))}"
        if first < 10:
            words += f", epoch {epoch + 1}: examples {' '.join(map(str, found[first:]))}"
        assert data.describe(step, 10) == words


def test_figures_come_from_the_manifest(directory):
    data = make_data(directory)
    assert data.fill_rate() == sum(3 + n % 5 for n in range(EXAMPLES)) / (EXAMPLES * LENGTH)
    assert data.word_counts().tolist() == [0, 1]
    assert data.fingerprint() == make_data(directory, seed=8, block_shards=1).fingerprint()
    assert int(data.training_batches(4).cardinality()) == tf.data.INFINITE_CARDINALITY


def test_remote_records_are_read_alike(directory):
    remote = make_unmasked(write_records("ram://read"))
    assert_equal(
        remote.training_batches(8).take(9).as_numpy_iterator(),
        make_unmasked(directory).training_batches(8).take(9).as_numpy_iterator(),
    )


def test_through_a_service_no_example_comes_twice_in_an_epoch(directory):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    workers = [service.WorkerServer(service.WorkerConfig(address)) for _ in range(2)]
    data = make_unmasked(directory, block_shards=1)
    batches = through_service(data.training_batches(2), dispatcher.target, job_name="test")
    assert batches.element_spec == data.training_batches(2).element_spec
    seen = numbers(batches, EXAMPLES)  # two epochs
    counts = np.bincount(seen, minlength=EXAMPLES)
    # the third epoch may have begun before the last blocks of the second are through
    assert counts.max() <= 3
    assert (counts > 0).mean() > 0.8
    del batches, workers


def test_a_broken_shard_is_named(tmp_path):
    directory = write_records(tmp_path)
    data = make_unmasked(directory)
    path = shard_path(directory, 2)
    with open(path, "r+b") as file:
        file.seek(-6, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-6, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    for batches in (data.training_batches(8).take(8), data.evaluation_batches(8)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"as it was built.*{path}.*9.*broken"):
            list(batches)
    in_a_graph = tf.function(lambda iterator: next(iterator), autograph=False)
    iterator = iter(data.evaluation_batches(8))
    with pytest.raises(tf.errors.InvalidArgumentError) as broken:
        [in_a_graph(iterator) for _ in range(EXAMPLES)]
    words = "Every shard must be as it was built. Received:"
    assert in_one_line(broken.value) == f"{words} {path} whose record 9 is broken."
    assert len(numbers(data.evaluation_batches(7, 7))) == 7  # others are read
    with open(path, "r+b") as file:
        file.truncate(30)
    with pytest.raises(ValueError, match=f"shard must be as it was built.*{path}, of 30 bytes"):
        make_unmasked(directory)
    os.remove(path)
    with pytest.raises(ValueError, match=f"shard must be as it was built.*{path}, which is missing"):
        make_unmasked(directory)
    with pytest.raises(tf.errors.NotFoundError, match=path):
        list(data.training_batches(8).take(8))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_length": 128}, "`max_length` must be that of the records in .*, 12. Received: 128"),
        (
            {"objective": "next_sentence"},
            "`objective` must be that .*'full_sentences'. Received",
        ),
        ({"tokenizer": WordPieceTokenizer(TOKENIZER.vocabulary[:-1])}, "`tokenizer` must be the one"),
        ({"tokenizer": WordPieceTokenizer(TOKENIZER.vocabulary, False)}, "lowercase.*True"),
        ({"block_shards": 0}, "`block_shards` must be at least 1. Received: 0"),
        ({"max_predictions": 40}, "max_predictions=40, max_length=12"),
    ],
)
def test_refusals(directory, options, words):
    with pytest.raises(ValueError, match=words):
        make_data(directory, **options)


def test_batches_that_cannot_be_shared_are_refused(directory):
    data = make_unmasked(directory)
    for make in (
        data.training_batches,
        lambda size, _, context: data.evaluation_batches(size, 9, context),
    ):
        with pytest.raises(ValueError, match="batch_size=6, 4 replicas"):
            make(6, 0, contexts(1, 4)[0])
    with pytest.raises(ValueError, match="`examples` must be at least 1. Received: 0"):
        data.evaluation_batches(4, 0)


def test_an_unfinished_directory_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be a finished directory.*without manifest.json"):
        make_data(tmp_path)
    for content, words in (("{", "must be JSON"), ('{"new": 1}', "this version.*new, row_tokens")):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=words):
            make_data(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(ValueError, match="whose build is not finished: run it again"):
        make_data(tmp_path)
