"""A model as a SavedModel for TF Serving: `export_saved_model` writes it, `check` tries it."""

from keras_bert.serving.checking import check as check
from keras_bert.serving.export import export_saved_model as export_saved_model
