"""A leading task of a training: it runs the loop, saves checkpoints, and emits the record of its rank."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import NoReturn

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.cluster import Task
from tfdist.launch.errors import ExitCode
from tfdist.launch.events import Phase
from tfdist.models.checkpoints import Checkpointing, check_can_be_saved
from tfdist.models.record import RankRecord
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import async_loop, fit, observation, pace
from tfdist.models.training import loop as sync_loop
from tfdist.models.training.agreement import wait_before_exit
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.ending import leave
from tfdist.models.training.evaluate import held_out
from tfdist.models.training.pace import Windows, total_steps, train_saved
from tfdist.models.training.restore import started
from tfdist.models.training.saver import Saver
from tfdist.models.training.windows import WindowLog
from tfdist.strategies import devices
from tfdist.strategies.build import build
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import Api

Prepare = Callable[[TrainingContext], tuple[pace.Loop, Callable[[], TrainingState]]]


def connect(spec: TrainingSpec, task: Task) -> TrainingContext:
    """Build the strategy. It must precede any TensorFlow operation, and so the seed."""
    spec = watched(spec)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not spec.meta_optimizer})
    strategy = build(spec)
    tf.keras.utils.set_random_seed(spec.seed)
    tf.keras.mixed_precision.set_global_policy(spec.precision.value)  # Keras 3 does not accept an enum
    row = CATALOG[spec.strategy]
    return TrainingContext(spec, strategy, task, spec.workers if spec.synchronous and row.has_cluster else 1)


def watched(spec: TrainingSpec) -> TrainingSpec:
    """The spec with step times or update counts switched on, where it leaves that open, to name a slow worker.

    Not in turns, which measure something else, and not of synchronous steps on GPUs: the clock would wait for them.
    """
    row = CATALOG[spec.strategy]
    live = not events.in_turns() and spec.workers > 1 and spec.api is Api.LOOP
    live = live and not row.graph and not row.clock_problem
    together = spec.synchronous and row.exchange is not Exchange.NONE and spec.steps_per_call == 1 and not spec.gpus
    if spec.step_times is None:
        spec = replace(spec, step_times=live and together)
    if spec.count_updates is None:
        spec = replace(spec, count_updates=live and not spec.synchronous)
    return spec


def prepare(job: TrainingContext) -> tuple[pace.Loop, Callable[[], TrainingState]]:
    """The loop of this training, and what it has trained so far."""
    if job.spec.api is Api.FIT:
        return fit.prepare(job)
    return sync_loop.prepare(job) if job.spec.synchronous else async_loop.prepare(job)


def train(connect: Callable[[], TrainingContext], prepare: Prepare, phases: dict[str, float]) -> NoReturn:
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
        built = {"strategy": built_at - started_at, "build": log.opened_at - built_at}
        seconds = {**phases, **built, **observation.first_step_phases(log)}
        record = _record(job, windows, trained(), seconds, evaluate=final and job.spec.evaluate)
        events.emit("record", record=asdict(record))

    if saving is None:
        pace.train(loop, log, job.spec, report, _evaluation(job, trained) if job.spec.evaluate_turns else None)
    else:
        saver = Saver(job, saving, trained)
        windows = train_saved(loop, log, job.spec, job.start.step, saving.every_steps, saver)
        saver.finish()
        report(windows, True)
        saver.end()
    if not events.in_turns():
        wait_before_exit(job)
    leave(ExitCode.SUCCESS)


def _started(job: TrainingContext, saving: Checkpointing | None) -> TrainingContext:
    """The training from its checkpoint on, if it continues one, and the number of its last step."""
    if saving is not None:
        check_can_be_saved(job.spec)
        job = started(job, saving, int(os.environ.get("TFDIST_ATTEMPT", "0")))
    steps = total_steps(job.spec, job.start.step, job.start.examples, job.batch)
    return replace(job, spec=replace(job.spec, steps=steps))


def _evaluation(job: TrainingContext, trained: Callable[[], TrainingState]) -> Callable[[WindowLog], None]:
    """Measures what has been trained so far, and notes it in a log."""
    measure = held_out(job)

    def note(log: WindowLog) -> None:
        log.observed["held_out"] = measure(trained())

    return note


def _record(
    job: TrainingContext, windows: Windows, trained: TrainingState, phases: dict[str, float], evaluate: bool
) -> RankRecord:
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
        accuracy=held_out(job)(trained)["accuracy"] if evaluate else None,
        **observation.process(job.spec.keras, own_devices),
    )
