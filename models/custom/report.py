"""The record of a task that runs a custom program."""

import os
from collections.abc import Callable
from dataclasses import asdict

from tfdist.launch import events
from tfdist.models.custom.part import JobPart
from tfdist.models.custom.windows import ProgramLoop
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
