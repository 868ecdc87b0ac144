"""Between-graph replication: every task builds this graph, and finds the others' variables by their names.

Workers run its steps, one for each ticket, until the launcher stops them. The chief initializes the variables, deals
out tickets and, if workers step together, applies their gradients.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task
from tfdist.models.architectures.build import build as build_model
from tfdist.models.graph import placement, replica, sessions, tickets
from tfdist.models.graph.replica import Inputs, Replica
from tfdist.models.graph.tickets import Tickets
from tfdist.models.graph.variables import Variables, averages_of, build_optimizer, variables_of
from tfdist.models.spec import TrainingSpec

v1 = tf.compat.v1


@dataclass(frozen=True)
class WorkerSteps:
    """The steps of a worker."""

    step: list[Any]
    """One step, and the next ticket."""
    begin: tf.Operation
    """Run it in a worker before its first step."""
    prepare: tf.Operation
    """Run it in the chief after the variables have been initialized."""
    update: tf.Operation | None = None
    """Applies the gradients of the workers once there are enough; None: workers apply theirs."""


@dataclass(frozen=True)
class BetweenGraph:
    """The graph of one task. Its operations are for a session of this task."""

    graph: tf.Graph
    inputs: Inputs
    variables: Variables
    tickets: Tickets
    offset: tf.Variable
    """Examples that were trained besides those of the updates, each with the present batch."""
    position: tf.Tensor
    """Examples that all workers together have trained."""
    take: tf.Tensor
    """Waits for the first ticket of a worker."""
    put_back: tf.Operation
    """Puts back the tickets that an earlier process of this worker had."""
    steps: WorkerSteps
    used: tf.Tensor
    """Whether the parameter servers hold variables already."""
    probe: tf.Operation
    filters: tuple[str, ...]
    """See `sessions.open_session`."""


def build(spec: TrainingSpec, task: Task) -> BetweenGraph:
    """The graph of a worker, or of the chief."""
    index = task.index if task.role == "worker" else None
    graph = tf.Graph()
    with graph.as_default(), tf.device(sessions.device_of(task)):
        dealt = tickets.create(spec)
        with tf.device(dealt.device):
            step = placement.untracked(tf.zeros([], tf.int64), "global_step")
            offset = placement.untracked(tf.zeros([], tf.int64), "examples_offset")
        with tf.variable_creator_scope(placement.placing(spec)):
            model = build_model(spec)
        batch = replica.placeholders(spec) if index is None else replica.inputs(spec, index)
        ours = replica.replica(spec, model, batch, index or 0)
        base = build_optimizer(spec)
        kept = averages_of(spec)
        build_steps = _synchronous if spec.sync else _asynchronous
        steps = build_steps(spec, index or 0, dealt, step, model, ours, base, kept)
        return BetweenGraph(
            graph=graph,
            inputs=batch,
            variables=variables_of(model, base, kept, step),
            tickets=dealt,
            offset=offset,
            position=offset.read_value() + step.read_value() * spec.update_examples,
            take=dealt.take(index or 0),
            put_back=dealt.put_back(index or 0),
            steps=steps,
            used=v1.is_variable_initialized(step),
            probe=sessions.probe(placement.holders(spec)),
            filters=("/job:ps", f"/job:{task.role}/task:{task.index}"),
        )


def _asynchronous(
    spec: TrainingSpec, index: int, dealt: Tickets, step: tf.Variable, model: Any, ours: Replica, base: Any, kept: Any
) -> WorkerSteps:
    """A worker applies its gradients at once, to what the variables have become meanwhile."""
    read = step.read_value()
    apply = base.apply_gradients(zip(ours.gradients, model.trainable_weights, strict=True))
    if kept is not None:
        with tf.control_dependencies([apply]):
            apply = kept.apply(model.trainable_weights)
    with tf.control_dependencies([apply, *ours.updates]), tf.device(dealt.device):
        # reads and increments at once: two updates never have the same number
        number = tf.raw_ops.ResourceCountUpTo(resource=step.handle, limit=2**62, T=tf.int64)
    result = dealt.send(index, read, number, ours.loss)
    with tf.control_dependencies([result]):
        ended = dealt.end(index)
    return WorkerSteps([ended, dealt.take(index)], tf.no_op(), tf.no_op())


def _synchronous(
    spec: TrainingSpec, index: int, dealt: Tickets, step: tf.Variable, model: Any, ours: Replica, base: Any, kept: Any
) -> WorkerSteps:
    """The mean of as many gradients as are waited for is one update; later ones of the same step are dropped."""
    read = step.read_value()
    result = dealt.send(index, read, tf.zeros([], tf.int64), ours.loss)
    # one worker speaks for all, or the statistics would move as often as there are workers
    statistics = ours.updates if index == 0 else []
    with tf.control_dependencies([result, *statistics]):  # all are there when the update is done
        gradients = [tf.identity(gradient) for gradient in ours.gradients]
    tf.get_logger().setLevel("ERROR")  # it is deprecated, as each of these tasks would say
    optimizer = v1.train.SyncReplicasOptimizer(
        base,
        spec.workers - spec.backup_workers,
        total_num_replicas=spec.workers,
        variable_averages=kept,
        variables_to_average=model.trainable_weights,
    )
    pairs = zip(gradients, model.trainable_weights, strict=True)
    pushed = optimizer.apply_gradients(pairs, global_step=step)
    optimizer.ready_for_local_init_op.mark_used()  # or TensorFlow reports that it is not
    with tf.control_dependencies([pushed]):
        ended = dealt.end(index)
        ticket = dealt.take(index)
    (update,) = optimizer.get_chief_queue_runner().enqueue_ops
    return WorkerSteps([ended, ticket], optimizer.local_step_init_op, optimizer.chief_init_op, update)


def work(spec: TrainingSpec, cluster: Cluster, task: Task) -> NoReturn:
    """Train as this worker. Its session fails when a parameter server is lost."""
    server = sessions.start_server(spec, cluster, task)
    events.emit("phase", phase=events.Phase.BUILDING)
    ours = build(spec, task)
    session = sessions.open_session(spec, server, ours.graph, ours.filters)
    sessions.watch(session, ours.probe)
    events.emit("ready")
    if os.environ.get("TFDIST_ATTEMPT", "0") != "0":  # this worker's last process may have had tickets
        # or the whole job was restarted, and the chief has dealt out no tickets yet
        with suppress(tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
            session.run(ours.put_back)
    session.run(ours.take)
    ours.inputs.start(session, session.run(ours.position))
    session.run(ours.steps.begin)
    while True:
        session.run(ours.steps.step)
