"""`tfdist.measure.steps` of a program with a launcher."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

from tfdist.launch import events
from tfdist.launch.errors import TfdistError
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart, job_part
from tfdist.models.custom.stepper import Stepper, make_stepper
from tfdist.strategies.use import report, report_first_step

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
    given = getattr(dataset, "_strategy", None)  # of tf.distribute's data sets
    strategy = given or (devices.program_strategy() if coordinator is None else coordinator.strategy)
    report(given, trains=True)
    report_first_step(strategy)
    stepper, result = shared_stepper(part, coordinator)
    stepper.loop.examples_per_step = part.share(examples)
    stepper.continue_from(first)
    replicas = max(part.ranks, 1 if strategy is None else strategy.num_replicas_in_sync)
    return _batches(dataset, stepper, result, None if part.workers else partial(check_batch, part, replicas, examples))


def _batches(
    dataset: Iterable[T], stepper: Stepper, result: Callable[[], Any], check: Callable[[T], None] | None
) -> Iterator[T]:
    if not stepper.start():  # programs divide by the number of batches; one is the same number on all workers
        yield from islice(dataset, 1)
        return
    batches = iter(dataset)
    more = True
    while more:
        stepper.log.resume()
        asked_at = time.perf_counter()
        batch: Any = next(batches, _END)
        if not getattr(batches, "_enable_get_next_as_optional", False):  # else it waits for the other workers' batches
            stepper.note_input(time.perf_counter() - asked_at)
        if batch is _END:
            stepper.end_epoch()
            if not stepper.unfinished:
                return
            batches = iter(dataset)
            stepper.log.resume()
            batch = next(batches, _END)
            if batch is _END and not stepper.trained:
                raise TfdistError(
                    "tfdist.measure: the data has no batch; give it as many examples as a global batch, or more"
                )
            if batch is _END:
                raise TfdistError(
                    f"tfdist.measure: the data ended after {stepper.trained} steps, and iterating over it again gives "
                    "nothing: pass the dataset and not its iterator, or let it repeat"
                )
        if check is not None:
            check(batch)
            check = None
        began = stepper.log.clock()
        try:
            yield batch
        except GeneratorExit:  # the program left the loop, with or without this batch: it does not count
            stepper.log.pause(began)
            raise
        more = stepper.done(result())


def check_batch(part: JobPart, replicas: int, examples: int, batch: Any) -> None:
    """Compare the first batch of this task with `examples`, and send its digest: workers that read the same data agree.

    A size that differs by another factor than the number of workers or replicas may count other things, such as tokens.

    Raises:
        TfdistError: one of the two is of all replicas together, and the other of one worker or replica.
    """
    while isinstance(batch, list | tuple | dict) and batch:
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    values = getattr(batch, "values", None)  # a tuple in tf.distribute's; ragged tensors and tables have one, too
    parts = values if isinstance(values, tuple) else (batch,)
    if not all(hasattr(each, "numpy") and len(each.shape) for each in parts):
        return
    try:
        arrays = [each.numpy() for each in parts]
    except (TypeError, RuntimeError):  # PyTorch's, on a GPU or in bfloat16
        return
    found = part.ranks * sum(len(array) for array in arrays)
    factors = {part.ranks, replicas} - {1}
    if any(found == factor * examples or examples == factor * found for factor in factors):
        raise TfdistError(
            f"tfdist.measure: examples={examples}, but the batches of all replicas together have {found} in a step: "
            "pass the global batch size, and batch the data by that of a replica or worker if each makes its own"
        )
    array = arrays[0]
    if part.ranks > 1 and array.dtype != object and (array != array[:1]).any():  # or it is made up
        events.emit("first_batch", digest=hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest())


@cache
def shared_stepper(part: JobPart, coordinator: Any) -> tuple[Stepper, Callable[[], Any]]:
    """One for all loops of the program, so that a second one continues the turns."""
    if not part.workers:
        return make_stepper(part), lambda: None
    coordinator = devices.find_coordinator(coordinator)
    return make_stepper(part, coordinator), devices.observe_schedule(coordinator)
