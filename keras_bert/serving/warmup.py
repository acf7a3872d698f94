"""Warm-up records: requests that TF Serving answers by itself before it takes a version into service.

TF Serving reads them from `assets.extra/tf_serving_warmup_requests`, a TFRecord file of
`PredictionLog`s (tensorflow_serving/apis/prediction_log.proto), and refuses a version that fails one.
"""

import posixpath

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework.tensor_pb2 import TensorProto

FILE = "assets.extra/tf_serving_warmup_requests"
_PACKAGE = "tensorflow.serving"
# {message: {field: (number, type, repeated)}}: what a request for predictions needs, so that none has
# to install tensorflow-serving-api. Tensors stay bytes: on the wire a message is what it is as bytes.
_SCHEMA = {
    "ModelSpec": {"name": (1, "string", False), "signature_name": (3, "string", False)},
    "Input": {"key": (1, "string", False), "value": (2, "bytes", False)},
    "PredictRequest": {"model_spec": (1, "ModelSpec", False), "inputs": (2, "Input", True)},
    "PredictLog": {"request": (1, "PredictRequest", False)},
    "PredictionLog": {"predict_log": (6, "PredictLog", False)},
}


def _message_classes():
    file = descriptor_pb2.FileDescriptorProto(
        name="prediction_log.proto", package=_PACKAGE, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _SCHEMA.items():
        proto = file.message_type.add(name=message)
        for name, (number, kind, repeated) in fields.items():
            field = proto.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _SCHEMA:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.TYPE_STRING if kind == "string" else kinds.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()  # of its own: the real ones may be loaded too
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _SCHEMA
    }


_MESSAGES = _message_classes()


def write_warmup(directory, model_name, requests):
    """Writes the records of an export that is being made.

    Args:
        directory: Of the version.
        model_name: Name by which the server knows the model.
        requests: List of (signature, {name: array}).
    """
    path = posixpath.join(directory, FILE)
    tf.io.gfile.makedirs(posixpath.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for signature, columns in requests:
            log = _MESSAGES["PredictionLog"]()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = signature
            for name, value in columns.items():
                tensor = tf.make_tensor_proto(value).SerializeToString()
                request.inputs.add(key=name, value=tensor)
            writer.write(log.SerializeToString())


def read_warmup(directory):
    """The records of an export: list of (signature, {name: array})."""
    path = posixpath.join(directory, FILE)
    requests = []
    for record in tf.data.TFRecordDataset(path):
        request = _MESSAGES["PredictionLog"].FromString(record.numpy()).predict_log.request
        columns = {
            each.key: tf.make_ndarray(TensorProto.FromString(each.value)) for each in request.inputs
        }
        requests.append((request.model_spec.signature_name, columns))
    return requests
