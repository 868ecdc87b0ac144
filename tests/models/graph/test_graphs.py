"""Parts of graphs, run in sessions of this process: its server is the one parameter server."""

import numpy as np
import pytest

from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.strategies.options import Placement, StrategyName

SPEC = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=1, batch_size=8)


@pytest.fixture(scope="module")
def ps() -> str:
    """The address of a server that is the job ps."""
    import tensorflow as tf

    server = tf.distribute.Server({"ps": ["127.0.0.1:0"]}, job_name="ps", task_index=0, protocol="grpc")
    return str(server.target)


def test_tickets_of_a_lost_worker_are_put_back(ps):
    import tensorflow as tf

    from tfdist.models.graph import tickets

    with tf.Graph().as_default() as graph:
        dealt = tickets.create(SPEC)
        take, end, put_back = dealt.take(1), dealt.end(1), dealt.put_back(1)
        send = dealt.send(1, *map(tf.constant, (np.int64(3), np.int64(5), np.float32(0.5))))
        left = dealt.queue.size()
    session = tf.compat.v1.Session(ps, graph)
    session.run([dealt.taken.initializer, dealt.ended.initializer])
    session.run(dealt.issue, {dealt.count: 4})
    for operation in (take, end, take, take):
        session.run(operation)
    assert session.run(left) == 1
    session.run(put_back)
    assert session.run(left) == 3
    session.run(put_back)
    assert session.run(left) == 3
    session.run(send)
    assert session.run(dealt.received) == 1
    results = tickets.Results(*session.run(dealt.receive, {dealt.count: 1}))
    assert [column.tolist() for column in results] == [[1], [3], [5], [0.5]]


@pytest.mark.parametrize("optimizer", Optimizer)
def test_optimizers_compute_the_updates_of_keras_and_continue_theirs(optimizer):
    import tensorflow as tf
    from tf_keras.optimizers import legacy

    from tfdist.models.graph import variables

    spec = TrainingSpec(optimizer=optimizer, learning_rate=0.1)
    gradients = 1e-6 * np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)  # as small as epsilon is
    keras = {Optimizer.ADAM: legacy.Adam, Optimizer.SGD: legacy.SGD}[optimizer](0.1)
    weight = tf.Variable(np.ones(4, np.float32))
    for gradient in gradients:
        keras.apply_gradients([(tf.constant(gradient), weight)])
    with tf.Graph().as_default() as graph:
        ours = tf.compat.v1.Variable(np.ones(4, np.float32), use_resource=True, name="weight")
        gradient = tf.compat.v1.placeholder(tf.float32, (4,))
        base = variables.build_optimizer(spec)
        step = base.apply_gradients([(gradient, ours)])
        slots, powers = variables.slots_of(base, [ours]), variables.powers_of(base)
        value = ours.read_value()
        initialize = tf.compat.v1.global_variables_initializer()
    assert [slot.op.name for slot in slots] == (["weight/Adam", "weight/Adam_1"] if slots else [])
    session = tf.compat.v1.Session(graph=graph)
    session.run(initialize)
    for number, row in enumerate(gradients):
        # as after reading a checkpoint
        session.run([v.initializer for v, _ in powers], {v.initializer.inputs[1]: b ** (number + 1) for v, b in powers})
        session.run(step, {gradient: row})
    assert session.run(value) == pytest.approx(weight.numpy(), abs=1e-6)


def created(spec: TrainingSpec, shapes: list[tuple[int, ...]]) -> list[tuple[str, tuple[int, ...]]]:
    """The task that holds each variable or shard of these shapes, and its shape."""
    import tensorflow as tf

    from tfdist.models.graph import placement

    parts = []
    with tf.Graph().as_default(), tf.variable_creator_scope(placement.placing(spec)):
        for shape in shapes:
            variable = tf.compat.v1.Variable(
                lambda shape=shape: tf.ones(shape),
                trainable=True,
                dtype=tf.float32,
                shape=tf.TensorShape(shape),
                name="v",
            )
            parts += getattr(variable, "variables", [variable])
    return [(part.device.split("/")[1] + part.device.split("/")[3], tuple(part.shape)) for part in parts]


def test_variables_are_placed_in_turn_by_size_or_in_shards():
    two = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=2)
    shapes = [(9, 9), (2,), (3, 3)]
    assert [task for task, _ in created(two, shapes)] == ["job:pstask:0", "job:pstask:1", "job:pstask:0"]
    greedy = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=2, placement=Placement.GREEDY)
    assert [task for task, _ in created(greedy, shapes)] == ["job:pstask:0", "job:pstask:1", "job:pstask:1"]
    shards = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=2, variable_partitioner="fixed:2")
    assert created(shards, [(5, 2), (1,)]) == [
        ("job:pstask:0", (3, 2)), ("job:pstask:1", (2, 2)), ("job:pstask:0", (1,)),
    ]  # fmt: skip
    alone = TrainingSpec(strategy=StrategyName.IN_GRAPH, workers=2, ps=0)
    assert {task for task, _ in created(alone, shapes)} == {"job:workertask:0"}


def test_a_batch_of_synthetic_data_is_that_of_its_replica():
    import tensorflow as tf

    from tfdist.models.datasets import synthetic
    from tfdist.models.graph.replica import inputs

    spec = TrainingSpec(dataset="synthetic", image_size=32, batch_size=2, classes=10, workers=2)
    with tf.Graph().as_default() as graph:
        batch = inputs(spec, 1)
    session = tf.compat.v1.Session(graph=graph)
    batch.start(session, 0)
    images, labels = session.run([batch.images, batch.labels])
    expected_images, expected_labels = synthetic.batch(spec, 1)
    assert (images == expected_images.numpy()).all()
    assert (labels == expected_labels.numpy()).all()


def test_real_data_starts_at_the_example_of_the_checkpoint():
    import tensorflow as tf

    from tfdist.models.datasets import pipeline
    from tfdist.models.graph.replica import inputs
    from tfdist.models.training import feed

    spec = TrainingSpec(dataset="digits", image_size=32, batch_size=4, classes=10, workers=2, shuffle=64)
    expected = next(iter(feed.batches(spec, pipeline.Share(2, 1), 16)))
    with tf.Graph().as_default() as graph:
        batch = inputs(spec, 1)
    session = tf.compat.v1.Session(graph=graph)
    batch.start(session, 16)
    images, labels = session.run([batch.images, batch.labels])
    assert labels.tolist() == expected[1].numpy().tolist()
    assert (images == expected[0].numpy()).all()


def test_an_update_has_the_examples_of_all_workers_that_step_together():
    assert SPEC.update_examples == 8
    sync = {"strategy": StrategyName.BETWEEN_GRAPH, "workers": 3, "ps": 1, "batch_size": 8, "sync": True}
    assert TrainingSpec(**sync).update_examples == 24
    assert TrainingSpec(**sync, backup_workers=1).update_examples == 16
