"""Pairs of arms that are the same configuration (A/A): how far they differ is the noise of the report itself. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.bench.report.summary import ArmRow, statistics_of
from tfdist.bench.statistics import ArmVerdict, Comparison
from tfdist.strategies.options import Communication, StrategyName

_NO_EFFECT = ("format", "steps", "epochs", "warmup_steps", "steps_per_window", "timeout_collective_s", "evaluate",
              "evaluate_turns")  # fmt: skip
"""Fields of a spec that do not affect a turn."""


@dataclass(frozen=True)
class SamePair:
    """Two arms of the same configuration."""

    arm: str
    """`ArmRow.label`."""
    other: str
    comparison: Comparison
    """`arm` over `other`."""

    @property
    def differs(self) -> bool:
        """The report finds a difference where there is none."""
        return self.comparison.verdict is not ArmVerdict.CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        interval = self.comparison.interval
        return {
            "arm": self.arm,
            "other": self.other,
            "ratio": self.comparison.ratio,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "rounds": self.comparison.rounds,
        }


def same_pairs(rows: Sequence[ArmRow]) -> tuple[SamePair, ...]:
    """Each later arm with the first one of the same configuration and folder."""
    first: dict[tuple[Any, ...], str] = {}
    pairs = []
    for row in rows:
        if row.measured:
            label = first.setdefault((row.folder, row.hosts, *_effective(row.measured[0].spec)), row.label)
            pairs += [(row.label, label)] if label != row.label else []
    comparisons = statistics_of(rows).compare(pairs)
    return tuple(SamePair(*pair, comparison) for pair, comparison in zip(pairs, comparisons, strict=True))


def _effective(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What happens in a turn. Between workers on CPUs TensorFlow's automatic choice is the ring."""
    values = dict(spec)
    ring = values.get("strategy") == StrategyName.MULTI_WORKER and not values.get("gpus")
    if ring and values.get("communication") == Communication.AUTO:
        values["communication"] = Communication.RING
    return tuple(sorted((key, str(value)) for key, value in values.items() if key not in _NO_EFFECT))
