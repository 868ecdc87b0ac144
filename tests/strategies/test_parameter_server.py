"""Placement and partitioners, on a stand-in of the same shape as ParameterServerStrategy's `extended`."""

from dataclasses import dataclass, field, replace

import pytest

from tfdist.models.spec import TrainingSpec


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
