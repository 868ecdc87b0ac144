"""Placement and partitioners, on a stand-in of the same shape as ParameterServerStrategy's `extended`."""

from dataclasses import dataclass, field, replace

import pytest
import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies.parameter_server import _retry, wait_for_servers


def unavailable(times):
    """A call that fails N times, and the list of its calls."""
    calls = []

    def call():
        calls.append(1)
        if len(calls) <= times:
            raise tf.errors.UnavailableError(None, None, "Connection refused")

    return call, calls


def test_a_worker_that_does_not_reach_a_server_yet_is_tried_again(monkeypatch):
    monkeypatch.setattr("tfdist.strategies.parameter_server.RETRY_S", 0.0)
    call, calls = unavailable(3)
    _retry(call, float("inf"))
    assert len(calls) == 4


def test_after_the_deadline_the_error_is_raised(monkeypatch):
    monkeypatch.setattr("tfdist.strategies.parameter_server.RETRY_S", 0.0)
    call, calls = unavailable(3)
    with pytest.raises(tf.errors.UnavailableError):
        _retry(call, 0.0)
    assert len(calls) == 1


@pytest.mark.parametrize(("attempt", "reads"), [("0", 0), ("1", 6)])
def test_only_a_restarted_chief_waits(attempt, reads, monkeypatch):
    monkeypatch.setenv("TFDIST_ATTEMPT", attempt)
    monkeypatch.setattr("tfdist.strategies.parameter_server._run_on", lambda worker, read: seen.append(worker))
    monkeypatch.setattr(tf, "device", lambda name: tf.name_scope("x"))
    seen = []
    wait_for_servers(workers=3, servers=2)
    assert len(seen) == reads


@dataclass
class Extended:
    """Places variable number n on server n % servers, as TensorFlow 2.21 does."""

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
