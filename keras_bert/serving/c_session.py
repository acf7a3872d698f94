"""Runs a SavedModel through TensorFlow's C API alone, without its Python: the way a server loads it.

    python c_session.py < plan.json > results.json

A process of its own, because Python's TensorFlow would register every op and hide what a server
lacks. `keras_bert.serving.checking` writes the plan; its tensors are {"dtype": number of TensorFlow's
DataType, "shape", "values"}, flat, with bytes as Latin-1.
"""

import ctypes
import json
import math
import sys

_NUMBERS = {
    1: ctypes.c_float,
    3: ctypes.c_int32,
    9: ctypes.c_int64,
    10: ctypes.c_bool,
}
_STRING, _STRING_BYTES = 7, 24  # TF_STRING, sizeof(TF_TString)


class _Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class CSession:
    """A session on a SavedModel.

    Args:
        libraries: Paths of TensorFlow's libraries, in the order in which they need each other.
        op_libraries: Paths of libraries with further ops.
        directory: Of the SavedModel.
    """

    def __init__(self, libraries, op_libraries, directory):
        self._tf = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in libraries][-1]
        for name in (
            "TF_NewStatus",
            "TF_NewGraph",
            "TF_NewSessionOptions",
            "TF_LoadLibrary",
            "TF_LoadSessionFromSavedModel",
            "TF_GraphOperationByName",
            "TF_AllocateTensor",
            "TF_TensorData",
            "TF_StringGetDataPointer",
        ):
            getattr(self._tf, name).restype = ctypes.c_void_p
        for name in ("TF_Dim", "TF_StringGetSize"):
            getattr(self._tf, name).restype = ctypes.c_int64
        self._tf.TF_Message.restype = ctypes.c_char_p
        self._status = ctypes.c_void_p(self._tf.TF_NewStatus())
        for path in op_libraries:
            self._tf.TF_LoadLibrary(path.encode(), self._status)
            self._check()
        self._graph = ctypes.c_void_p(self._tf.TF_NewGraph())
        self._session = ctypes.c_void_p(
            self._tf.TF_LoadSessionFromSavedModel(
                ctypes.c_void_p(self._tf.TF_NewSessionOptions()),
                None,
                directory.encode(),
                (ctypes.c_char_p * 1)(b"serve"),
                1,
                self._graph,
                None,
                self._status,
            )
        )
        self._check()

    def run(self, inputs, outputs):
        """The tensors named `outputs`, in their order, of {name: tensor}, all as in the plan."""
        places = (_Output * len(inputs))(*map(self._place, inputs))
        tensors = [ctypes.c_void_p(self._tensor(**each)) for each in inputs.values()]
        wanted = (_Output * len(outputs))(*map(self._place, outputs))
        results = (ctypes.c_void_p * len(outputs))()
        self._tf.TF_SessionRun(
            self._session,
            None,
            places,
            (ctypes.c_void_p * len(tensors))(*tensors),
            len(tensors),
            wanted,
            results,
            len(outputs),
            None,
            0,
            None,
            self._status,
        )
        for tensor in tensors:
            self._tf.TF_DeleteTensor(tensor)
        self._check()
        return [self._read(ctypes.c_void_p(result)) for result in results]

    def _check(self):
        if self._tf.TF_GetCode(self._status):
            raise RuntimeError(self._tf.TF_Message(self._status).decode(errors="replace"))

    def _place(self, name):
        operation, _, index = name.partition(":")
        found = self._tf.TF_GraphOperationByName(self._graph, operation.encode())
        return _Output(found, int(index))

    def _tensor(self, dtype, shape, values):
        count = math.prod(shape)
        size = _STRING_BYTES if dtype == _STRING else ctypes.sizeof(_NUMBERS[dtype])
        dims = (ctypes.c_int64 * len(shape))(*shape)
        tensor = self._tf.TF_AllocateTensor(dtype, dims, len(shape), ctypes.c_size_t(count * size))
        data = self._tf.TF_TensorData(ctypes.c_void_p(tensor))
        if dtype == _STRING:
            for place, value in enumerate(values):
                string = ctypes.c_void_p(data + place * size)
                content = value.encode("latin-1")
                self._tf.TF_StringInit(string)
                self._tf.TF_StringCopy(string, content, ctypes.c_size_t(len(content)))
        elif count:
            (_NUMBERS[dtype] * count).from_address(data)[:] = values
        return tensor

    def _read(self, tensor):
        dtype = self._tf.TF_TensorType(tensor)
        shape = [self._tf.TF_Dim(tensor, axis) for axis in range(self._tf.TF_NumDims(tensor))]
        count, data = math.prod(shape), self._tf.TF_TensorData(tensor)
        if dtype == _STRING:
            strings = [ctypes.c_void_p(data + place * _STRING_BYTES) for place in range(count)]
            values = [
                ctypes.string_at(
                    self._tf.TF_StringGetDataPointer(string), self._tf.TF_StringGetSize(string)
                ).decode("latin-1")
                for string in strings
            ]
        else:
            values = list((_NUMBERS[dtype] * count).from_address(data)) if count else []
        self._tf.TF_DeleteTensor(tensor)
        return {"dtype": dtype, "shape": shape, "values": values}


def main():
    plan = json.load(sys.stdin)
    session = CSession(plan["libraries"], plan["op_libraries"], plan["directory"])
    json.dump([session.run(**each) for each in plan["runs"]], sys.stdout)


if __name__ == "__main__":
    main()
