"""The README of a directory of exports: how to start a server, and how to ask it."""

import json

_TEXT = """\
# {name}

Versions of a model for TensorFlow Serving 2.12 or newer. Checked with the TensorFlow C API.

    docker run -p 8500:8500 -p 8501:8501 -v "$PWD:/models/{name}" -e MODEL_NAME={name} \\
        tensorflow/serving

Signatures (rows, that is requests, first):

{signatures}

## REST

    curl http://localhost:8501/v1/models/{name}:predict -d '{rest}'

The answer has an object of results for each instance. `"signature_name": "..."` in the object asks
another signature than `serving_default`.

## gRPC

```python
# pip install tensorflow-serving-api
import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "{name}"
request.model_spec.signature_name = "serving_default"
{inputs}
channel = grpc.insecure_channel("localhost:8500")
response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=10)
results = {{name: tf.make_ndarray(value) for name, value in response.outputs.items()}}
```

`models.config` and `batching_parameters.txt` are examples of settings, with the flags that read them in
their first lines. In each version, `assets.extra/` holds the tokenizer's files, `model.json` with what
the model is (labels among it), and requests that a server warms itself up with.
"""


def guide(model_name, signatures):
    """The text, for a model with these signatures."""
    lines = []
    for name, signature in signatures.items():
        columns = ", ".join(
            f"`{column}` {spec.dtype.name} ({', '.join(['rows', *['...'] * (spec.shape.rank - 1)])})"
            for column, spec in signature.columns.items()
        )
        lines.append(f"* `{name}`: {columns}")
    default = next(iter(signatures.values())).sample
    instance = {column: next(iter(values)) for column, values in default.items()}
    inputs = [
        f'request.inputs["{column}"].CopyFrom(tf.make_tensor_proto({[value]!r}))'
        for column, value in instance.items()
    ]
    return _TEXT.format(
        name=model_name,
        signatures="\n".join(lines),
        rest=json.dumps({"instances": [instance]}),
        inputs="\n".join(inputs),
    )
