"""Packaging of keras_bert: `pip install .`, or `pip install -e '.[test]'` to work on it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "keras_bert/__init__.py").read_text())[1]

setup(
    # PyPI's `keras-bert` is another project, with the same import name
    name="keras-bert-tf",
    version=VERSION,
    description="BERT whole on TensorFlow and Keras 3: pretraining to serving",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["keras_bert", "keras_bert.*"]),
    python_requires=">=3.11",
    install_requires=[
        "huggingface_hub",  # `hf://...`
        "keras>=3.13",
        "matplotlib",
        "numpy",
        "pyyaml",  # params.yaml of Model Garden
        "safetensors",
        "scikit-learn",
        "scipy",
        "tensorboard",  # TensorFlow 2.21 no longer brings it
        "tensorflow>=2.20",  # TPU builds stop at 2.20
        "tensorflow-text>=2.20",
        "tokenizers",
        "tyro",
        "keras-nlp",
        "tensorflow-datasets",
        "importlib_resources",  # imported, but not declared, by tensorflow-datasets
    ],
    extras_require={
        "serving": ["tensorflow-serving-api"],  # for clients over gRPC; exports do without
        "test": ["hypothesis", "pytest", "ruff", "sentencepiece", "tensorflow-serving-api"],
        "benchmark": ["accelerate", "transformers<5", "torch"],  # peers of `tools/benchmark.py`
        "tpu-check": ["jax", "libtpu"],  # the compiler behind `tools/compile_for_tpu.py`
    },
)
