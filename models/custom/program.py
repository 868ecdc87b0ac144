"""The stepper of this process: how its steps are counted depends on the job. TensorFlow only if it is imported."""

from collections.abc import Callable
from typing import Any

from tfdist.launch.stack_dumps import dump_on_request
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart
from tfdist.models.custom.report import reporter
from tfdist.models.custom.stepper import Stepper
from tfdist.models.custom.windows import AsyncWindows, SyncWindows
from tfdist.models.training.windows import WindowLog

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
