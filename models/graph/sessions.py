"""The server of a task in graph mode, its session, and what ends the task when other tasks no longer answer."""

import faulthandler
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.ending import leave
from tfdist.strategies import build

v1 = tf.compat.v1
PROBE_S = 5.0
"""Seconds between two liveness checks of the other tasks."""
SILENCE_S = 60
"""A task ends after this many seconds without an answer. Then no setting of gRPC makes its session end by itself."""
_OPEN: list[Any] = []
"""Sessions are never closed: that waits for ever for a task that is gone. They end with the process."""


def device_of(task: Task) -> str:
    """The prefix of the names of a task's devices."""
    return f"/job:{task.role}/replica:0/task:{task.index}"


def start_server(spec: TrainingSpec, cluster: Cluster, task: Task) -> Any:
    """Start this task's tf.distribute.Server.

    Raises:
        TfdistError: the task has no cluster.
    """
    if not cluster.addresses:
        raise TfdistError(f"TF_CONFIG is not set, and {spec.strategy} needs a cluster: use `tfdist launch`")
    events.emit("phase", phase=events.Phase.CONNECTING)
    return build.start_server(spec, cluster, task)


def open_session(spec: TrainingSpec, server: Any, graph: tf.Graph, filters: Sequence[str] = ()) -> Any:
    """A session of `graph` on this task's server.

    Args:
        spec: of the training.
        server: of this task.
        graph: complete: nothing is added later.
        filters: the jobs and tasks that it talks to; empty: all. Others need not be up.
    """
    graph.finalize()
    config = v1.ConfigProto(
        device_filters=[*filters],
        allow_soft_placement=spec.soft_placement,
        log_device_placement=spec.log_device_placement,
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = not spec.meta_optimizer
    session = v1.Session(server.target, graph, config)
    _OPEN.append(session)
    return session


def probe(names: Sequence[str]) -> tf.Operation:
    """An operation of the current graph that runs on each of these devices."""
    clocks = []
    for name in names:
        with tf.device(name):
            clocks.append(tf.timestamp())
    return tf.group(*clocks)


def watch(session: Any, operation: tf.Operation) -> None:
    """End this process if `operation`, a `probe`, does not run for SILENCE_S. In turns, only the launcher does so."""
    if events.in_turns():
        return
    answers = 0

    def ask() -> None:
        nonlocal answers
        while True:
            with suppress(tf.errors.OpError):  # no answer
                session.run(operation)
                answers += 1
            time.sleep(PROBE_S)

    Thread(target=ask, daemon=True).start()
    Thread(target=lambda: guard(lambda: answers, time.sleep, _end), daemon=True).start()


def guard(answers: Callable[[], int], sleep: Callable[[float], None], end: Callable[[], None]) -> None:
    """Call `end` once the number of answers has stayed the same for SILENCE_S. Before the first one the others start.

    It counts seconds that it has slept, not those of a clock: a process that was stopped for a while has missed none.
    """
    silent = 0
    last = answers()
    while silent < SILENCE_S:
        sleep(1.0)
        number = answers()
        silent = silent + 1 if number == last and number else 0
        last = number
    end()


def _end() -> None:
    sys.stderr.write(f"tfdist: no answer from the servers of this training for {SILENCE_S} s: ending this task\n")
    faulthandler.dump_traceback(all_threads=True)
    leave(ExitCode.PEER_LOST)
