"""BERT whole on TensorFlow and Keras 3: pretraining, fine-tuning, embeddings, serving."""

__version__ = "0.1.0"
