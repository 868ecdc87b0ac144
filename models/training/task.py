"""`python -m tfdist.models.training.task`: runs the task described by TFDIST_SPEC and TF_CONFIG, emits its record."""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Phase
from tfdist.launch.stack_dumps import dump_on_request
from tfdist.models.checkpointing import Checkpointing
from tfdist.models.checkpoints import check_can_be_saved
from tfdist.models.checks import check_combinations, check_data
from tfdist.models.datasets import table
from tfdist.models.plan import EVALUATOR
from tfdist.models.record import RankRecord
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import observation, pace
from tfdist.models.training.pace import Windows
from tfdist.models.training.preemption import PreemptedError
from tfdist.models.training.saved_pace import train_saved
from tfdist.models.training.schedule import total_steps
from tfdist.models.training.windows import WindowLog
from tfdist.strategies import devices
from tfdist.strategies.build import build
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Api, Keras
from tfdist.strategies.serve import serve, serves

if TYPE_CHECKING:
    from tfdist.models.training.context import Trained, TrainingContext

Context = TypeVar("Context", bound="TrainingContext")
Prepare = Callable[[Context], "tuple[pace.Loop, Callable[[], Trained]]"]


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
    check_combinations(spec)
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
    train(lambda: _context(spec, task), _prepare, phases)


def start(spec: TrainingSpec, cluster: Cluster, task: Task) -> float:
    """Import TensorFlow; returns the seconds that it took. An evaluator, or a task that only serves, never returns."""
    seconds = import_tensorflow(spec.keras)
    if task.role == EVALUATOR:
        from tfdist.models.training.evaluator import follow

        follow(spec)
        leave(ExitCode.SUCCESS)
    if serves(spec, task):
        serve(spec, cluster, task)
    return seconds


def train(connect: "Callable[[], Context]", prepare: "Prepare[Context]", phases: dict[str, float]) -> NoReturn:
    """Train as a leading task, and end this process.

    Args:
        connect: to the other tasks; it precedes any TensorFlow operation.
        prepare: from the training to its loop, and to what it has trained so far.
        phases: seconds of the start-up so far, by name.
    """
    started_at = time.perf_counter()
    job = connect()
    built_at = time.perf_counter()
    events.emit("ready")
    events.emit("phase", phase=Phase.BUILDING)
    saving = None if events.in_turns() else Checkpointing.from_env(os.environ)
    job = _started(job, saving)
    loop, trained = prepare(job)
    log = WindowLog(share=1 / job.workers)

    def report(windows: Windows, final: bool) -> None:
        since_first_step = time.perf_counter() - log.first_step_at
        after = phases_after_import(started_at, built_at, log.opened_at, log.first_step_at)
        end = {"first_step_end": observation.since_start() - since_first_step}
        record = _record(job, windows, trained(), {**phases, **after, **end}, evaluate=final and job.spec.evaluate)
        events.emit("record", record=asdict(record))

    if saving is None:
        pace.train(loop, log, job.spec, report, _evaluation(job, trained) if job.spec.evaluate_turns else None)
    else:
        _train_saved(job, saving, loop, log, trained, report)
    if not events.in_turns():
        from tfdist.models.training.exit_barrier import wait_before_exit

        wait_before_exit(job)
    leave(ExitCode.SUCCESS)


def _started(job: "Context", saving: Checkpointing | None) -> "Context":
    """The training from its checkpoint on, if it continues one, and the number of its last step."""
    if saving is not None:
        from tfdist.models.training.restore import started

        check_can_be_saved(job.spec)
        job = started(job, saving, int(os.environ.get("TFDIST_ATTEMPT", "0")))
    steps = total_steps(job.spec, job.start.step, job.start.examples, job.batch)
    return replace(job, spec=replace(job.spec, steps=steps))


def _train_saved(
    job: "TrainingContext",
    saving: Checkpointing,
    loop: pace.Loop,
    log: WindowLog,
    trained: "Callable[[], Trained]",
    report: Callable[[Windows, bool], None],
) -> None:
    from tfdist.models.training.saver import Saver

    saver = Saver(job, saving, trained)
    windows = train_saved(loop, log, job.spec, job.start.step, saving.every_steps, saver)
    saver.finish()
    report(windows, True)
    saver.end()


def phases_after_import(started_at: float, built_at: float, opened_at: float, first_step_at: float) -> dict[str, float]:
    """Seconds of each start-up phase, from the clock at their edges."""
    return {"strategy": built_at - started_at, "build": opened_at - built_at, "trace": first_step_at - opened_at}


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


def _context(spec: TrainingSpec, task: Task) -> "TrainingContext":
    """Build the strategy. It must precede any TensorFlow operation, and so the seed."""
    import tensorflow as tf

    from tfdist.models.training.context import TrainingContext

    strategy = build(spec)
    tf.keras.utils.set_random_seed(spec.seed)
    tf.keras.mixed_precision.set_global_policy(spec.precision.value)  # Keras 3 does not accept an enum
    row = CATALOG[spec.strategy]
    return TrainingContext(spec, strategy, task, spec.workers if spec.synchronous and row.has_cluster else 1)


def _prepare(job: "TrainingContext") -> "tuple[pace.Loop, Callable[[], Trained]]":
    from tfdist.models.training import async_loop, fit, loop

    if job.spec.api is Api.FIT:
        return fit.prepare(job)
    return loop.prepare(job) if job.spec.synchronous else async_loop.prepare(job)


def _evaluation(job: "TrainingContext", trained: "Callable[[], Trained]") -> Callable[[WindowLog], None]:
    """Measures what has been trained so far, and notes it in a log."""
    from tfdist.models.training.evaluate import held_out

    measure = held_out(job)

    def note(log: WindowLog) -> None:
        now = trained()
        result = measure(now)
        log.observed["held_out"] = {"examples": now.examples * job.workers, **asdict(result)}

    return note


def _record(
    job: "TrainingContext", windows: Windows, trained: "Trained", phases: dict[str, float], evaluate: bool
) -> RankRecord:
    from tfdist.models.training import storage
    from tfdist.models.training.evaluate import held_out
    from tfdist.models.training.gpu_software import peak_gpu_memory

    if evaluate:
        events.emit("phase", phase=Phase.EVALUATING)
    own_devices = devices.of_replicas(job.strategy) if job.spec.synchronous else ()
    return RankRecord(
        task=job.task.name,
        replicas=job.replicas,
        warmup=windows.warmup,
        windows=windows.timed,
        phases_s=phases,
        examples_applied=trained.examples,
        updates_applied=trained.updates,
        resumed_at=job.start.step,
        accuracy=held_out(job)(trained).accuracy if evaluate else None,
        software=observation.software(job.spec.keras),
        environment=observation.environment(os.environ),
        **observation.process(),
        gpu_peak_bytes=peak_gpu_memory(own_devices),
        storage=storage.combined(storage.stored(_variables(trained)), trained.requests),
    )


def _variables(trained: "Trained") -> list[Any]:
    """The model's, their averages and the optimizer's, which is a function in tf_keras."""
    if trained.variables:
        return [*trained.variables]
    of_optimizer = trained.optimizer.variables
    averages = () if trained.averages is None else trained.averages.averages
    return [*trained.model.variables, *averages, *(of_optimizer() if callable(of_optimizer) else of_optimizer)]


def leave(code: int) -> NoReturn:
    """End the process without TensorFlow's clean-up, which takes seconds of every run and sometimes a minute."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
