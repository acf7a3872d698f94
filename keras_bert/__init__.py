"""BERT whole on TensorFlow and Keras 3: pretraining, fine-tuning, embeddings, serving."""

from keras_bert.config import EncoderConfig as EncoderConfig
from keras_bert.models.encoder import BertEncoder as BertEncoder
from keras_bert.models.pretrainer import BertPretrainer as BertPretrainer
from keras_bert.training.optimizers import AdamW as AdamW
from keras_bert.training.optimizers import WarmupLinearDecay as WarmupLinearDecay

__version__ = "0.1.0"
