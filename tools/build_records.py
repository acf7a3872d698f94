"""Turn a corpus of any size into record files for pretraining.

    python tools/build_records.py --corpus 'texts/*.txt' --text-layout blank_line --processes 8
    python tools/build_records.py --corpus tfds:wikipedia/20230601.en --text-field text --output gs://b/wiki
    python tools/build_records.py --corpus jsonl:crawl/ --tokenizer roberta/ --objective full_sentences

Writes a tokenizer and, in train/ and held_out/, shards of examples without masks, word_counts.json and
manifest.json. Memory does not grow with the corpus. Interrupted, the same command goes on where it was,
and ends with the same bytes.
"""

import sys

import tensorflow as tf

from keras_bert.data.record_building import RecordRecipe, build_records
from keras_bert.runs.flags import in_one_line, parse_flags


def main(argv=None):
    try:
        build_records(parse_flags(RecordRecipe, argv, description=__doc__))
    except (ValueError, OSError, tf.errors.OpError) as error:
        sys.exit(f"build_records.py: {in_one_line(error)}")


if __name__ == "__main__":
    main()
