"""Measure this package beside its peers: contestants take turns in one run, medians are compared.

    python tools/benchmark.py pretrain   # steps of pretraining, against keras-hub, Model Garden, torch
    python tools/benchmark.py pretrain --preset bert_base --rows 8 --python garden=PATH
    python tools/benchmark.py text       # strings to ids, offsets and masked batches, against
                                         # Hugging Face, keras-hub and tf-text
    python tools/benchmark.py step --init DIR
                                         # a fine-tuning step by part, its time and its memory
    python tools/benchmark.py finetune sst2 --init DIR --data DIR --seeds 3
                                         # whole runs, against transformers' Trainer and keras-hub
    python tools/benchmark.py serving DIR --python onnxruntime=PATH --python transformers=PATH
                                         # an exported classifier, against what others serve with
    python tools/benchmark.py finetune --cpu avx2 --python torch=PATH sst2 --init DIR --data DIR

`text` needs `pip install -e '.[benchmark]'`. Of the others, what is not installed is left out.
`finetune` takes the flags of tools/finetune.py, behind the task; its own stand before it. `--cpu` plays
a lesser processor; the output says what is limited and what is not. Model Garden needs an environment
of its own, and its interpreter's path:

    pip install 'tensorflow==2.20.*' 'tensorflow-text==2.20.*' 'tf-keras==2.20.*'
    pip install gin-config scipy pyyaml
    pip install --no-deps 'tf-models-official==2.20.*'

Wall time on shared machines is noisy and sometimes throttled, so CPU seconds (all threads) are printed
beside it.
"""

import argparse
import os
import sys

from benchmarks.processor import LIMITS, limit, machine


def pretrain(options, header):
    from benchmarks.pretrain_speed import benchmark_pretrain

    benchmark_pretrain(options, header)


def text(options, header):
    from benchmarks.text_speed import benchmark_text

    benchmark_text(options, header)


def step(options, header):
    from benchmarks.step_parts import benchmark_step

    benchmark_step(options, header)


def finetune(options, header):
    from benchmarks.finetune_runs import benchmark_finetune

    benchmark_finetune(options, header)


def serving(options, header):
    from benchmarks.serving_speed import benchmark_serving

    benchmark_serving(options, header)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--cpu", choices=LIMITS, help="what libraries may use of the processor")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pretrain", help="steps of pretraining", parents=[shared])
    command.add_argument("--preset", default="bert_small", help="size of the encoder")
    command.add_argument("--rows", type=int, default=16)
    command.add_argument("--length", type=int, default=128)
    command.add_argument("--predictions", type=int, default=20)
    command.add_argument("--fill", type=float, default=1.0, help="share of slots with real tokens")
    command.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    command.add_argument("--only", default="", help="regular expression: the contestants that start")
    command.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="LIBRARY=PATH",
        help=f"interpreter for keras-hub, garden or torch; else {sys.executable}",
    )
    command.add_argument("--rounds", type=int, default=7, help="turns of each finalist")
    command.add_argument("--steps", type=int, default=3, help="steps in a turn")
    command.set_defaults(run=pretrain)
    command = commands.add_parser(
        "text", help="strings to ids, offsets and masked batches", parents=[shared]
    )
    command.add_argument("--corpus", help="text files (glob) instead of the built-in corpus")
    command.add_argument("--vocabulary", help="vocab.txt (uncased); else one is trained on the texts")
    command.add_argument("--megabytes", type=float, default=4.0, help="how much text")
    command.add_argument("--rows", type=int, default=256)
    command.add_argument("--length", type=int, default=128)
    command.add_argument("--predictions", type=int, default=20)
    command.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    command.set_defaults(run=text)
    command = commands.add_parser(
        "step", help="a fine-tuning step by part, time and memory", parents=[shared]
    )
    command.add_argument("--init", help="pretrained directory; else random weights of --preset")
    command.add_argument("--preset", default="bert_mini", help="size of the encoder")
    command.add_argument("--rows", type=int, default=32)
    command.add_argument("--shortest", type=int, default=6, help="tokens of a row")
    command.add_argument("--longest", type=int, default=20)
    command.add_argument("--batches", type=int, default=8)
    command.add_argument("--rounds", type=int, default=5, help="turns of each part")
    command.add_argument("--dtype", default="float32")
    command.add_argument("--layout", default="unpadded", choices=("dense", "unpadded"))
    command.set_defaults(run=step)
    command = commands.add_parser("finetune", help="whole runs of fine-tuning", parents=[shared])
    command.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    command.add_argument("--only", default="", help="regular expression: the contestants that start")
    command.add_argument("--python", action="append", default=[], metavar="LIBRARY=PATH")
    command.add_argument("--rows", type=int, help="most rows of training, and of dev, for a try")
    command.add_argument("flags", nargs=argparse.REMAINDER, help="as of tools/finetune.py")
    command.set_defaults(run=finetune)
    command = commands.add_parser("serving", help="text in, answer out", parents=[shared])
    command.add_argument("model", help="directory of an encoder: BERT, with its tokenizer")
    command.add_argument("--texts", type=int, default=1024)
    command.add_argument("--length", type=int, default=256, help="most tokens of a text")
    command.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 256])
    command.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    command.add_argument("--only", default="", help="regular expression: the contestants that start")
    command.add_argument("--python", action="append", default=[], metavar="LIBRARY=PATH")
    command.set_defaults(run=serving)
    options = parser.parse_args(argv)
    header = machine()
    try:
        if options.cpu is not None:  # before anything that it limits is loaded
            header += f"\n{limit(options.cpu, os.environ)}"
        options.run(options, header)
    except (ValueError, RuntimeError) as error:
        sys.exit(f"benchmark.py: {error}")


if __name__ == "__main__":
    main()
