"""How long a bench will take. Pure."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from tfdist.bench.plan import PlannedRun
from tfdist.models.record import Record, RecordStatus
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

_START_S: Mapping[str, float] = {
    StrategyName.ONE_DEVICE: 11,
    StrategyName.MIRRORED: 22,
    StrategyName.MULTI_WORKER: 18,
    StrategyName.CENTRAL_STORAGE: 18,
    StrategyName.PARAMETER_SERVER: 14,
    StrategyName.INDEPENDENT: 9,
}
"""Seconds until the first step is over, plus _PROCESS_S for each process. Measured, like the figures below, on two
cores in bench_results/20261121T032905Z-cpu: estimates of its arms are at most 20 % off."""
_PROCESS_S = 3.0
_IMAGE_S = 0.02
"""Forward and backward pass of one 96 pixel image through MobileNetV2 of width 1 on one core."""


def estimate_s(spec: TrainingSpec) -> float:
    """Wall seconds of one run with a core for each device; a GPU needs less."""
    processes = spec.workers + spec.ps + bool(spec.ps)
    image_s = 0.0 if spec.model is Architecture.TINY else _IMAGE_S * spec.alpha * (spec.image_size / 96) ** 2
    # asynchronous workers share the steps, and each takes about twice as long for one
    steps = 2 * spec.steps / spec.workers if CATALOG[spec.strategy].exchange is Exchange.ASYNC else spec.steps
    return _START_S.get(spec.strategy, 20) + _PROCESS_S * processes + steps * spec.batch_size * image_s


def seconds_left(
    runs: Sequence[PlannedRun], specs: Mapping[str, TrainingSpec], records: Sequence[Record]
) -> float | None:
    """Wall seconds that `runs` will take.

    Each arm takes as long as in its successful `records`. An arm without one takes its estimate times the ratio by
    which the measured arms missed theirs. None on GPUs and TPUs until an arm was measured: no estimate is calibrated.
    """
    walls: dict[str, list[float]] = {}
    for record in records:
        if record.status == RecordStatus.OK and record.arm in specs:
            walls.setdefault(record.arm, []).append(record.wall_s)
    means = {arm: fmean(times) for arm, times in walls.items()}
    new = {run.arm: specs[run.arm] for run in runs if run.arm not in means}
    if not means and any(spec.gpus or not CATALOG[spec.strategy].replicas_known for spec in new.values()):
        return None
    pace = sum(means.values()) / sum(estimate_s(specs[arm]) for arm in means) if means else 1.0
    return sum(pace * estimate_s(new[run.arm]) if run.arm in new else means[run.arm] for run in runs)
