"""The chief of a training in graph mode: it initializes, saves and measures."""

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.graph import between, in_graph, sessions
from tfdist.models.graph.between import GraphContext
from tfdist.models.graph.steps import AsyncSteps, InGraphSteps, SyncSteps
from tfdist.models.graph.variables import Copies, Variables, copies
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingState
from tfdist.models.training.pace import Loop
from tfdist.strategies.options import StrategyName


class ChiefLoop(Loop, Protocol):
    """The loop of a chief."""

    @property
    def steps(self) -> int:
        """Trained so far, before the checkpoint too."""


def connect(spec: TrainingSpec, cluster: Cluster, task: Task) -> GraphContext:
    """The training, with this task's server."""
    server = sessions.start_server(spec, cluster, task)
    return GraphContext(spec, tf.distribute.get_strategy(), task, 1, server=server)


def prepare(job: GraphContext) -> tuple[ChiefLoop, Callable[[], TrainingState]]:
    """The loop of the chief, and what has been trained so far."""
    return _in_graph(job) if job.spec.strategy is StrategyName.IN_GRAPH else _between(job)


def _between(job: GraphContext) -> tuple[ChiefLoop, Callable[[], TrainingState]]:
    spec, start = job.spec, job.start
    built = between.build(spec, job.task)
    session = sessions.open_session(spec, job.server, built.graph, ["/job:ps", "/job:chief"])
    _refuse_used(session, built.used)
    ours = copies(job)
    others = (
        (built.offset, start.examples - start.step * job.batch),
        *((counts, [0] * spec.workers) for counts in (built.tickets.taken, built.tickets.ended)),
    )
    ours.upload(session, built.variables, start.step, others)
    session.run(built.steps.prepare)
    sessions.watch(session, built.probe)
    steps: ChiefLoop = AsyncSteps(session, spec, built.tickets, start.step)
    if built.steps.update is not None:
        steps = SyncSteps(session, spec, built.tickets, built.steps.update, start.step)
    return steps, _trained(job, session, steps, built.variables, ours)


def _in_graph(job: GraphContext) -> tuple[ChiefLoop, Callable[[], TrainingState]]:
    spec, start = job.spec, job.start
    built = in_graph.build(spec, job.task)
    session = sessions.open_session(spec, job.server, built.graph)
    _refuse_used(session, built.used)
    ours = copies(job)
    ours.upload(session, built.variables, start.step)
    for tower in built.inputs:
        tower.start(session, start.examples)
    sessions.watch(session, built.probe)
    steps = InGraphSteps(session, job.batch, built.step, built.loss, start.step)
    return steps, _trained(job, session, steps, built.variables, ours)


def _refuse_used(session: Any, used: tf.Tensor) -> None:
    if session.run(used):
        raise TfdistError(
            "the servers hold the variables of an earlier training, whose queues may be closed: restart them with "
            "the other tasks"
        )


def _trained(
    job: GraphContext, session: Any, steps: ChiefLoop, variables: Variables, ours: Copies
) -> Callable[[], TrainingState]:
    """A function that copies what has been trained so far from the session.

    It raises a TfdistError if there are other updates than steps were trained: more are possible after asynchronous
    workers were restarted.
    """

    def trained() -> TrainingState:
        updates = ours.download(session, variables)
        if updates < steps.steps or (job.spec.synchronous and updates != steps.steps):
            raise TfdistError(f"{updates} updates were applied in {steps.steps} steps", ExitCode.FAILED)
        examples = job.examples_at(steps.steps)
        return TrainingState(ours.model, ours.optimizer, examples, updates, session, ours.averages)

    return trained
