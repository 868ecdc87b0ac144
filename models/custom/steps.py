"""`tfdist.measure.steps` of a program with a launcher."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from tfdist.launch.errors import TfdistError
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart, job_part
from tfdist.models.custom.program import make_stepper
from tfdist.models.custom.stepper import Stepper

T = TypeVar("T")
_END = object()


def measured(dataset: Iterable[T], examples: int, coordinator: Any = None, first: int = 0) -> Iterator[T]:
    """The batches of `dataset`; in turns, again and again until there are no more turns, and then one.

    Args:
        dataset: can be iterated over again.
        examples: of a step of all replicas in sync; asynchronous: of one scheduled step.
        coordinator: that schedules the steps; None: that of the strategy.
        first: number of steps trained before the program was started.

    Raises:
        TfdistError: `examples` is too small, there is no coordinator, or the data ends in turns.
    """
    part = job_part()
    part.check(examples)
    stepper, result = shared_stepper(part, coordinator)
    stepper.loop.examples_per_step = part.share(examples)
    stepper.continue_from(first)
    return _batches(dataset, stepper, result)


def _batches(dataset: Iterable[T], stepper: Stepper, result: Callable[[], Any]) -> Iterator[T]:
    if not stepper.start():  # programs divide by the number of batches; one is the same number on all workers
        yield from islice(dataset, 1)
        return
    batches, more = iter(dataset), True
    while more:
        stepper.log.resume()
        batch: Any = next(batches, _END)
        if batch is _END:
            stepper.end_epoch()
            if not stepper.unfinished:
                return
            batches = iter(dataset)
            stepper.log.resume()
            batch = next(batches, _END)
            if batch is _END:
                raise TfdistError(
                    f"tfdist.measure: the data ended after {stepper.trained} steps, and iterating over it again gives "
                    "nothing: pass the dataset and not its iterator, or let it repeat"
                )
        try:
            yield batch
        except GeneratorExit:  # the program left the loop
            stepper.log.pause()
            raise
        more = stepper.done(result())


@cache
def shared_stepper(part: JobPart, coordinator: Any) -> tuple[Stepper, Callable[[], Any]]:
    """One for all loops of the program, so that a second one continues the turns."""
    if not part.workers:
        return make_stepper(part, lambda: None), lambda: None
    coordinator = devices.find_coordinator(coordinator)
    return make_stepper(part, lambda: coordinator), devices.observe_schedule(coordinator)
