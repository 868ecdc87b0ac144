"""`python -m tfdist.models.training.task`: runs the task described by TFDIST_SPEC and TF_CONFIG, emits its record."""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NoReturn

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Phase, dump_on_request
from tfdist.models.datasets import table
from tfdist.models.datasets.table import check_data
from tfdist.models.spec import EVALUATOR, TrainingSpec
from tfdist.models.training.preemption import PreemptedError
from tfdist.strategies.build import serve, serves
from tfdist.strategies.options import LEGACY_KERAS, Keras


def main() -> int:
    """Run the task that the environment describes.

    Returns:
        The exit code: 0; 42 if the training was saved because a signal requested it; that of a TfdistError, whose
        message goes to stderr; or 1 for any other exception, whose traceback goes there.
    """
    return run(lambda: _train(spec_of_environment(), *cluster_and_task()))


def run(task: Callable[[], None]) -> int:
    """Run what this process is for, with the launcher's means against failures and hangs; returns as `main`."""
    events.report_failures()
    dump_on_request()
    try:
        task()
    except TfdistError as error:
        events.report_failure(error, kind="")
        sys.stderr.write(f"tfdist: {error}\n")
        return error.exit_code
    except PreemptedError:
        return ExitCode.PREEMPTED
    except Exception:
        sys.excepthook(*sys.exc_info())
        return ExitCode.FAILED
    return ExitCode.SUCCESS


def spec_of_environment() -> TrainingSpec:
    """The spec from the environment, checked again: a task can be started manually, on a host with other data."""
    spec = TrainingSpec.from_env(os.environ)
    if spec is None:
        raise TfdistError(f"{TrainingSpec.VARIABLE} is not set: start trainings with `tfdist launch`")
    check_data(spec, table.describe(spec.dataset, spec.data_dir))
    return spec


def cluster_and_task() -> tuple[Cluster, Task]:
    """This task, and its cluster: an empty one in a job without."""
    config = os.environ.get("TF_CONFIG")
    if config:
        return parse_tf_config(config)
    role, _, index = os.environ.get("TFDIST_TASK", "worker-0").rpartition("-")  # a job without a cluster
    return Cluster({}), Task(role, int(index))


def _train(spec: TrainingSpec, cluster: Cluster, task: Task) -> None:
    phases = {"import": start(spec, cluster, task)}

    from tfdist.models.training.leading import connect, prepare, train

    train(lambda: connect(spec, task), prepare, phases)


def start(spec: TrainingSpec, cluster: Cluster, task: Task) -> float:
    """Import TensorFlow; returns the seconds that it took. An evaluator, or a task that only serves, never returns."""
    seconds = import_tensorflow(spec.keras)
    if task.role == EVALUATOR:
        from tfdist.models.training.evaluate import follow

        follow(spec)
        leave(ExitCode.SUCCESS)
    if serves(spec, task):
        serve(spec, cluster, task)
    return seconds


def import_tensorflow(keras: Keras) -> float:
    """Import TensorFlow with this Keras; returns the seconds that it took.

    Without the garbage collector, which would search the growing modules again and again: 2.4 s of CPU time, not 2.9.
    And without pandas and scipy, which Keras imports for data and images that we do not have: 2.0 s.
    """
    events.emit("phase", phase=Phase.IMPORTING)
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


def leave(code: int) -> NoReturn:
    """End the process without TensorFlow's clean-up, which takes seconds of every run and sometimes a minute."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
