"""Folders of records -> a Report: its verdicts, notes, sections and method. Needs no TensorFlow."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tfdist.bench.collectives.results import holds_collectives, read_collectives
from tfdist.bench.environment import environment_of
from tfdist.bench.folder import BenchPaths
from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.arm_records import between_epochs, disturbances_of, label_of
from tfdist.bench.report.certainty import least_differences, same_pairs
from tfdist.bench.report.columns import Scaling, scaling_of, values_of, without_refused
from tfdist.bench.report.enough import how_to_measure_enough
from tfdist.bench.report.format import in_unit, labels_of
from tfdist.bench.report.predicted import prediction_notes, with_predictions
from tfdist.bench.report.section import Page, Section
from tfdist.bench.report.sections.batch import batch_section, ranked, series_of
from tfdist.bench.report.sections.ceiling import ceiling_section, ceiling_warnings
from tfdist.bench.report.sections.collectives import all_reduce_section
from tfdist.bench.report.sections.convergence import convergence_section
from tfdist.bench.report.sections.kinds import kinds_section, sync_and_async
from tfdist.bench.report.sections.lost_time import lost_time_section
from tfdist.bench.report.sections.ratios import folders_section
from tfdist.bench.report.sections.results import costs_section, results_section, windows_section
from tfdist.bench.report.sections.scaling import efficiency_section, scaling_section
from tfdist.bench.report.summary import PREDICTED, ArmRow, ReportData, fastest, rank, summarize
from tfdist.bench.report.verdict import Verdict, verdict_of
from tfdist.bench.report.warnings import warnings_for
from tfdist.bench.same_arms import SamePair
from tfdist.bench.statistics import ERROR, Pair
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, did_you_mean, shortened
from tfdist.models.record import RecordStatus

SECTIONS: Sequence[Callable[[ReportData], Section | None]] = (
    kinds_section,
    scaling_section,
    results_section,
    folders_section,
    efficiency_section,
    lost_time_section,
    windows_section,
    ceiling_section,
    all_reduce_section,
    convergence_section,
    batch_section,
    costs_section,
)
"""Each in a file of `bench/report/sections`. None: the folders hold no data for it."""


ACROSS_ARMS = (kinds_section, scaling_section, efficiency_section)
"""Those that compare arms with each other, and not with earlier versions."""


def sections_of(measured: ReportData) -> tuple[Section, ...]:
    """The sections that have data."""
    versions = any(row.has_base for row in measured.rows)
    makers = [make for make in SECTIONS if not versions or make not in ACROSS_ARMS]
    return tuple(section for make in makers if (section := make(measured)) is not None)


def notes_on(rows: Sequence[ArmRow]) -> Iterator[str]:
    """Sentences below the table."""
    rows = [row for row in rows if row.measured]
    number = max((row.one_device.comparison.comparisons for row in rows if row.one_device), default=0)
    if number > 1:
        yield (
            f"{number} comparisons of arms: their intervals are widened (Holm) so that equal arms are called faster or "
            f"slower in at most 5 % of benches."
        )
    if gaps := "; ".join(f"{row.label} {text}" for row in rows if (text := between_epochs(row.measured))):
        yield f"Between epochs (validation, checkpoints, new iterators; not in images/s): {gaps}."
    for folder in dict.fromkeys(row.folder for row in rows):
        groups = {abs(block.group) for row in rows if row.folder == folder for block in row.rates}
        if len(groups) > 1:
            text = (
                f"The arms took turns in {len(groups)} groups, because they did not fit into memory together or some "
                "were measured later. They are compared through the arms that are in several groups."
            )
            yield label_of(folder, text)


METHOD = """\
The processes of an arm are started several times, each time warmed up and parked. Then the arms take turns of a few
seconds, while all others wait. A round is one turn of every arm, in shuffled order, so that drift of the machine
affects all arms alike.

- **Timing.** All processes of an arm begin a turn together. After a step that is not counted, a turn is timed in
  windows of some steps; the clock is read at their edges only, after the devices have finished.
- **images/s** is the whole job's: examples over wall time, all windows together, never a mean of rates. A window of a
  synchronous job costs the time of its slowest process. Of an asynchronous job, the applied examples are counted, on
  the coordinator's clock. Trainings without exchange all count until the first of them has finished.
- **Statistics.** The model is log images/s = arm + round + rest. The figure of an arm is its geometric mean over
  starts, and of each start over its rounds; a speed-up is the ratio of two figures. Intervals are computed from starts.
  The one that is shown decides: an arm is faster or slower if its interval of the speed-up excludes 1, and equal arms
  (A/A) do not differ by as much. With fewer than 3 rounds there is no interval, and with fewer than 4 starts no verdict
  on less than 5 %.
- **Speed-up** is images/s over the baseline's; **efficiency** is the same per device. `independent` runs as many
  one-device trainings side by side without exchange: efficiency against it shows the cost of the strategy itself.
- **Sure to within** the largest of: the difference that two equal arms (A/A) may have, half of the interval of a ratio
  with the first arm, and 5 % with fewer than 4 starts. Nothing is compared with fewer than 3 rounds, over 50 % of
  disturbed turns, equal arms that surely differ by more than 5 %, or figures that contradict the plan.
- **One machine.** A CPU device is one core. Devices of one process share its threads, parameter servers share the cores
  of the workers, and processes on one host exchange data through its memory, not over a network: measure hosts with
  `--hosts`.
- **Losses.** Synchronous arms of the same work, seed, batch and number of replicas must have the same losses. An arm
  that does not is `wrong`, and is not ranked; nor is one whose number of replicas is not the planned one, or whose
  efficiency is measurably above what is possible. Arms of your own program are ranked at equal work: the same number of
  examples per step, of a device or of all.
- **Costs.** Start-up: from the start of the slowest process to the end of its first step. CPU s per s: CPU seconds of
  all processes of the job, per second of its turns. Percentiles: of the windows' times per step of all devices. Memory
  is resident memory: at the end of the last window, and the peak over the life of the process, import and trace
  included. MB and GB are decimal."""

DROPPING = """
- **Dropped arms.** Arms that are slower than the best for sure after a start are not started again, unless others are
  compared with them, and the bench ends when nothing is left to decide. The looks after the starts share the 5 % of
  errors. `--all` measures every arm to the end."""
"""The end of `METHOD`, of a bench that drops arms."""

FORMAT = 2
"""Format of report.json."""
_IN_ROWS = ("results", "costs")
"""Keys of sections whose figures report.json has as `rows`."""


@dataclass(frozen=True, kw_only=True)
class Report(Page):
    """The page on benches or launches, with the figures behind it."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    verdicts: tuple[Verdict, ...]
    """The answer of each folder."""
    scaling: Scaling
    same_arms: tuple[SamePair, ...]
    """How far arms of the same configuration differ: the report's own noise."""
    notes: tuple[str, ...]
    """Sentences below the table."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """Records that could not be read, with the reason."""
        return tuple(text for folder in self.folders for text in folder.skipped)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            **super().to_json(),
            "format": FORMAT,
            "sure_to": [verdict.within if math.isfinite(verdict.within) else None for verdict in self.verdicts],
            "scaling": self.scaling,
            "rows": [values_of(row, self.scaling) for row in self.rows],
            "same_arms": [pair.to_json() for pair in self.same_arms],
            "notes": list(self.notes),
            "sections": [section.to_json() for section in self.sections if section.key not in _IN_ROWS],
            "unreadable": [{"folder": f.label, **asdict(bad)} for f in self.folders for bad in f.unreadable],
        }


def summarize_report(
    folders: Sequence[ResultFolder], baseline: str | None = None
) -> tuple[tuple[ArmRow, ...], tuple[SamePair, ...]]:
    """The rows of a report and its A/A pairs. All its comparisons are one family, and none decides less than A/A."""
    rows = summarize(folders, baseline)
    if not rows:
        return (), ()
    pairs = same_pairs(rows)
    statistics = replace(
        rows[0].statistics,
        least=least_differences(rows, pairs),
        family=tuple(dict.fromkeys(_compared(rows))),
        # shared by the comparisons within folders and those with each of them, and by the looks at a bench
        error=ERROR / len(folders) / _looks(folders),
    )
    return tuple(with_predictions(folders, summarize(folders, baseline, statistics))), pairs


def _looks(folders: Sequence[ResultFolder]) -> int:
    return max((folder.bench.looks for folder in folders if folder.bench), default=1)


def _compared(rows: Sequence[ArmRow]) -> Iterator[Pair]:
    """All comparisons within folders that a report shows."""
    for row in rows:
        for versus in (row.one_device, row.independent):
            if versus and versus.label != row.label:
                yield row.label, versus.label
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.folder)]
    for group in (*(rank(each)[0] for each in groups), *map(ranked, series_of(rows))):
        yield from ((row.label, fastest(group).label) for row in group if row is not fastest(group))
    yield from ((sync.label, other.label) for sync, other in sync_and_async(rows))


def make_report(roots: Sequence[Path], baseline: str | None = None) -> Report:
    """The report on the records in these folders.

    Args:
        roots: the folders.
        baseline: the arm with which all others are compared, in place of the suite's.

    Raises:
        TfdistError: a folder has no records, or none in any folder is readable; no folder has the baseline.
    """
    folders = _read(roots)
    rows, pairs = summarize_report(folders, baseline)
    _check_baseline(baseline, rows)
    notes = (*notes_on(rows), *prediction_notes(folders, rows))
    labels = [folder.label if len(folders) > 1 else "" for folder in folders]
    verdicts = tuple(
        verdict_of([row for row in rows if row.folder == label], pairs, partial(how_to_measure_enough, folder, root))
        for label, folder, root in zip(labels, folders, roots, strict=True)
    )
    headline = (
        label_of(label, in_unit(text, rows))
        for label, verdict in zip(labels, verdicts, strict=True)
        for text in (verdict.advice, verdict.certainty)
        if text
    )
    figures = verdicts[0].figures if len(verdicts) == 1 else ()
    paths = zip(labels, (BenchPaths(root).collectives for root in roots), strict=True)
    sweeps = {label: read_collectives(path) for label, path in paths if holds_collectives(path)}
    measured = ReportData(folders, without_refused(rows), notes, sweeps)
    environment = environment_of([record for folder in folders for record in folder.records])
    return Report(
        title=_title(folders),
        headline=tuple(headline),
        sections=sections_of(measured),
        environment=environment,
        warnings=(*warnings_for(rows), *ceiling_warnings(measured)),
        commands=tuple(_commands(folders)),
        facts=tuple(_facts(folders, rows, environment)),
        figures=tuple(replace(each, value=in_unit(each.value, rows)) for each in figures),
        verdicts=verdicts,
        method=in_unit(METHOD + (DROPPING if _looks(folders) > 1 else ""), rows),
        listings=_listings(folders, rows),
        folders=folders,
        rows=rows,
        scaling=scaling_of(rows),
        same_arms=pairs,
        notes=notes,
    )


def _read(roots: Sequence[Path]) -> tuple[ResultFolder, ...]:
    folders = tuple(read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True))
    if not any(folder.records for folder in folders):
        bad = [f"{entry.file}: {entry.reason}" for folder in folders for entry in folder.unreadable]
        where = ", ".join(map(str, roots))
        raise TfdistError(f"no readable record in {where} ({shortened(bad) or 'none written'}): run the bench again")
    return folders


def _check_baseline(baseline: str | None, rows: Sequence[ArmRow]) -> None:
    names = [row.arm for row in rows if row.measured]
    if baseline is not None and baseline not in names:
        raise TfdistError(f"--baseline {baseline}: no measured arm; {did_you_mean(baseline, dict.fromkeys(names))}")


def _title(folders: Sequence[ResultFolder]) -> str:
    if len(folders) > 1:
        return f"{len(folders)} folders side by side"
    (folder,) = folders
    return f"Bench `{folder.bench.suite.name}`" if folder.bench else f"Launch {folder.label}"


def _listings(folders: Sequence[ResultFolder], rows: Sequence[ArmRow]) -> dict[str, list[str]]:
    """What the end of the page lists, by heading."""
    listings = {
        "Failed, incomplete and invalid arms": list(_failures(rows)),
        "Repeated turns": list(_replaced(folders)),
        "Unreadable records": [text for folder in folders for text in folder.skipped],
    }
    return {name: lines for name, lines in listings.items() if lines}


def _facts(
    folders: Sequence[ResultFolder], rows: Sequence[ArmRow], environment: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """When, how much and on what it was measured."""
    if days := sorted({folder.bench.started[:10] for folder in folders if folder.bench}):
        yield days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    yield counted(len(rows), "arm")
    yield counted(max(row.rounds_planned for row in rows), "round")
    for fact, form in (("cpu", "{}"), ("gpus", "{}"), ("cores", "{} cores"), ("tensorflow", "TensorFlow {}")):
        values = environment.get(fact, ("none",))
        if values != ("none",):
            yield form.format(" or ".join(values))


def _failures(rows: Sequence[ArmRow]) -> Iterator[str]:
    for row in rows:
        for record in row.records:
            if record.status not in (RecordStatus.OK, RecordStatus.REFUSED):
                logs = f" (logs: `{record.run_dir}`)" if record.run_dir else ""
                yield f"{row.label}, round {record.round}: **{record.status}**: {record.reason}{logs}"
        if row.status not in (*RecordStatus, PREDICTED):  # it is that of no record
            yield f"{row.label}: **{row.status}**: {row.reason}"
    refused = [row for row in rows if row.status == RecordStatus.REFUSED]
    for reason in dict.fromkeys(row.reason for row in refused):
        yield f"{', '.join(row.label for row in refused if row.reason == reason)}: **refused**: {reason}"


def _replaced(folders: Iterable[ResultFolder]) -> Iterator[str]:
    for record in (record for folder in folders for record in folder.replaced):
        reasons = "; ".join(map(str, disturbances_of(record)))
        outcome = f"disturbed at first ({reasons})" if reasons else "measured before"
        if record.status != RecordStatus.OK:
            outcome = f"**{record.status}** at first ({record.reason})"
        yield f"{record.arm}, round {record.round}: {outcome}, then repeated"


def _commands(folders: Iterable[ResultFolder]) -> Iterator[str]:
    for folder in folders:
        commands = [folder.bench.command] if folder.bench else [record.command for record in folder.records]
        yield from (command for command in dict.fromkeys(commands) if command)
