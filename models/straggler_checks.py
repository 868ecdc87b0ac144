"""Checks of a planted straggler and of step times: what would have no effect is refused."""

from math import isfinite

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Api, StrategyName


def check_straggler(spec: TrainingSpec) -> None:
    """Refuse a slow worker that does not exist, is not slow, or cannot be slowed.

    Raises:
        TfdistError: one of these.
    """
    if not (isfinite(spec.slow_ms) and spec.slow_ms >= 0):
        raise TfdistError(f"slow_ms = {spec.slow_ms:g}: must be 0 or more milliseconds")
    if not (isfinite(spec.slow_factor) and spec.slow_factor >= 1):
        raise TfdistError(f"slow_factor = {spec.slow_factor:g}: must be 1 or more")
    slow = spec.slow_ms > 0 or spec.slow_factor > 1
    if spec.slow_worker is None:
        if slow:
            raise TfdistError("slow_ms and slow_factor have no effect without slow_worker: set slow_worker = 0")
        return
    if not slow:
        raise TfdistError(f"slow_worker = {spec.slow_worker} is not slower: set slow_ms or slow_factor")
    count = spec.workers if CATALOG[spec.strategy].many_processes else spec.devices
    if not 0 <= spec.slow_worker < count:
        raise TfdistError(f"slow_worker = {spec.slow_worker}: must be 0 to {count - 1}, one of {count}")
    _check_graph("slow_worker", spec)


def check_step_times(spec: TrainingSpec) -> None:
    """Refuse step times where the steps are not those of tfdist's loop.

    Raises:
        TfdistError: they would have no effect.
    """
    if not spec.step_times:
        return
    _check_graph("step_times", spec)
    if not spec.synchronous:
        raise TfdistError(f"step_times: {spec.strategy} has no steps that all workers take together; omit it")
    if spec.steps_per_call > 1:
        raise TfdistError(f"step_times with steps_per_call = {spec.steps_per_call}: only with 1; omit one of them")


def _check_graph(key: str, spec: TrainingSpec) -> None:
    if spec.api is not Api.LOOP:
        raise TfdistError(f"{key} with api = {spec.api}: only tfdist's own loop has it; use api = loop")
    if spec.strategy is StrategyName.TPU:
        raise TfdistError(f"{key}: TensorFlow cannot read the clock in a TPU's step; omit it")
