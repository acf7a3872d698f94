"""Pretrain BERT on the built-in documentation, text files of your own, or a TFDS name.

    python tools/pretrain.py                                  # bert_tiny, a few minutes on 2 cores
    python tools/pretrain.py --corpus 'texts/*.txt' --workdir runs/mine
    python tools/pretrain.py --recipe tools/recipes/mini.toml --seed 1

Writes recipe.json (every setting, as resolved), saved states, TensorBoard logs, loss.png, the model and
a SavedModel that fills masks. Interrupted, the same command goes on where it was.
"""

import sys

import tensorflow as tf

from keras_bert.recipes import PretrainRecipe, parse_flags, pretrain


def main(argv=None):
    try:
        report = pretrain(parse_flags(PretrainRecipe, argv, description=__doc__))
    except (ValueError, OSError, tf.errors.OpError) as error:
        sys.exit(f"pretrain.py: {str(error).strip().splitlines()[0]}")
    print(
        f"""
held-out masked LM loss  {report["masked_lm_loss"]:.3f} nats, over {report["targets"]:,} targets
unigram entropy of them  {report["unigram_entropy"]:.3f} nats
bits per character       {report["bits_per_character"]:.3f}
masked LM accuracy       {report["masked_lm_accuracy"]:.3f}
sentence accuracy        {report["sentence_accuracy"]:.3f}
"""
    )
    for row in report["filled"]:
        words = "  ".join(f"{w} {s:.2f}" for w, s in zip(row["words"], row["scores"], strict=True))
        print(f"{row['text']}\n    {words}    (was: {row['true_word']})")
    print(f"\nSavedModel: {report['saved_model']}")


if __name__ == "__main__":
    main()
