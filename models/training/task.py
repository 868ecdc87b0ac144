"""`python -m tfdist.models.training.task`: TFDIST_SPEC and TF_CONFIG -> one task of a training -> its record."""

import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.launch.errors import TfdistError
from tfdist.models.checks import check_combinations
from tfdist.models.datasets import table
from tfdist.models.record import RankRecord
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import observation
from tfdist.strategies.catalog import CATALOG, Api, Keras

if TYPE_CHECKING:
    from tfdist.models.training.context import TrainingContext, TrainingResult

TASK_VARIABLE = "TFDIST_TASK"
"""`worker-1`: which task this is, where no TF_CONFIG says it."""


def main() -> int:
    """Train as the environment says.

    Returns:
        The exit code: 0, or that of a TfdistError, whose sentence goes to stderr.
    """
    try:
        _train(_spec(), *_place())
    except TfdistError as error:
        sys.stderr.write(f"tfdist: {error}\n")
        return error.exit_code
    return 0


def _spec() -> TrainingSpec:
    """The spec in the environment, refused here too if it cannot be trained: a task can be started by hand."""
    spec = TrainingSpec.from_env(os.environ)
    if spec is None:
        raise TfdistError(f"{TrainingSpec.VARIABLE} is not set: start trainings with `tfdist launch`")
    check_combinations(spec)
    _check_data(spec)
    return spec


def _check_data(spec: TrainingSpec) -> None:
    info = table.describe(spec.dataset, spec.data_dir)
    if info.classes is not None and info.classes > spec.classes:
        raise TfdistError(f"--dataset {spec.dataset} has {info.classes} classes: --classes {spec.classes} is too few")
    if spec.evaluate and not info.test_examples:
        raise TfdistError(f"--dataset {spec.dataset} has no held-out examples to evaluate on: use digits, say")


def _place() -> tuple[Cluster, Task]:
    config = os.environ.get("TF_CONFIG")
    if config:
        return parse_tf_config(config)
    role, _, index = os.environ.get(TASK_VARIABLE, "worker-0").rpartition("-")
    return Cluster({}), Task(role, int(index))


def _train(spec: TrainingSpec, cluster: Cluster, task: Task) -> None:
    from tfdist.strategies.serve import serve, serves

    phases = {"import": _import(spec.keras)}
    if serves(spec, task):
        serve(spec, cluster, task, lambda: events.emit("ready"))
    began = time.perf_counter()
    job = _job(spec, task)
    made = time.perf_counter()
    events.emit("ready")
    trained = _run(job)
    phases |= start_up(began, made, trained.opened_at, trained.first_step_at)
    phases["first_step_end"] = observation.since_start() - (time.perf_counter() - trained.first_step_at)
    events.emit("record", record=asdict(_record(job, trained, phases, _accuracy(job, trained))))


def start_up(began: float, made: float, opened_at: float, first_step_at: float) -> dict[str, float]:
    """The seconds of each phase after the import, from the clock's readings at their edges."""
    return {"strategy": made - began, "build": opened_at - made, "trace": first_step_at - opened_at}


def _import(keras: Keras) -> float:
    """Import TensorFlow with the Keras that it must bring, and say how many seconds that took."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if keras is Keras.TWO else "0"
    began = time.perf_counter()
    import tensorflow as tf

    assert tf.keras.__name__
    return time.perf_counter() - began


def _job(spec: TrainingSpec, task: Task) -> "TrainingContext":
    """What must come before the first TensorFlow operation, in its order: devices and strategy, then the seed."""
    import tensorflow as tf

    from tfdist.models.training.context import TrainingContext
    from tfdist.strategies.build import build

    strategy = build(spec)
    tf.keras.utils.set_random_seed(spec.seed)
    tf.keras.mixed_precision.set_global_policy(spec.precision)
    row = CATALOG[spec.strategy]
    together = spec.workers if row.synchronous and row.has_cluster else 1
    return TrainingContext(spec, strategy, task, together)


def _run(job: "TrainingContext") -> "TrainingResult":
    from tfdist.models.training import async_loop, fit, loop

    if job.spec.api is Api.FIT:
        return fit.train(job)
    return loop.train(job) if CATALOG[job.spec.strategy].synchronous else async_loop.train(job)


def _accuracy(job: "TrainingContext", trained: "TrainingResult") -> float | None:
    from tfdist.models.training.evaluate import accuracy

    return accuracy(job, trained) if job.spec.evaluate else None


def _record(
    job: "TrainingContext", trained: "TrainingResult", phases: dict[str, float], accuracy: float | None
) -> RankRecord:
    return RankRecord(
        task=job.task.name,
        replicas=job.replicas,
        warmup=trained.warmup,
        windows=trained.windows,
        phases_s=phases,
        examples_applied=trained.examples,
        updates_applied=trained.updates,
        accuracy=accuracy,
        software=observation.software(job.spec.keras),
        environment=observation.environment(os.environ),
        **observation.process(),
    )


def leave(code: int) -> NoReturn:
    """End the process without taking TensorFlow apart, which costs seconds of every run, and at times a minute."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
