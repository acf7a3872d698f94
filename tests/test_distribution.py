"""keras_bert.training.distribution: hosts that wait for each other say so; clusters that are none."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from test_trainer import free_ports

from keras_bert.training.distribution import make_strategy

JOIN = """
from keras_bert.training.distribution import make_strategy
print(make_strategy("multi_worker").num_replicas_in_sync)
"""


def test_a_host_says_that_it_waits_and_goes_on_when_the_other_comes():
    addresses = [f"localhost:{port}" for port in free_ports(2)]

    def start(index):
        task = {"type": "worker", "index": index}
        cluster = {"cluster": {"worker": addresses}, "task": task}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": json.dumps(cluster)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", JOIN], env=environment, **pipes)

    with start(0) as first:
        lines = []
        while not lines or "Waiting until all 2 hosts of TF_CONFIG" not in lines[-1]:
            lines.append(first.stderr.readline())
            assert lines[-1], "".join(lines)
        assert first.poll() is None
        with start(1) as second:
            for process in (first, second):
                out, err = process.communicate(timeout=120)
                assert (process.returncode, out.strip()) == (0, "2"), err


@pytest.mark.parametrize(
    "config",
    [
        None,
        "worker",
        "[]",
        '{"cluster": {}}',
        '{"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
    ],
)
def test_a_cluster_that_is_none_is_refused(monkeypatch, config):
    if config is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="needs TF_CONFIG in the environment of each host"):
        make_strategy("multi_worker")
