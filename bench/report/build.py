"""Folders of records -> a Report: its headline, key figures, notes, sections and method. Needs no TensorFlow."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tfdist.bench.collectives.results import holds_collectives, read_collectives
from tfdist.bench.environment import environment_of
from tfdist.bench.folder import BenchPaths
from tfdist.bench.noise import FEWEST_STARTS
from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.arm_records import between_epochs, disturbances_of, label_of
from tfdist.bench.report.columns import Scaling, scaling_of, values_of, without_refused
from tfdist.bench.report.format import between, difference, in_unit, labels_of
from tfdist.bench.report.section import KeyFigure, Page, Section
from tfdist.bench.report.sections.batch import batch_section, ranked, series_of
from tfdist.bench.report.sections.ceiling import ceiling_section, ceiling_warnings
from tfdist.bench.report.sections.collectives import all_reduce_section
from tfdist.bench.report.sections.convergence import convergence_section
from tfdist.bench.report.sections.kinds import kinds_section, sync_and_async
from tfdist.bench.report.sections.lost_time import lost_time_section
from tfdist.bench.report.sections.ratios import folders_section
from tfdist.bench.report.sections.results import costs_section, results_section, windows_section
from tfdist.bench.report.sections.scaling import efficiency_section, scaling_section
from tfdist.bench.report.summary import ArmRow, ReportData, at_most_slower, fastest, others_over, rank, summarize
from tfdist.bench.report.warnings import Trust, TrustLevel, least_differences, same_pairs, trust_of, warnings_for
from tfdist.bench.same_arms import SamePair
from tfdist.bench.statistics import ERROR, FEWEST_ROUNDS, ArmVerdict, Comparison, Pair
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, did_you_mean, shortened
from tfdist.models.record import RecordStatus
from tfdist.strategies.catalog import Exchange


def headline(rows: Sequence[ArmRow], trusts: Mapping[str, Trust]) -> tuple[str, ...]:
    """One text per folder, in order: the fastest arm, by how much, and how certain that is."""
    folders = groupby(rows, key=lambda row: row.folder)
    return tuple(_of_folder(list(group), folder, trusts[folder][0]) for folder, group in folders)


def best_of(rivals: Sequence[ArmRow], level: TrustLevel) -> ArmRow | None:
    """The fastest of the arms that are ranked, which are all of one folder; None: it cannot be named."""
    return fastest(rivals) if len(rivals) == 1 or (rivals and level is not TrustLevel.DO_NOT_USE) else None


def _of_folder(rows: Sequence[ArmRow], folder: str, level: TrustLevel) -> str:
    measured = [row for row in rows if row.measured]
    if not measured:
        return label_of(folder, f"Nothing was measured: {_tally(rows)}.")
    if versions := [row for row in rows if row.has_base]:
        return label_of(folder, " ".join(map(_of_version, versions)))
    rivals, unranked = rank(measured)
    few = ", in too few rounds to compare them" if any(row.rounds < FEWEST_ROUNDS for row in measured) else ""
    fix = f": use --rounds {FEWEST_STARTS} or more" if any(row.rounds_planned < FEWEST_ROUNDS for row in rows) else ""
    best = best_of(rivals, level)
    sentences = [f"{len(measured)} of {counted(len(rows), 'arm')} were measured{few}{fix if few else ''}."]
    if best:
        sentences = _ranking(best, rivals, measured)
    left = [f"{label} ({why})" for label, why in unranked.items() if best or not why.startswith("fewer")]
    sentences += [f"Not ranked: {'; '.join(left)}."] if left else []
    rest = [row for row in rows if not row.measured]
    sentences += [f"Not measured: {_tally(rest)}."] if rest else []
    return label_of(folder, " ".join(sentences))


def _of_version(row: ArmRow) -> str:
    found = row.over_base
    if found is None:
        why = row.reason or "that was not measured, or did not train under its strategy"
        return f"{row.arm} is not compared with its base: {why}."
    return f"{row.arm} is {found.ratio:.3f} times its base{between(found.interval, '.3f')}: {difference(found)}."


def _ranking(best: ArmRow, rivals: Sequence[ArmRow], measured: Sequence[ArmRow]) -> list[str]:
    ties = ties_of(best, rivals)
    group = [best, *(row for row, _ in ties)]
    of, devices = f"of {len(rivals)} arms{_not_counted(rivals, measured)}", counted(best.devices or 0, "device")
    if ties:
        rates = f"{min(row.rate for row in group):.1f} to {best.rate:.1f} images/s for the whole job"
        names = shortened([row.arm for row in group], most=12)
        which = f"{len(group)} {of} are the fastest, without a measurable difference"
        if len(group) == len(rivals):
            which = f"No measurable difference between {of.removeprefix('of ')}"
        sentences = [f"{which}: {names}, {rates}."]
        who = f"{ties[0][0].arm} is" if len(ties) == 1 else "Each of them is"
        sentences += [f"{who} at most {at_most_slower(of for _, of in ties)} slower than {best.arm}, by its interval."]
    else:
        which = f"{best.arm} was the fastest {of}" if len(rivals) > 1 else best.arm
        every = all(of.interval for _, of in others_over(best, rivals))
        sure = ", measurably faster than every other arm" if len(rivals) > 1 and every else ""
        sentences = [f"{which}: {best.rate:.1f} images/s for the whole job on {devices}{sure}."]
    if apart := [row.arm for row, of in others_over(best, rivals) if not of.interval]:
        sentences += [f"{shortened(apart)} cannot be compared with it: too few rounds in common."]
    one, independent = best.one_device, best.independent
    if one and one.label != best.label:
        verdict, limits = difference(one.comparison), between(one.comparison.interval, ".2f")
        which = best.arm if ties else "That"
        sentences += [f"{which} is {one.comparison.ratio:.2f} times {one.label}{limits}: {verdict}."]
        sentences += [f"Efficiency {one.efficiency:.0%}."] if best.devices != 1 else []
    if independent and independent.label != best.label:
        share = f"{independent.efficiency:.0%} of {independent.label}"
        sentences.append(f"It reaches {share}, the same devices without exchange.")
    return sentences


def ties_of(best: ArmRow, rivals: Sequence[ArmRow]) -> list[tuple[ArmRow, Comparison]]:
    """The arms that are not measurably slower than the one with the most images/s; none that cannot be compared."""
    return [(row, of) for row, of in others_over(best, rivals) if of.interval and of.verdict is not ArmVerdict.SLOWER]


def _not_counted(rivals: Sequence[ArmRow], measured: Sequence[ArmRow]) -> str:
    """The ceilings and baselines that were not ranked."""
    others = [row for row in measured if row not in rivals and not row.why_not_ranked]
    ceilings = [row.arm for row in others if row.exchange is Exchange.NONE]
    single = [row.arm for row in others if row.devices == 1 and row.arm not in ceilings]
    parts = [f"{', '.join(ceilings)}, without exchange"] if ceilings else []
    parts += [f"{', '.join(single)}, on one device"] if single else []
    return f" (not counted: {'; '.join(parts)})" if parts else ""


def _tally(rows: Sequence[ArmRow]) -> str:
    """`2 arms failed, 1 arm refused`."""
    statuses = Counter(row.status for row in rows)
    return ", ".join(f"{counted(number, 'arm')} {status}" for status, number in statuses.items())


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
    for folder, least in {row.folder: row.statistics.least.get(row.label) for row in rows}.items():
        if least:
            yield label_of(folder, f"Equal arms (A/A) may differ by up to {least:.1%} here: less has no verdict.")
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


def key_figures(rows: Sequence[ArmRow], trusts: Mapping[str, Trust]) -> Iterator[KeyFigure]:
    """Figures of the fastest arm, or of versions; none in a report over several folders, or if no arm can be ranked."""
    versions = [(row, found) for row in rows if row.has_base and (found := row.over_base) and len(trusts) == 1]
    for row, found in versions:
        limits = between(found.interval, ".3f")
        yield KeyFigure(f"{found.ratio:.3f} times", f"{row.arm} over its base{limits}: {difference(found)}")
    rivals, _ = rank([] if versions else rows)
    best = best_of(rivals, *(level for level, _ in trusts.values())) if len(trusts) == 1 else None
    if best is None:
        return
    ties = ties_of(best, rivals)
    rates = f"{min(row.rate for row, _ in ties):.0f} to {best.rate:.0f}" if ties else f"{best.rate:.1f}"
    of = f"{1 + len(ties)} arms without a measurable difference; {best.arm}: " if ties else ""
    meaning = f"{of}whole job, {counted(best.devices or 0, 'device')}{between(best.spread, '.1f')}"
    yield KeyFigure(f"{rates} {in_unit('images/s', [best])}", meaning)
    one, independent = best.one_device, best.independent
    if one and one.label != best.label:
        limits = between(one.comparison.interval, ".2f")
        yield KeyFigure(f"{one.comparison.ratio:.2f} times", f"{one.label}{limits}: {difference(one.comparison)}")
        if best.devices != 1:
            yield KeyFigure(f"{one.efficiency:.0%}", f"efficiency against {one.label}")
    if independent and independent.label != best.label:
        yield KeyFigure(f"{independent.efficiency:.0%}", f"of {independent.label}, which exchanges nothing")


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
- **Trust.** Good, noisy or do not use, by the noise of two equal arms (A/A: within 5 %; without them, that of every
  ratio), disturbed turns (at most 10 %, 50 %), rounds (3), starts (4, none of which differs from its arm's others), and
  figures that contradict the plan.
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

FORMAT = 2
"""Format of report.json."""
_IN_ROWS = ("results", "costs")
"""Keys of sections whose figures report.json has as `rows`."""


@dataclass(frozen=True, kw_only=True)
class Report(Page):
    """The page on benches or launches, with the figures behind it."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
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
            "trust": list(self.trust),
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
        # shared by the comparisons within folders and those with each of them
        error=ERROR / len(folders),
    )
    return summarize(folders, baseline, statistics), pairs


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
    folders = tuple(read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True))
    records = [record for folder in folders for record in folder.records]
    if not records:
        bad = [f"{entry.file}: {entry.reason}" for folder in folders for entry in folder.unreadable]
        where = ", ".join(map(str, roots))
        raise TfdistError(f"no readable record in {where} ({shortened(bad) or 'none written'}): run the bench again")
    rows, pairs = summarize_report(folders, baseline)
    names = [row.arm for row in rows if row.measured]
    if baseline is not None and baseline not in names:
        raise TfdistError(f"--baseline {baseline}: no measured arm; {did_you_mean(baseline, dict.fromkeys(names))}")
    notes, trusts = tuple(notes_on(rows)), trust_of(rows, pairs)
    labels = [folder.label if len(folders) > 1 else "" for folder in folders]
    paths = zip(labels, (BenchPaths(root).collectives for root in roots), strict=True)
    sweeps = {label: read_collectives(path) for label, path in paths if holds_collectives(path)}
    measured = ReportData(folders, without_refused(rows), notes, sweeps)
    environment = environment_of(records)
    listings = {
        "Failed, incomplete and invalid arms": list(_failures(rows)),
        "Repeated turns": list(_replaced(folders)),
        "Unreadable records": [text for folder in folders for text in folder.skipped],
    }
    title = f"Bench `{folders[0].bench.suite.name}`" if folders[0].bench else f"Launch {folders[0].label}"
    return Report(
        title=title if len(folders) == 1 else f"{len(folders)} folders side by side",
        trust=tuple(label_of(folder, text) for folder, (_, text) in trusts.items() if text),
        headline=tuple(in_unit(text, rows) for text in headline(rows, trusts)),
        sections=sections_of(measured),
        environment=environment,
        warnings=(*warnings_for(rows), *ceiling_warnings(measured)),
        commands=tuple(_commands(folders)),
        facts=tuple(_facts(folders, rows, environment)),
        figures=tuple(key_figures(rows, trusts)),
        method=in_unit(METHOD, rows),
        listings={name: lines for name, lines in listings.items() if lines},
        folders=folders,
        rows=rows,
        scaling=scaling_of(rows),
        same_arms=pairs,
        notes=notes,
    )


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
        if row.status not in list(RecordStatus):  # it is that of no record
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
