"""A directory of versions, as TF Serving watches it, and what lies beside them."""

import posixpath
import uuid

import tensorflow as tf

from keras_bert.files import write_atomically

CONFIG_FILE, BATCHING_FILE = "models.config", "batching_parameters.txt"

_CONFIG = """\
# tensorflow_model_server --rest_api_port=8501 --port=8500 --model_config_file=models.config
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""
# No allowed_batch_sizes: the graph computes real tokens only and takes any number of rows, so padding a
# batch with copies of a row would be work for nothing.
_BATCHING = """\
# --enable_batching --batching_parameters_file=batching_parameters.txt
max_batch_size { value: 32 }
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 2 }
# rows of token ids of different lengths; 0 is what the padding mask wants there
pad_variable_length_inputs: true
"""


def new_draft(base_dir):
    """An unused path beside the versions, where one can be written; servers pass over its name."""
    tf.io.gfile.makedirs(base_dir)
    return posixpath.join(base_dir, f"draft-{uuid.uuid4().hex}")


def publish(base_dir, draft):
    """Renames a draft to the next free version, and returns its path.

    Whoever else publishes at the same time gets another version: a directory is never renamed over one
    that holds anything. (Object stores rename file by file, so there a server may see a part.)
    """
    while True:
        version = 1 + max(_versions(base_dir), default=0)
        path = posixpath.join(base_dir, str(version))
        try:
            tf.io.gfile.rename(draft, path)
        except tf.errors.OpError:
            if not tf.io.gfile.exists(path):
                raise  # it was not for the other's version
        else:
            return path


def _versions(base_dir):
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(base_dir))
    return [int(name) for name in names if name.isdigit()]


def write_server_files(base_dir, model_name, readme):
    """Writes README.md, and examples of a server's settings where there are none yet."""
    write_atomically(posixpath.join(base_dir, "README.md"), readme)
    settings = {CONFIG_FILE: _CONFIG.format(name=model_name), BATCHING_FILE: _BATCHING}
    for name, content in settings.items():
        path = posixpath.join(base_dir, name)
        if not tf.io.gfile.exists(path):
            write_atomically(path, content)
