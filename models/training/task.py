"""Runs the task described by TFDIST_SPEC and TF_CONFIG, emits its record."""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.datasets import table
from tfdist.models.spec import EVALUATOR, TrainingSpec
from tfdist.models.training.ending import leave
from tfdist.strategies.build import serve, serves
from tfdist.strategies.options import LEGACY_KERAS, Keras

Train = Callable[[TrainingSpec, Cluster, Task, dict[str, float]], None]
"""Trains as this task; the last argument has the seconds of the start-up phases so far, by name."""


def _train(spec: TrainingSpec, cluster: Cluster, task: Task, phases: dict[str, float]) -> None:
    from tfdist.models.training.leading import connect, prepare, train

    train(lambda: connect(spec, task), prepare, phases)


def main() -> int:
    """Run the task that the environment describes; returns as `run`. A template calls it, too."""
    return run(lambda: run_training(_train))


def run(task: Callable[[], None]) -> int:
    """Run what this process is for, with the launcher's means against failures and hangs.

    Returns:
        The exit code: 0; that of a TfdistError, whose message goes to stderr; or 1 for any other exception, whose
        traceback goes there. A training that was saved because a signal requested it ends by itself, with code 42.
    """
    events.report_failures()
    events.dump_on_request()
    try:
        task()
    except TfdistError as error:
        events.report_failure(error, kind="")
        sys.stderr.write(f"tfdist: {error}\n")
        return error.exit_code
    except Exception:
        sys.excepthook(*sys.exc_info())
        return ExitCode.FAILED
    return ExitCode.SUCCESS


def run_training(train: Train) -> None:
    """Run the task that the environment describes. An evaluator, or a task that only serves, does not train."""
    spec = TrainingSpec.of_task("start trainings with `tfdist launch`")
    cluster, task = cluster_and_task()
    if task.role != "ps":  # it reads no data; again: a task can be started manually, on a host with other data
        table.check_data(spec, table.describe(spec.dataset, spec.data_dir))
    phases = {"import": import_tensorflow(spec.keras)}
    if task.role == EVALUATOR:
        from tfdist.models.training.evaluate import follow

        follow(spec)
        leave(ExitCode.SUCCESS)
    if serves(spec, task):
        serve(spec, cluster, task)
    train(spec, cluster, task, phases)


def cluster_and_task() -> tuple[Cluster, Task]:
    """This task, and its cluster: an empty one in a job without."""
    config = os.environ.get("TF_CONFIG")
    if config:
        return parse_tf_config(config)
    role, _, index = os.environ.get("TFDIST_TASK", "worker-0").rpartition("-")  # a job without a cluster
    return Cluster({}), Task(role, int(index))


def import_tensorflow(keras: Keras) -> float:
    """Import TensorFlow with this Keras; returns the seconds that it took.

    Without the garbage collector, which would search the growing modules again and again: 2.4 s of CPU time, not 2.9.
    And without pandas and scipy, which Keras imports for data and images that we do not have: 2.0 s.
    """
    events.emit("phase", phase=events.Phase.IMPORTING)
    os.environ.update(keras.environment)
    started_at = time.perf_counter()
    gc.disable()
    with _hidden("pandas", "scipy"):
        import tensorflow as tf

        assert tf.keras.__name__  # tf.keras is imported lazily
    gc.freeze()
    gc.enable()
    return time.perf_counter() - started_at


def preload() -> None:
    """Import what the tasks of this environment import, in the template from which they are forked."""
    import_tensorflow(Keras.TWO if os.environ.get(LEGACY_KERAS) == "1" else Keras.THREE)
    for module in ("numpy.random", "tfdist.models.training.leading", "tfdist.models.architectures.mobilenet_v2"):
        import_module(module)


@contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    """Let importing these fail, unless they have been imported; afterwards they can be."""
    hidden = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an ImportError
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]
