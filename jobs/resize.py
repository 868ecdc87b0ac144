"""The spec of a job that continues with another number of workers. Pure."""

from dataclasses import replace
from typing import TypeVar

from tfdist.launch.restarts import SavedState
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice

Choice = TypeVar("Choice", bound=StrategyChoice)


def resized(spec: Choice, workers: int, ps: int, saved: SavedState) -> Choice:
    """The spec for these workers and parameter servers.

    The batch per replica, the learning rate and the number of examples in all stay; so the global batch and the steps
    change. Under an asynchronous strategy a step is the batch of one worker, and its number stays too.

    Args:
        spec: of the attempt before.
        workers: number of workers.
        ps: number of parameter servers.
        saved: the checkpoint that the job continues from.
    """
    new = replace(spec, workers=workers, ps=ps)
    if not isinstance(new, TrainingSpec) or not isinstance(spec, TrainingSpec) or not _has_global_batch(spec):
        return new
    examples = spec.steps * spec.global_batch_size if spec.examples is None else spec.examples
    new = replace(new, examples=examples)
    return replace(new, steps=saved.step + _steps_left(new, saved))


def effect(old: StrategyChoice, new: StrategyChoice, saved: SavedState) -> str:
    """What is different in the training, as in `global batch 64 instead of 96, 400 steps left instead of 267`."""
    if not isinstance(old, TrainingSpec) or not isinstance(new, TrainingSpec) or new.examples is None:
        return ""
    if old.global_batch_size == new.global_batch_size:
        return ""
    before = replace(old, examples=new.examples)
    return (
        f"global batch {new.global_batch_size} instead of {old.global_batch_size}, "
        f"{_steps_left(new, saved)} steps left instead of {_steps_left(before, saved)}"
    )


def _has_global_batch(spec: TrainingSpec) -> bool:
    return spec.synchronous


def _steps_left(spec: TrainingSpec, saved: SavedState) -> int:
    return -(-((spec.examples or 0) - saved.examples) // spec.global_batch_size)
