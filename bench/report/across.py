"""The same arm in two folders: whether it did the same work, what differs, and how much faster it became. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tfdist.bench.references import NO_EFFECT, OPTIONS
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import Comparison, Statistics, interval_of
from tfdist.bench.unpaired import TwoBenches
from tfdist.models.record import Record
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import StrategyName

_NO_EFFECT = (*NO_EFFECT, "timeout_collective_s", "data_dir", "seed")
"""Fields of a spec that do not affect the speed of a turn."""


def spec_differences(spec: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Differences that make speeds incomparable, as `batch_size: 32, not 16`; and those of options, which do not."""
    work: list[str] = []
    options: list[str] = []
    defaults = asdict(TrainingSpec())  # a version of tfdist without a field did what is now its default
    for name in dict.fromkeys((*spec, *other)):
        value, previous = (str(each.get(name, defaults.get(name))) for each in (spec, other))
        shared = (name in spec and name in other) or "command" not in {**spec, **other}  # a program has no image size
        if name not in _NO_EFFECT and value != previous and (shared or name == "command"):
            (options if name in OPTIONS else work).append(f"{name}: {value}, not {previous}")
    return work, options


OTHER_MACHINE = "another machine"


@dataclass(frozen=True)
class Change:
    """One arm that both folders measured."""

    base: ArmRow
    new: ArmRow
    comparison: Comparison | None
    """New over base. None: not compared, see `reason`."""
    anchored: bool
    """Whether `comparison` is of speed-ups over the anchor, not of images/s."""
    options: tuple[str, ...] = ()
    """Options of the same work in which they differ."""
    reason: str = ""
    """Why they are not compared."""
    anchor: bool = False
    """Whether the others are compared by their speed-up over it."""

    @property
    def arm(self) -> str:
        """Its name, the same in both."""
        return self.new.arm

    @property
    def plain_ratio(self) -> float:
        """Images/s over images/s."""
        return self.new.rate / self.base.rate


def values_of(change: Change) -> dict[str, Any]:
    """The columns of compare.csv; ratios are new over base."""
    found = change.comparison
    interval = interval_of(found)
    return {
        "base_folder": change.base.folder,
        "new_folder": change.new.folder,
        "arm": change.arm,
        "base_images_per_s": change.base.images_per_s,
        "new_images_per_s": change.new.images_per_s,
        "images_per_s_ratio": change.plain_ratio,
        "anchored": change.anchored,
        "ratio": found.ratio if found else None,
        **(vars(interval) if interval else dict.fromkeys(("low", "high", "level"))),
        "verdict": str(found.verdict) if found else "not compared",
        "differs": "; ".join(change.options),
        "not_compared": change.reason,
    }


def in_both(base: Sequence[ArmRow], new: Sequence[ArmRow]) -> list[tuple[ArmRow, ArmRow]]:
    """The arms that both measured, in the order of the new folder."""
    before = {row.arm: row for row in base if row.measured}
    return [(before[row.arm], row) for row in new if row.measured and row.arm in before]


def find_anchor(base: Sequence[ArmRow], new: Sequence[ArmRow], same_work: bool = False) -> str | None:
    """The one-device arm that did the same work in both; the one named `one-device` first."""
    both = [pair for pair in in_both(base, new) if pair[1].strategy == StrategyName.ONE_DEVICE]
    arms = [row.arm for before, row in both if not why_not(before, row, same_work)]
    return min(arms, key=lambda name: name != StrategyName.ONE_DEVICE, default=None)


def machine_differences(base: Sequence[ArmRow], new: Sequence[ArmRow]) -> tuple[str, ...]:
    """Differences as `cpu: B, not A`; empty: all arms ran on the same machine, by its name and hardware."""
    machines = [[record for row in rows for record in row.measured] for rows in (new, base)]
    facts = {key: [" and ".join(sorted(set(map(of, records)))) for records in machines] for key, of in _MACHINE.items()}
    return tuple(f"{key}: {after}, not {before}" for key, (after, before) in facts.items() if after != before)


def changes(
    base: Sequence[ArmRow], new: Sequence[ArmRow], anchor: str | None, same_work: bool = False
) -> tuple[Change, ...]:
    """A row for each arm that both measured, in the order of the new folder.

    All comparisons are one family (Holm). The anchor itself is compared by images/s, and on another machine not at all.
    """
    measured = in_both(base, new)
    reasons = {row.arm: why_not(before, row, same_work) for before, row in measured}
    if anchor in reasons and machine_differences(base, new):
        reasons[str(anchor)] = f"the anchor, on {OTHER_MACHINE}"
    pairs = [(row.arm, None if row.arm == anchor else anchor) for _, row in measured if not reasons[row.arm]]
    found = TwoBenches(_alone(base), _alone(new)).compare(pairs) if pairs else ()
    compared = dict(zip((arm for arm, _ in pairs), found, strict=True))
    return tuple(
        Change(
            before,
            row,
            compared.get(row.arm),
            anchor is not None and row.arm != anchor,
            tuple(spec_differences(row.measured[0].spec, before.measured[0].spec)[1]),
            reasons[row.arm],
            row.arm == anchor,
        )
        for before, row in measured
    )


def _alone(rows: Sequence[ArmRow]) -> Statistics:
    """The statistics of one folder, by the names of its arms, with the rules of the report."""
    rules = rows[0].statistics
    least = {row.arm: rules.least.get(row.label, 0.0) for row in rows}
    together = {row.arm: {replace(block, folder=""): rate for block, rate in row.rates.items()} for row in rows}
    return Statistics(together, rules.floor, least, error=rules.error)


def why_not(base: ArmRow, new: ArmRow, same_work: bool = False) -> str:
    """Why two measured arms cannot be compared; empty: they can.

    Args:
        same_work: another command line of the user's own program is no reason.
    """
    if not (base.valid and new.valid):
        return (new if base.valid else base).why_not_ranked
    differing, _ = spec_differences(new.measured[0].spec, base.measured[0].spec)
    if "command" in new.spec and new.batch_global != base.batch_global:
        differing.append(f"examples per step: {new.batch_global}, not {base.batch_global}")
    counted = [text for text in differing if not (same_work and text.startswith(("command: ", "examples per step: ")))]
    return f"different work: {'; '.join(counted)}" if counted else ""


_MACHINE: Mapping[str, Callable[[Record], str]] = {
    "host": lambda record: str(record.hardware.get("host", "")),
    "cpu": lambda record: str(record.hardware.get("cpu", "")),
    "cores": lambda record: str(len(record.hardware.get("cores", ()))),
    # rounded: what a virtual machine leaves to its guest differs a little from start to start
    "memory": lambda record: f"{record.hardware.get('memory_bytes', 0) / 1e9:.0f} GB",
    "GPUs": lambda record: ", ".join(map(str, record.hardware.get("gpus", ()))) or "none",
}
