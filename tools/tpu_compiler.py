"""Compiles a serialized HLO program with the TPU compiler of PyPI's libtpu; no TPU is needed.

    python tools/tpu_compiler.py PROGRAM.pb --topology v5e:2x2

Needs `pip install jax libtpu`, and a process without TensorFlow. Prints a JSON object: bytes of
arguments, temporaries, outputs, of outputs that take the place of arguments (alias) and of code; or
`error`, where the compiler refuses the program. Works through private interfaces of jax (0.10).
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else it asks a cloud that is not there

from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax, xla_client
from jax.errors import JaxRuntimeError
from jax.experimental import topologies
from jaxlib.mlir import ir


def compile_program(serialized, topology):
    device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    with mlir.make_ir_context():
        computation = xla_client.XlaComputation(serialized)
        module = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
        drop_copies(module)
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        return device.client.compile(module, xla_client.DeviceList((device,)), options)


def drop_copies(module):
    """Takes out HLO's copies, which jax does not read; the compiler adds those that it needs."""
    copies = []

    def collect(operation):
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", help="file with a serialized HLO module")
    parser.add_argument("--topology", default="v5e:2x2")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    try:
        executable = compile_program(Path(options.program).read_bytes(), options.topology)
    except JaxRuntimeError as error:
        print(json.dumps({"error": str(error)}))
        return
    stats = executable.get_compiled_memory_stats()
    sizes = {
        "arguments": stats.argument_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "alias": stats.alias_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    print(json.dumps({**sizes, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
