"""The model of pretraining: encoder, masked LM head and sentence head."""

import keras
from keras import ops

from keras_bert.layers.embeddings import initializer
from keras_bert.layers.heads import MaskedLMHead
from keras_bert.losses import sparse_cross_entropy
from keras_bert.metrics import sparse_accuracy
from keras_bert.models.base import BertModel
from keras_bert.models.columns import hold_strings
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.filling import fill_masks
from keras_bert.models.signatures import mask_signatures
from keras_bert.models.texts import TextModel


@keras.saving.register_keras_serializable(package="keras_bert")
class BertPretrainer(TextModel, BertModel):
    """Predicts masked words and, with a sentence head, whether the segments are in order.

    Devlin et al. 2018, section 3.1: masked LM and next sentence prediction, trained together. ALBERT
    predicts whether segments were swapped with the same head; RoBERTa has none.

    Shapes (B rows, T tokens, P predictions, V words):
        inputs   a dict of what BertEncoder takes and
            mask_positions  (B, P)     int32, token each prediction is for; pad with 0
        returns  a dict of float32 logits
            masked_lm       (B, P, V)  give padded predictions weight 0
            sentence        (B, 2)     0: the segments are in order, 1: they are not; only where
                                       there is a sentence head

    Args:
        config: An EncoderConfig.
        layout: How the encoder lays out tokens, "dense" or "unpadded".
        tokenizer: Needed by `predict_text` and the export alone.
        sentence_head: Whether there is one. Without, nothing trains the encoder's pooler, if it has
            one: it stays as it is, of which `fit` warns.
    """

    default_rate = 1e-4
    text_signatures = mask_signatures

    def __init__(self, config, layout="dense", tokenizer=None, sentence_head=True, **kwargs):
        dtype = kwargs.get("dtype")
        encoder = BertEncoder(config, layout, dtype=dtype)
        super().__init__(config, encoder, tokenizer, **kwargs)
        self.masked_lm = MaskedLMHead(
            config.masked_lm_act,
            config.layer_norm_eps,
            config.initializer_range,
            dtype=self.dtype_policy,
            name="masked_lm",
        )
        self.sentence = None
        if sentence_head:
            self.sentence = keras.layers.Dense(
                2,
                kernel_initializer=initializer(config.initializer_range),
                dtype=self.dtype_policy,
                name="sentence",
            )
            self.sentence.build((None, config.hidden_size))
        table = encoder.embeddings.word_table
        self.masked_lm.build((None, None, config.hidden_size), table.shape)
        self.built = True

    @property
    def head(self):
        return "masked_lm" if self.sentence is None else "pretraining"

    def call(self, inputs, training=None, seed=None):
        if "mask_positions" not in inputs:
            raise ValueError(f"`inputs` must hold `mask_positions`. Received: {sorted(inputs)}.")
        encoded = self.encoder(inputs, training=training, seed=seed, positions=inputs["mask_positions"])
        table = self.encoder.embeddings.word_table
        outputs = {"masked_lm": self.masked_lm(encoded["sequence_output"], table)}
        if self.sentence is not None:
            outputs["sentence"] = ops.cast(self.sentence(encoded["pooled_output"]), "float32")
        return outputs

    def fit(self, x=None, *args, **kwargs):
        """`keras.Model.fit`, on rows that are masked already."""
        if hold_strings(x):
            raise ValueError(
                "Rows of a masked LM must be masked before `fit`: PretrainingData makes them of texts, "
                "and draws other masks in each epoch. Received: strings."
            )
        return super().fit(x, *args, **kwargs)

    def text_outputs(self, tokenizer, text, top_k=5):
        """Graph function behind `predict_text` and the export: see `fill_masks`."""
        return fill_masks(self, tokenizer, text, top_k)

    def readable(self, row, top_k=5):
        return [
            [(word.decode(), float(score)) for word, score in zip(*mask, strict=True)]
            for mask in zip(row["words"], row["scores"], strict=True)
            if mask[0][0]
        ]

    def predict_text(self, texts, top_k=5, batch_size=32):
        """Fills every [MASK] of some texts.

        Args:
            texts: List of str.
            top_k: How many words to give for each.
            batch_size: Texts that are computed at once; it changes no result.

        Returns:
            For each text, for each of its masks, the `top_k` likeliest (word, probability). A longer
            text than the model takes is read in windows.
        """
        return self.predict_columns([texts], batch_size, top_k=top_k)

    def element_figures(self, name, labels, outputs):
        return {
            "loss": sparse_cross_entropy(labels, outputs),
            "accuracy": sparse_accuracy(labels, outputs),
        }

    def get_config(self):
        return {**super().get_config(), "sentence_head": self.sentence is not None}


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMaskedLM(BertPretrainer):
    """A BertPretrainer without a sentence head: fills masks, and nothing else."""

    needs_pooler = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **{**kwargs, "sentence_head": False})
