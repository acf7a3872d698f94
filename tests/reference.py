"""A BERT encoder in plain numpy and float64, written from the paper: what the layers are held to."""

import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS = {
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def weights_of(model):
    """{path: float64 array} of a built Keras model's weights; an encoder's own paths are bare."""
    return {
        weight.path.removeprefix("encoder/"): np.asarray(weight.numpy(), "float64")
        for weight in model.weights
    }


def norm(x, weights, name, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return scaled * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def dense(x, weights, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def attend(x, weights, name, heads):
    """Self-attention over one row (T, D) without padding, head by head."""
    width = x.shape[-1] // heads
    mixed = []
    for head in range(heads):
        query, key, value = (
            x @ weights[f"{name}/qkv_kernel"][:, part, head] + weights[f"{name}/qkv_bias"][part, head]
            for part in range(3)
        )
        scores = query @ key.T / math.sqrt(width)
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        mixed.append(exponentials / exponentials.sum(-1, keepdims=True) @ value)
    return dense(np.concatenate(mixed, -1), weights, f"{name}/output")


def encode_row(weights, config, token_ids, segment_ids):
    """One row of real tokens (T,) -> states (T, D) and the pooled vector (D,)."""
    eps, act = config.layer_norm_eps, ACTIVATIONS[config.hidden_act]
    first = config.position_offset
    x = weights["embeddings/word_table"][token_ids]
    x = x + weights["embeddings/position_table"][first : first + len(token_ids)]
    if config.type_vocab_size:
        x = x + weights["embeddings/segment_table"][segment_ids]
    x = norm(x, weights, "embeddings/norm", eps)
    if config.embedding_width != config.hidden_size:
        x = dense(x, weights, "embeddings/projection")
    for layer in range(config.num_hidden_layers):
        name = f"block_{layer * config.groups // config.num_hidden_layers}"
        attended = attend(x, weights, f"{name}/attention", config.num_attention_heads)
        x = norm(x + attended, weights, f"{name}/attention_norm", eps)
        hidden = act(dense(x, weights, f"{name}/intermediate"))
        x = norm(x + dense(hidden, weights, f"{name}/output"), weights, f"{name}/output_norm", eps)
    pooled = np.tanh(dense(x[0], weights, "pooler")) if config.use_pooler else x[0]
    return x, pooled


def masked_lm(states, positions, weights, config, table):
    """States of one row (T, D) -> word scores (P, V) at the positions (P,)."""
    x = ACTIVATIONS[config.hidden_act](dense(states[positions], weights, "masked_lm/dense"))
    x = norm(x, weights, "masked_lm/norm", config.layer_norm_eps)
    return x @ table.T + weights["masked_lm/bias"]
