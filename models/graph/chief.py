"""The chief of a training in graph mode: it initializes, saves and measures.

In-graph replication: the chief builds one graph with a replica on each worker, whose servers run their parts. For
between-graph replication see between.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.architectures.build import build as build_model
from tfdist.models.graph import between, placement, sessions
from tfdist.models.graph.replica import Inputs, Replica, inputs, replica
from tfdist.models.graph.steps import AsyncSteps, InGraphSteps, SyncSteps
from tfdist.models.graph.variables import Variables, averages_of, build_optimizer, copies, variables_of
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.strategies.catalog import CATALOG


@dataclass(frozen=True)
class InGraph:
    """The graph, whose operations are for a session of the chief."""

    graph: tf.Graph
    inputs: tuple[Inputs, ...]
    """Inputs of each replica."""
    variables: Variables
    step: tf.Operation
    loss: tf.Tensor
    """Mean over the replicas."""
    used: tf.Tensor
    """Whether the servers hold variables already."""
    probe: tf.Operation
    filters: tuple[str, ...] = ()
    """See `sessions.open_session`."""


def build_in_graph(spec: TrainingSpec, task: Task) -> InGraph:
    """The graph, on the chief."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(sessions.device_of(task)):
        with tf.device(placement.holders(spec)[0]):
            step = placement.untracked(tf.zeros([], tf.int64), "global_step")
        with tf.variable_creator_scope(placement.placing(spec)):
            model = build_model(spec)
        batches, replicas = zip(*(_replica(spec, model, index) for index in range(spec.workers)), strict=True)
        optimizer = build_optimizer(spec)
        kept = averages_of(spec)
        gradients = _means([each.gradients for each in replicas], model.trainable_weights)
        apply = optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True), global_step=step)
        if kept is not None:
            with tf.control_dependencies([apply]):
                apply = kept.apply(model.trainable_weights)
        tasks = [Task("worker", index) for index in range(spec.workers)]
        return InGraph(
            graph=graph,
            inputs=batches,
            variables=variables_of(model, optimizer, kept, step),
            step=tf.group(apply, *replicas[0].updates),  # one replica speaks for all
            loss=tf.add_n([each.loss for each in replicas]) / spec.workers,
            used=tf.compat.v1.is_variable_initialized(step),
            probe=sessions.probe([*map(sessions.device_of, tasks), *placement.holders(spec)]),
        )


def _replica(spec: TrainingSpec, model: Any, index: int) -> tuple[Inputs, Replica]:
    with tf.device(sessions.device_of(Task("worker", index))), tf.name_scope(f"replica_{index}"):
        batch = inputs(spec, index)
        return batch, replica(spec, model, batch, index)


def _means(gradients: list[list[tf.Tensor]], weights: list[Any]) -> list[tf.Tensor]:
    """The mean of each weight's gradients over the replicas, computed where the weight is."""
    means = []
    for of_weight, weight in zip(zip(*gradients, strict=True), weights, strict=True):
        with tf.device(weight.device):
            means.append(tf.add_n(of_weight) / len(of_weight))
    return means


def connect(spec: TrainingSpec, cluster: Cluster, task: Task) -> TrainingContext:
    """The training, with this task's server."""
    server = sessions.start_server(spec, cluster, task)
    return TrainingContext(spec, tf.distribute.get_strategy(), task, 1, server=server)


ChiefLoop = AsyncSteps | SyncSteps | InGraphSteps


def prepare(job: TrainingContext) -> tuple[ChiefLoop, Callable[[], TrainingState]]:
    """The loop of the chief, and a function that copies what has been trained so far from its session.

    The function raises a TfdistError if there are other updates than steps were trained: more are possible after
    asynchronous workers were restarted.
    """
    spec, start = job.spec, job.start
    own_graphs = any(role.client for role in CATALOG[spec.strategy].roles)
    built: InGraph | between.BetweenGraph = (
        between.build(spec, job.task) if own_graphs else build_in_graph(spec, job.task)
    )
    session = sessions.open_session(spec, job.server, built.graph, built.filters)
    if session.run(built.used):
        raise TfdistError(
            "the servers hold the variables of an earlier training, whose queues may be closed: restart them with "
            "the other tasks"
        )
    ours = copies(job)
    loop: ChiefLoop
    if isinstance(built, InGraph):
        ours.upload(session, built.variables, start.step)
        for each in built.inputs:
            each.start(session, start.examples)
        loop = InGraphSteps(session, job.batch, built.step, built.loss, start.step)
    else:
        zeros = [0] * spec.workers
        examples = start.examples - start.step * job.batch
        others = ((built.offset, examples), (built.tickets.taken, zeros), (built.tickets.ended, zeros))
        ours.upload(session, built.variables, start.step, others)
        session.run(built.steps.prepare)
        loop = AsyncSteps(session, spec, built.tickets, start.step)
        if built.steps.update is not None:
            loop = SyncSteps(session, spec, built.tickets, built.steps.update, start.step)
    sessions.watch(session, built.probe)

    def trained() -> TrainingState:
        updates = ours.download(session, built.variables)
        if updates < loop.steps or (spec.synchronous and updates != loop.steps):
            raise TfdistError(f"{updates} updates were applied in {loop.steps} steps", ExitCode.FAILED)
        return TrainingState(ours.model, ours.optimizer, job.examples_at(loop.steps), updates, session, ours.averages)

    return loop, trained
