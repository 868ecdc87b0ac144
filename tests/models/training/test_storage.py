"""Bytes and requests of variables, of a small model and a traced step."""

from tfdist.models.record import Storage


def test_variables_are_counted_by_device():
    import tensorflow as tf

    from tfdist.models.training.storage import stored

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        copies = tf.Variable(tf.zeros([3, 4]))
    assert stored([copies, tf.Variable(1.0, dtype=tf.float64)]) == {"CPU:0": Storage(variables=2, bytes=48 + 8)}


class Outside:
    """A variable's handle on a parameter server, seen from the chief."""

    def __init__(self, handle, server: int) -> None:
        self.dtype, self.device = handle.dtype, f"/job:ps/replica:0/task:{server}/device:CPU:0"


class Graph:
    """A traced function whose variables are on parameter servers."""

    def __init__(self, graph, servers) -> None:
        self.captures = [
            (Outside(outside, server), inside)
            for (outside, inside), server in zip(graph.captures, servers, strict=True)
        ]
        self.get_operations = graph.get_operations


def test_a_read_moves_the_variable_and_an_update_its_arguments():
    import tensorflow as tf

    from tfdist.models.training.storage import combined, requests

    weights, count = tf.Variable(tf.zeros([5, 2])), tf.Variable(tf.zeros([], tf.int64))

    @tf.function
    def step(gradient):
        weights.assign_sub(0.5 * weights.read_value() * gradient, read_value=False)
        count.assign_add(1, read_value=False)

    graph = step.get_concrete_function(tf.TensorSpec([5, 2])).graph
    found = requests(Graph(graph, (0, 2)))
    assert found == {
        "ps-0": Storage(reads=1, read_bytes=40, updates=1, update_bytes=40),
        "ps-2": Storage(updates=1, update_bytes=8),
    }
    assert requests(graph) == {}, "they are not on a server"
    merged = combined({"ps-0": Storage(1, 40), "ps-1": Storage(3, 9)}, found)
    assert list(merged) == ["ps-0", "ps-1", "ps-2"]
    assert merged["ps-0"] == Storage(1, 40, 1, 40, 1, 40)
    assert merged["ps-1"] == Storage(3, 9)


def test_what_stays_on_its_server_is_no_request():
    """A moving average follows its weight on the same server; a read that the worker uses too is still a request."""
    import tensorflow as tf

    from tfdist.models.training.storage import requests

    weight, average, used = tf.Variable(tf.zeros([5, 2])), tf.Variable(tf.zeros([5, 2])), tf.Variable(tf.zeros([3]))

    @tf.function
    def step():
        with tf.device("/job:ps/replica:0/task:1/device:CPU:0"):
            average.assign_sub((average - weight) * 0.5, read_value=False)
            used.assign_sub(tf.zeros([3]), read_value=False)
        return used.read_value()

    graph = step.get_concrete_function().graph
    assert requests(Graph(graph, (1, 1, 1))) == {"ps-1": Storage(reads=1, read_bytes=12)}
    elsewhere = requests(Graph(graph, (0, 0, 0)))["ps-0"]
    assert (elsewhere.reads, elsewhere.updates) == (3, 2)
