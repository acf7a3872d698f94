"""A contestant of `benchmark.py serving`: a process that answers texts with one library.

    python serving_contestant.py '{"library": "onnxruntime", "dtype": "float32", "model": DIR, ...}'

`benchmarks/serving_speed.py` starts it, with the interpreter of an environment in which the library is
installed. The first line that it writes holds the probabilities of the first texts. Then each line that
it reads, a batch size and a number of requests, is answered by a line of JSON: seconds of each request,
CPU seconds (all threads), and the most memory so far. Text goes in and probabilities come out; nothing
runs in between. Imports stand where they are used: each environment has its own.
"""

import itertools
import json
import os
import resource
import sys
import tempfile
import time


def keras_bert(model, dtype, max_length):
    """Our export, by the signature that a server would run."""
    import tensorflow as tf

    from keras_bert import BertClassifier, export_saved_model

    policy = "mixed_bfloat16" if dtype == "bfloat16" else "float32"
    classifier = BertClassifier.from_pretrained(model, dtype=policy)
    with tempfile.TemporaryDirectory() as folder:
        path = export_saved_model(classifier, base_dir=folder, max_length=max_length)
        del classifier
        served = tf.saved_model.load(path)
    signature = served.signatures["serving_default"]
    return lambda texts: signature(text=tf.constant(texts))["probabilities"].numpy()


def keras_hub(model, dtype, max_length):
    """The classifier with its preprocessor: `predict` takes strings. Its head is a new one."""
    import keras
    import keras_hub

    policy = "mixed_bfloat16" if dtype == "bfloat16" else "float32"
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        keras_hub.models.BertTokenizer.from_preset(model), sequence_length=max_length
    )
    backbone = keras_hub.models.BertBackbone.from_preset(model, dtype=policy)
    classifier = keras_hub.models.BertTextClassifier(
        backbone, num_classes=2, preprocessor=preprocessor, activation="softmax"
    )

    def answer(texts):
        # `predict` itself builds a tf.data pipeline for each call: slower, above all for one text
        return keras.ops.convert_to_numpy(forward(preprocessor(texts)))

    import tensorflow as tf

    forward = tf.function(lambda x: classifier(x, training=False), reduce_retracing=True)
    return answer


def transformers(model, dtype, max_length):
    """The pipeline with torch."""
    import numpy as np
    import torch
    from transformers import pipeline

    pipe = pipeline("text-classification", model, device="cpu", dtype=getattr(torch, dtype))

    def answer(texts):
        rows = pipe(texts, batch_size=len(texts), top_k=None, truncation=True, max_length=max_length)
        return np.array([[e["score"] for e in sorted(row, key=lambda e: e["label"])] for row in rows])

    return answer


def sentence_transformers(model, dtype, max_length):
    """Embeddings, with mean pooling: the same encoder, no head."""
    import torch
    from sentence_transformers import SentenceTransformer

    options = {"dtype": getattr(torch, dtype)}
    encoder = SentenceTransformer(model, device="cpu", model_kwargs=options)
    encoder.max_seq_length = max_length
    return lambda texts: encoder.encode(texts, batch_size=len(texts), show_progress_bar=False)


def onnxruntime(model, dtype, max_length):
    """The Rust tokenizer and a session; "int8" quantises weights by its own dynamic quantiser."""
    import numpy as np
    import onnxruntime
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForSequenceClassification

    names = ["input_ids", "attention_mask", "token_type_ids"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        network = AutoModelForSequenceClassification.from_pretrained(model, attn_implementation="eager")
        example = {name: torch.ones((2, 8), dtype=torch.int64) for name in names}
        torch.onnx.export(
            network.eval(),
            tuple(example.values()),
            path,
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "rows", 1: "tokens"} for name in names},
            dynamo=False,
        )
        if dtype == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(path, path + ".int8", weight_type=QuantType.QInt8)
            path += ".int8"
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()

    def answer(texts):
        rows = tokenizer.encode_batch(texts)
        fields = ([r.ids for r in rows], [r.attention_mask for r in rows], [r.type_ids for r in rows])
        inputs = {name: np.array(each, np.int64) for name, each in zip(names, fields, strict=True)}
        (logits,) = session.run(None, inputs)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    return answer


LIBRARIES = {
    "keras_bert": keras_bert,
    "keras-hub": keras_hub,
    "transformers": transformers,
    "sentence-transformers": sentence_transformers,
    "onnxruntime": onnxruntime,
}


def main():
    options = json.loads(sys.argv[1])
    # the answers' own stream: libraries may print what they like
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    texts = options["texts"]
    answer = LIBRARIES[options["library"]](options["model"], options["dtype"], options["max_length"])
    first = answer(texts[:4])
    print(json.dumps([[float(value) for value in row] for row in first]), file=answers, flush=True)
    endless = itertools.cycle(texts)
    for line in sys.stdin:
        size, requests = map(int, line.split())
        seconds, cpu = [], time.process_time()
        for _ in range(requests):
            batch = list(itertools.islice(endless, size))
            start = time.perf_counter()
            answer(batch)
            seconds.append(time.perf_counter() - start)
        turn = {
            "seconds": seconds,
            "cpu": time.process_time() - cpu,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        print(json.dumps(turn), file=answers, flush=True)


if __name__ == "__main__":
    main()
