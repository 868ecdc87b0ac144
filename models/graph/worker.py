"""A worker of between-graph: it trains a step for each ticket, until the launcher stops it."""

import os
from typing import Any, NoReturn

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.events import Phase
from tfdist.models.graph import between, sessions
from tfdist.models.graph.between import BetweenGraph
from tfdist.models.spec import TrainingSpec


def work(spec: TrainingSpec, cluster: Cluster, task: Task) -> NoReturn:
    """Train as this worker. Its session fails when a parameter server is lost."""
    server = sessions.start_server(spec, cluster, task)
    events.emit("phase", phase=Phase.BUILDING)
    ours = between.build(spec, task)
    session = sessions.open_session(spec, server, ours.graph, ["/job:ps", f"/job:{task.role}/task:{task.index}"])
    sessions.watch(session, ours.probe)
    events.emit("ready")
    _rejoin(session, ours)
    session.run(ours.take)
    ours.inputs.start(session, session.run(ours.position))
    session.run(ours.begin)
    while True:
        session.run(ours.step)


def _rejoin(session: Any, ours: BetweenGraph) -> None:
    """Rejoin after a restart of this worker alone: its last process may have had tickets."""
    if os.environ.get("TFDIST_ATTEMPT", "0") == "0":
        return
    try:
        session.run(ours.put_back)
    except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
        return  # the whole job was restarted, and the chief has dealt out no tickets yet
