"""The stepper of this process, and its record: how its steps are counted depends on the job. Imports no TensorFlow."""

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tfdist.launch import events
from tfdist.launch.events import dump_on_request
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart
from tfdist.models.custom.stepper import AsyncWindows, ProgramLoop, Stepper, SyncWindows
from tfdist.models.record import RankRecord, Window
from tfdist.models.training import observation
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.options import LEGACY_KERAS, Keras


def reporter(
    part: JobPart, loop: ProgramLoop, log: WindowLog, replicas: Callable[[], int]
) -> Callable[[tuple[Window, ...], int], None]:
    """A function that emits the record, from warm-up windows and the number of steps trained so far.

    Args:
        part: of this task.
        loop: its steps.
        log: of its windows.
        replicas: of this task, or of each worker that it schedules steps on.
    """

    def report(warmup: tuple[Window, ...], steps: int) -> None:
        examples = loop.examples_per_step * steps
        since_first_step = log.clock() - log.first_step_at
        record = RankRecord(
            task=part.task,
            replicas=replicas(),
            warmup=warmup,
            windows=(),
            phases_s={
                "trace": log.first_step_at - log.opened_at,
                "first_step_end": observation.since_start() - since_first_step,
            },
            examples_applied=examples,
            updates_applied=steps,
            software=observation.software(Keras.TWO if os.environ.get(LEGACY_KERAS) == "1" else Keras.THREE),
            environment=observation.environment(os.environ),
            **observation.process(),
        )
        events.emit("record", record=asdict(record))

    return report


Loss = Callable[[Any], float | None]


def make_stepper(part: JobPart, coordinator: Callable[[], Any], loss: Loss = lambda result: None) -> Stepper:
    """A stepper whose `loop.examples_per_step` is still 0: set it before the first step ends.

    Args:
        part: of this task in its job.
        coordinator: returns the ClusterCoordinator; called only if the task has one.
        loss: of the result of a step.
    """
    dump_on_request()
    loop: SyncWindows | AsyncWindows
    if part.workers:
        loop = AsyncWindows(0, 2 * part.workers, coordinator().join, loss)
    else:
        loop = SyncWindows(0, lambda: devices.wait_for(devices.program_strategy()), loss)
    log = WindowLog(share=1 / part.ranks)
    return Stepper(loop, part.concurrent, log, reporter(part, loop, log, lambda: _replicas(part)))


def _replicas(part: JobPart) -> int:
    strategy = devices.program_strategy()
    return strategy.num_replicas_in_sync // part.ranks if strategy is not None else 1
