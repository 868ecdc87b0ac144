"""The folder of a bench and a sweep of all-reduces -> predictions for its arms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfdist.bench.collectives.results import Sweep, read_collectives
from tfdist.bench.predict.asynchronous import predict_async
from tfdist.bench.predict.compute import compute_for
from tfdist.bench.predict.curve import DRAWS, Question, ScalingCurve, link_of_bench
from tfdist.bench.predict.ring import RingFit, RingLink, fit_ring, link_of, resolved, ring_lines
from tfdist.bench.predict.sync import predict_sync
from tfdist.bench.reading import read_folder
from tfdist.bench.report.summary import WRONG, ArmRow, summarize
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean
from tfdist.models.architectures.parameters import trained_parameters
from tfdist.models.spec import Architecture
from tfdist.strategies.options import Communication, StrategyName

FORMAT = 1
"""Format of the JSON."""
WORTH = 0.5
_PREDICTED = (StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER)
_FLOAT32 = 4


@dataclass(frozen=True)
class PredictionOptions:
    """The options of a prediction."""

    devices: tuple[int, ...]
    bandwidth: float | None = None
    """Bytes/s of a TCP stream between two hosts; None: as measured."""
    latency_s: float | None = None
    """One way; None: as measured."""
    worth: float = WORTH
    gradient_bytes: int | None = None
    """None: those of the built-in model, or of the sweep."""
    arms: tuple[str, ...] = ()
    """Patterns (fnmatch); none: all that can be predicted."""


@dataclass(frozen=True)
class Prediction:
    """The curves of all predicted arms of a bench."""

    bench: str
    curves: tuple[ScalingCurve, ...]
    asked: PredictionOptions
    commands: tuple[str, ...]

    @property
    def fits(self) -> tuple[tuple[RingFit, int], ...]:
        """Fits of the exchange of its arms, with the bytes of the gradients; each once."""
        return tuple(dict.fromkeys((curve.fit, curve.gradient_bytes) for curve in self.curves if curve.fit))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            "format": FORMAT,
            "bench": self.bench,
            "curves": [_curve_to_json(curve) for curve in self.curves],
        }


def predict(bench: Path, collectives: Path | None, asked: PredictionOptions) -> Prediction:
    """What the arms of a bench would do on other numbers of devices, and over another link.

    Args:
        collectives: the folder of a sweep between the same processes; required by synchronous arms.

    Raises:
        TfdistError: nothing that can be predicted, a missing sweep, or an unknown size of the gradients.
    """
    folder = read_folder(bench, bench.resolve().name)
    rows = summarize([folder])
    chosen = _chosen(rows, asked.arms)
    sweep = None if collectives is None else read_collectives(collectives)
    sync = [row for row in chosen if row.strategy == StrategyName.MULTI_WORKER]
    if sync and sweep is None:
        raise TfdistError(
            f"{sync[0].arm} exchanges gradients by all-reduce: name the folder of a 'tfdist collectives' with "
            f"--collectives, or predict others with --arm"
        )
    commands = [folder.bench.command] if folder.bench else []
    commands += [sweep.header.command] if sweep else []
    return Prediction(folder.label, tuple(_curves(chosen, rows, sweep, asked)), asked, tuple(commands))


def _curves(
    chosen: Sequence[ArmRow], rows: Sequence[ArmRow], sweep: Sweep | None, asked: PredictionOptions
) -> Iterator[ScalingCurve]:
    fits: dict[tuple[Communication, int], RingFit] = {}
    for row in chosen:
        compute, size = compute_for(row, rows), asked.gradient_bytes or _gradient_bytes(row, sweep)
        question = Question(asked.devices, asked.worth, size, _link(row, sweep, asked))
        if row.strategy != StrategyName.MULTI_WORKER or sweep is None:
            yield predict_async(row, compute, question)
            continue
        spec = row.measured[0].spec
        by, gpus = Communication(spec.get("communication", Communication.AUTO)), bool(spec.get("gpus"))
        by = resolved(by, gpus)
        if (by, size) not in fits:
            fits[by, size] = fit_ring(ring_lines(sweep, by, gpus), link_of(sweep), size, DRAWS)
        yield predict_sync(row, compute, fits[by, size], question)


def _chosen(rows: Sequence[ArmRow], patterns: Sequence[str]) -> list[ArmRow]:
    able = [row for row in rows if row.measured and row.strategy in _PREDICTED and row.status != WRONG]
    if not able:
        raise TfdistError(
            "no multiworker or parameter-server arm was measured in this bench: other strategies stay on one host; "
            "run 'tfdist bench --suite cpu' or '--suite hosts'"
        )
    chosen = [row for row in able if not patterns or any(fnmatchcase(row.arm, each) for each in patterns)]
    if not chosen:
        names = [row.arm for row in able]
        raise TfdistError(f"--arm {', '.join(patterns)}: cannot be predicted; {did_you_mean(patterns[0], names)}")
    return chosen


def _gradient_bytes(row: ArmRow, sweep: Sweep | None) -> int:
    spec = row.measured[0].spec
    if not spec.get("command"):
        return _FLOAT32 * trained_parameters(Architecture(spec["model"]), spec["alpha"], spec["classes"])
    of_model = [line.bytes for line in sweep.lines if line.tensors > 1] if sweep else []
    if of_model:
        return of_model[0]
    raise TfdistError(f"{row.arm} runs a program of its own: give the size of its gradients, as --gradient-bytes 14MB")


def _link(row: ArmRow, sweep: Sweep | None, asked: PredictionOptions) -> RingLink | None:
    """The measured link with what was asked for in its place; None if nothing was."""
    if asked.bandwidth is None and asked.latency_s is None:
        return None
    by_sweep = row.strategy == StrategyName.MULTI_WORKER or not row.link
    measured = link_of(sweep) if sweep and by_sweep else link_of_bench(row)
    return RingLink(
        measured.bytes_per_s if asked.bandwidth is None else asked.bandwidth,
        measured.latency_s if asked.latency_s is None else asked.latency_s,
    )


def _ring_to_json(fit: RingFit) -> dict[str, Any]:
    return {**vars(fit.ring), "relative_error": fit.error, "ranks": list(fit.ranks), "sizes": list(fit.sizes),
            "link": vars(fit.link)}  # fmt: skip


def _curve_to_json(curve: ScalingCurve) -> dict[str, Any]:
    return {
        "arm": curve.arm.arm,
        "pays_until": curve.pays_until,
        "pays_until_low": curve.pays_interval[0],
        "pays_until_high": curve.pays_interval[1],
        "served_images_per_s": curve.service,
        "gradient_bytes": curve.gradient_bytes,
        "link": vars(curve.link) if curve.link else None,
        "ring": _ring_to_json(curve.fit) if curve.fit else None,
        "spread": curve.compute.spread,
        "points": [values_of(curve, index) for index in range(len(curve.points))],
    }


def values_of(curve: ScalingCurve, index: int) -> dict[str, Any]:
    """One row of prediction.csv."""
    point = curve.points[index]
    names = ("compute_ms", "waiting_ms", "exchange_ms", "rest_ms")
    return {
        "arm": curve.arm.arm,
        "devices": point.devices,
        "images_per_s": point.images_per_s,
        "images_per_s_low": point.interval.low,
        "images_per_s_high": point.interval.high,
        "efficiency": point.efficiency,
        "efficiency_low": point.efficiency_interval.low,
        "efficiency_high": point.efficiency_interval.high,
        **dict(zip(names, point.parts_ms, strict=True)),
        "extrapolated": point.extrapolated,
    }
