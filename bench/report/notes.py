"""What a reader of the table must know: comparisons, the report's own noise, groups. Pure."""

from collections.abc import Iterator, Sequence

from tfdist.bench.report.same_arms import SamePair
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS


def notes_on(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> tuple[str, ...]:
    """Sentences below the table."""
    measured = [row for row in rows if row.measured]
    return (*_comparisons(measured), *_noise(measured, pairs), *_groups(measured))


def _comparisons(rows: Sequence[ArmRow]) -> Iterator[str]:
    numbers = {row.folder: row.one_device.comparison.comparisons for row in rows if row.one_device}
    for folder, number in numbers.items():
        if number > 1:
            yield (
                f"{_prefix(folder)}{number} comparisons with one device: their intervals are widened (Holm) so that "
                f"equal arms are called faster or slower in at most 5 % of benches."
            )


def _noise(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> Iterator[str]:
    for pair in pairs:
        interval = pair.comparison.interval
        few = f"fewer than {FEWEST_ROUNDS} rounds, so no interval"
        between = f"{interval.low:.3f} to {interval.high:.3f}" if interval else few
        yield (
            f"Noise (A/A): {pair.arm} and {pair.other} are the same configuration, and {pair.arm} is "
            f"{pair.comparison.ratio:.3f} times as fast ({between})."
        )
    if not pairs and len(rows) > 1:
        yield (
            "The noise of this report is unknown, because no two arms are the same configuration: add one arm twice "
            "under two names (A/A)."
        )


def _groups(rows: Sequence[ArmRow]) -> Iterator[str]:
    for folder in dict.fromkeys(row.folder for row in rows):
        groups = {block.group for row in rows if row.folder == folder for block in row.rates}
        if len(groups) > 1:
            yield (
                f"{_prefix(folder)}The arms took turns in {len(groups)} groups, because they did not fit into memory "
                f"together or some were measured later. They are compared through the arms that are in several groups."
            )


def _prefix(folder: str) -> str:
    return f"{folder}: " if folder else ""
