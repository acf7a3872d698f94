"""BERT whole on TensorFlow and Keras 3: pretraining, fine-tuning, serving.

The rooms, each of which imports from those above it alone (tests/test_imports.py):

  config       EncoderConfig, the architecture as one value; beside it leaves that every room may use:
               losses, metrics, hashing (random numbers from keys), files (whole or not at all), modules
  layers       what the encoder is made of, on flat tokens: layout, attention, block, heads, dropout
  text         strings to ids and back: tokenizers, pairs, packing, windows, masks, vocabularies, tags
  checkpoints  formats of files to names of weights; knows paths and configs, never a model
  training     the Trainer, its step and states, strategies, optimizers, schedules; knows any model
  data         text and labelled files to batches, as functions of (seed, step)
  models       the encoder and one model a head: strings in, answers out
  serving      a model as a SavedModel that takes strings
  tasks        the table of tasks, and one file for each kind: its model, rows, predictions, scores
  runs         recipes, and what runs them: pretraining, fine-tuning, working directory, reports
"""

from keras_bert.config import EncoderConfig as EncoderConfig
from keras_bert.data.builtin import builtin_documents as builtin_documents
from keras_bert.data.corpus import build_corpus as build_corpus
from keras_bert.data.pretraining import PretrainingData as PretrainingData
from keras_bert.data.record_data import RecordData as RecordData
from keras_bert.models.auto import load_pretrained as load_pretrained
from keras_bert.models.classifier import BertClassifier as BertClassifier
from keras_bert.models.discriminator import BertDiscriminator as BertDiscriminator
from keras_bert.models.encoder import BertEncoder as BertEncoder
from keras_bert.models.multiple_choice import BertMultipleChoice as BertMultipleChoice
from keras_bert.models.pretrainer import BertMaskedLM as BertMaskedLM
from keras_bert.models.pretrainer import BertPretrainer as BertPretrainer
from keras_bert.models.question_answering import BertQuestionAnswering as BertQuestionAnswering
from keras_bert.models.resizing import resize_vocabulary as resize_vocabulary
from keras_bert.models.token_classifier import BertTokenClassifier as BertTokenClassifier
from keras_bert.serving.export import export_saved_model as export_saved_model
from keras_bert.text.added_tokens import AddedToken as AddedToken
from keras_bert.text.bytepair import BytePairTokenizer as BytePairTokenizer
from keras_bert.text.preprocessing import TextPreprocessor as TextPreprocessor
from keras_bert.text.pretrained import load_tokenizer as load_tokenizer
from keras_bert.text.sentence_piece import SentencePieceTokenizer as SentencePieceTokenizer
from keras_bert.text.vocabulary_training import extend_vocabulary as extend_vocabulary
from keras_bert.text.vocabulary_training import train_vocabulary as train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer as WordPieceTokenizer
from keras_bert.training.distribution import make_strategy as make_strategy
from keras_bert.training.optimizers import LAMB as LAMB
from keras_bert.training.optimizers import AdamW as AdamW
from keras_bert.training.optimizers import layer_decay as layer_decay
from keras_bert.training.schedules import WarmupDecay as WarmupDecay
from keras_bert.training.trainer import Trainer as Trainer

__version__ = "0.1.0"
