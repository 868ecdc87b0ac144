"""A report as Markdown, section by section. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.scaling import IN_WORDS, ScalingSeen
from tfdist.bench.report.summary import NOT_RUN, ArmRow
from tfdist.bench.report.warnings import Warning
from tfdist.models.record import Record

METHOD = """\
Every run is one training in fresh processes. Warm-up steps come first and are not counted; then all processes begin
their first timed window together. A window is a stretch of steps, and the clock is read only at its edges, after the
devices have really finished. **images/s is the whole job's**: its examples over its wall time, all windows together,
never a mean of rates. In a synchronous job a window costs what its slowest process took; in an asynchronous one the
examples that were applied are counted over the coordinator's clock; trainings without exchange are counted over as
many windows as each of them has, until the last is through. A round is one run of every arm, in a shuffled order, so
that a drift of the machine hits all alike. The figure of an arm is the median over rounds; the spread is a 95 %
bootstrap interval over rounds, or min..max of two. Arms are compared round by round, and called faster or slower
only if both the bootstrap interval of the ratio and Student's interval of its logarithm leave 1 out. **Speed-up** is
images/s over the baseline's, **efficiency** the same per device. `independent` is the same number of one-device
trainings side by side that exchange nothing: efficiency against it is what the strategy itself costs. Peak memory is
resident memory as the operating system counted it: of the largest process, and the sum of all processes' peaks. MB
and GB are decimal."""


class Reported(Protocol):
    """As `tfdist.bench.report.build.Report`."""

    @property
    def folders(self) -> tuple[ResultFolder, ...]:
        """What was read."""

    @property
    def rows(self) -> tuple[ArmRow, ...]:
        """One an arm."""

    @property
    def scaling(self) -> ScalingSeen:
        """Weak, strong or mixed."""

    @property
    def headline(self) -> tuple[str, ...]:
        """One a folder."""

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """What to know first."""

    @property
    def environment(self) -> dict[str, tuple[str, ...]]:
        """Fact -> values."""


def markdown(report: Reported, table: str, pictures: Sequence[str]) -> str:
    """The whole text; `table` is Markdown already, `pictures` are file names beside it."""
    sections = (
        f"# {_title(report.folders)}\n\n" + "\n\n".join(report.headline),
        f"## Results\n\n{IN_WORDS[report.scaling]}. {baselines(report.rows)}\n\n{table}",
        "\n\n".join(f"![{name.removesuffix('.png').replace('_', ' ')}]({name})" for name in pictures),
        _section("Warnings", (f"**{w.code}**: {w.text} {w.advice}" for w in report.warnings)),
        _section("What did not work", _failures(report.rows)),
        _section("Run again", _earlier(report.folders)),
        _section("Records that could not be read", _unreadable(report.folders)),
        _section("Environment", _environment(report.environment)),
        f"## Method\n\n{METHOD}",
        _section("Command", _commands(report.folders)),
    )
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def baselines(rows: Iterable[ArmRow]) -> str:
    """Which rows the others are held against."""
    one = dict.fromkeys(row.one_device.label for row in rows if row.one_device)
    return f"Baseline of speed-up and efficiency: {', '.join(one)}." if one else "No baseline was measured."


def _title(folders: Sequence[ResultFolder]) -> str:
    if len(folders) > 1:
        return f"{len(folders)} folders side by side"
    return f"Bench `{folders[0].bench.suite.name}`" if folders[0].bench else f"Launch {folders[0].label}"


def _section(title: str, lines: Iterable[str]) -> str:
    items = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}\n", *items]) if items else ""


def _failures(rows: Iterable[ArmRow]) -> Iterable[str]:
    for row in rows:
        bad = [record for record in row.records if record.status != "ok"]
        yield from (
            f"{row.label}, {_round(record)} **{record.status}**: {record.reason}{_logs(record)}" for record in bad
        )
        if row.status == NOT_RUN:
            yield f"{row.label}: **{row.status}**: {row.reason}"


def _round(record: Record) -> str:
    return "all rounds" if record.status == "refused" else f"round {record.round}"


def _logs(record: Record) -> str:
    return f" (logs: `{record.run_dir}`)" if record.run_dir else ""


def _earlier(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        yield from (
            f"{record.arm}, round {record.round}, was **{record.status}** at first and run again: {record.reason}"
            for record in folder.earlier
        )


def _unreadable(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        yield from (f"{folder.label}/{bad.file}: {bad.reason}" for bad in folder.unreadable)


def _environment(facts: dict[str, tuple[str, ...]]) -> Iterable[str]:
    for fact, values in facts.items():
        differs = " (not the same in all processes)" if len(values) > 1 else ""
        yield f"{fact}: {' | '.join(values)}{differs}"


def _commands(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        commands = (
            [folder.bench.command] if folder.bench else dict.fromkeys(r.command for r in folder.records if r.command)
        )
        yield from (f"`{command}`" for command in commands)
