"""Placement and partitioners, on a stand-in of the same shape as ParameterServerStrategy's `extended`."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies.parameter_server import wait_for_servers


@pytest.fixture
def read_devices(monkeypatch):
    """The device of each read of a restarted chief; the first three fail."""
    monkeypatch.setenv("TFDIST_ATTEMPT", "1")
    monkeypatch.setattr("tfdist.strategies.parameter_server.RETRY_S", 0.0)
    used, read = [], []

    def device(name):
        used.append(name)
        return nullcontext()

    def value():
        read.append(used[-1])
        if len(read) <= 3:
            raise tf.errors.UnavailableError(None, None, "Connection refused")
        return tf.constant(0.0)

    monkeypatch.setattr(tf, "device", device)
    monkeypatch.setattr(tf, "function", lambda _: value)
    return read


def test_a_worker_that_does_not_reach_a_server_yet_is_tried_again(read_devices):
    wait_for_servers(workers=2, servers=2)
    one, other = (f"/job:worker/task:{index}" for index in range(2))
    assert read_devices == [one, one, one, one, other, one, other]


def test_after_the_deadline_the_error_is_raised(read_devices, monkeypatch):
    monkeypatch.setattr("tfdist.strategies.parameter_server.TIMEOUT_S", -1.0)
    with pytest.raises(tf.errors.UnavailableError):
        wait_for_servers(workers=2, servers=2)
    assert len(read_devices) == 1


def test_only_a_restarted_chief_waits(read_devices, monkeypatch):
    monkeypatch.setenv("TFDIST_ATTEMPT", "0")
    wait_for_servers(workers=3, servers=2)
    assert read_devices == []


@dataclass
class Extended:
    """Places variable number n on server n % servers, as TensorFlow does."""

    servers: int
    _variable_count: int = 0
    placed: list[int] = field(default_factory=list)

    def _create_variable_round_robin(self, next_creator, **kwargs):
        variable = next_creator(**kwargs)
        self.placed.append(self._variable_count % self.servers)
        self._variable_count += 1
        return variable


@pytest.fixture(scope="module")
def parameter_server():
    from tfdist.strategies import parameter_server

    return parameter_server


def create(extended, *sizes):
    import tensorflow as tf

    for size in sizes:
        shape = tf.TensorShape([size])
        variable = type("Variable", (), {"shape": shape, "dtype": tf.float32})
        extended._create_variable_round_robin(lambda variable=variable, **_: variable)


def test_greedy_fills_the_least_loaded_server(parameter_server):
    extended = Extended(2)
    parameter_server.place_greedily(extended, 2)
    create(extended, 100, 10, 10, 10, 100)
    assert extended.placed == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "shards"),
    [("fixed:3", [3, 1]), ("min-size:2048", [2, 1]), ("max-size:1024", [4, 1]), ("min-size:999999", [1, 1])],
)
def test_each_partitioner_makes_its_number_of_shards(parameter_server, text, shards):
    """A matrix of 64 x 16 float32 is 4,096 bytes."""
    import tensorflow as tf

    partitioner = parameter_server.variable_partitioner(replace(TrainingSpec(), variable_partitioner=text, ps=4))
    assert list(partitioner(tf.TensorShape([64, 16]), tf.float32)) == shards


def test_no_partitioner(parameter_server):
    assert parameter_server.variable_partitioner(TrainingSpec(ps=1)) is None
