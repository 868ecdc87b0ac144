"""Two folders of benches -> which arms became faster or slower, and what else changed between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tfdist.bench.compare.gate import is_too_slow, may_be_too_slow
from tfdist.bench.environment import environment_of
from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.across import Change, changes, find_anchor, in_both, machine_differences, values_of, why_not
from tfdist.bench.report.build import summarize_report
from tfdist.bench.report.format import labels_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import interval_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean

FORMAT = 1
"""Format of the JSON."""
NO_ANCHOR = "none"
_UNKNOWN = {"-", "None", "none"}
"""Values of facts that an earlier version did not record, or that are none."""
_TURN = ("turn_s", "warmup_s", "window_s", "isolated")
"""Values of a suite that affect what a turn measures."""


@dataclass(frozen=True)
class Difference:
    """A fact of the environment with other values in the new bench."""

    fact: str
    base: str
    new: str


@dataclass(frozen=True)
class ComparedFolders:
    """What changed from one bench to another."""

    base: str
    new: str
    """Their labels."""
    environment: tuple[Difference, ...]
    machine: tuple[str, ...]
    """How the machines differ; empty: they do not."""
    anchor: str | None
    """The arm that the others are taken relative to; None: images/s are compared as they are."""
    changes: tuple[Change, ...]
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    """Arms that one side measured, and why the other did not."""
    skipped: tuple[str, ...]
    """Records that could not be read, with the reason."""

    def too_slow(self, bound: float) -> tuple[str, ...]:
        """The arms that are slower by more than `bound` for sure."""
        return tuple(change.arm for change in self.changes if is_too_slow(change.comparison, bound))

    def unsure(self, bound: float) -> tuple[str, ...]:
        """The arms of the base that may be slower by more than `bound`, those that were not compared among them."""
        # the anchor stands for the machine, whose speed differs by day: it counts only where there is nothing else
        gated = [each for each in self.changes if not each.anchor] or self.changes
        return (*(each.arm for each in gated if may_be_too_slow(each.comparison, bound)), *self.only_base)

    @property
    def machine_ratio(self) -> float:
        """How much faster the machine was: the median of the ratios of images/s of all arms of the same work."""
        return median([each.plain_ratio for each in self.changes if each.comparison or each.anchor] or [1.0])

    @property
    def decided(self) -> int:
        """The number of arms with an interval, which alone can show a change."""
        return sum(interval_of(change.comparison) is not None for change in self.changes)

    def to_json(self, bound: float | None) -> dict[str, Any]:
        """Plain JSON values, with the format's version; ratios are new over base."""
        return {
            "format": FORMAT,
            "base": self.base,
            "new": self.new,
            "anchor": self.anchor,
            "machine": list(self.machine),
            "machine_ratio": self.machine_ratio,
            "environment": [vars(each) for each in self.environment],
            "arms": [
                {**values_of(each), "too_slow": None if bound is None else is_too_slow(each.comparison, bound)}
                for each in self.changes
            ],
            "only_base": list(self.only_base),
            "only_new": list(self.only_new),
            "fail_slower": bound,
            "too_slow": [] if bound is None else list(self.too_slow(bound)),
            "inconclusive": [] if bound is None else list(self.unsure(bound)),
            "compared": self.decided,
        }


def compare_folders(base: Path, new: Path, anchor: str | None = None, same_work: bool = False) -> ComparedFolders:
    """What changed from the bench in `base` to that in `new`.

    Args:
        anchor: an arm, or NO_ANCHOR; None: the one-device arm if both have it.
        same_work: arms of the user's own program are compared even if its command line differs.

    Raises:
        TfdistError: no records, no arm that both measured, an unknown anchor, or another machine without an anchor.
    """
    if base.resolve() == new.resolve():
        raise TfdistError(f"{base} and {new} are the same folder: give two benches")
    labels = labels_of((base, new))
    folders = [read_folder(root, label) for root, label in zip((base, new), labels, strict=True)]
    before, after = (summarize_report([folder])[0] for folder in folders)
    names = [sorted(row.arm for row in rows if row.measured) for rows in (before, after)]
    for label, arms in zip(labels, names, strict=True):
        if not arms:
            raise TfdistError(f"nothing was measured in {label}: run the bench again")
    if not in_both(before, after):
        has = "; ".join(f"{label} has {', '.join(arms)}" for label, arms in zip(labels, names, strict=True))
        raise TfdistError(f"no arm was measured in both ({has}): compare two benches of one suite")
    chosen = _anchor(before, after, labels, anchor, same_work)
    return ComparedFolders(
        base=labels[0],
        new=labels[1],
        environment=tuple(_differences(folders)),
        machine=machine_differences(before, after),
        anchor=chosen,
        changes=changes(before, after, chosen, same_work),
        only_base=tuple(_only(before, after, labels[1])),
        only_new=tuple(_only(after, before, labels[0])),
        skipped=tuple(text for folder in folders for text in folder.skipped),
    )


def _anchor(
    base: Sequence[ArmRow], new: Sequence[ArmRow], labels: Sequence[str], wanted: str | None, same_work: bool
) -> str | None:
    if wanted == NO_ANCHOR:
        return None
    if wanted is not None:
        shared = {before.arm: (before, row) for before, row in in_both(base, new)}
        if wanted not in shared:
            choices = [row.arm for row in base if row.arm in shared]
            raise TfdistError(f"--baseline {wanted}: no arm that both measured; {did_you_mean(wanted, choices)}")
        if why := why_not(*shared[wanted], same_work):
            raise TfdistError(f"--baseline {wanted}: it cannot be compared itself ({why}); choose another arm")
        return wanted
    found = find_anchor(base, new, same_work)
    moved = machine_differences(base, new)
    if found is None and moved:
        raise TfdistError(
            f"{' and '.join(labels)} are of different machines ({'; '.join(moved)}), and have no one-device arm of the "
            f"same work in common: name another arm with --baseline, or compare images/s with --baseline none"
        )
    return found


def _differences(folders: Sequence[ResultFolder]) -> Iterator[Difference]:
    sides = []
    for folder in folders:
        hosts = {str(record.hardware["host"]): None for record in folder.records if record.hardware.get("host")}
        links = {f"{8 * record.link['bytes_per_s'] / 1e6:.0f} Mbit/s": None for record in folder.records if record.link}
        suite = {}
        if folder.bench:
            suite = {f"suite's {key}": (str(getattr(folder.bench.suite, key)),) for key in _TURN}
        program = {"program": tuple(dict.fromkeys(str(record.spec.get("command", "-")) for record in folder.records))}
        sides.append({**program, **environment_of(folder.records), "host": tuple(hosts), "link": tuple(links), **suite})
    for fact in dict.fromkeys((*sides[0], *sides[1])):
        base, new = (" | ".join(each.get(fact, ())) or "-" for each in sides)
        if base != new and not {base, new} <= _UNKNOWN:
            yield Difference(fact, base, new)


def _only(rows: Sequence[ArmRow], others: Sequence[ArmRow], other: str) -> Iterator[str]:
    elsewhere = {row.arm: row for row in others}
    for row in rows:
        counterpart = elsewhere.get(row.arm)
        if row.measured and (counterpart is None or not counterpart.measured):
            why = f" ({counterpart.status} in {other}: {counterpart.reason})" if counterpart else ""
            yield f"{row.arm}{why}"
