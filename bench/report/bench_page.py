"""The report of benches as a page, with how its figures were measured. Pure."""

from collections.abc import Iterable, Iterator

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.build import Report
from tfdist.bench.report.format import in_unit
from tfdist.bench.report.section import Listing, Page
from tfdist.bench.report.summary import NOT_RUN, PARTIAL, REFUTED, WRONG, ArmRow
from tfdist.bench.report.warnings import disturbances_of
from tfdist.launch.text import counted
from tfdist.models.record import RecordStatus

METHOD = """\
The processes of an arm are started several times, each time warmed up and parked. Then the arms take turns of a few
seconds, while all others wait. A round is one turn of every arm, in shuffled order, so that drift of the machine
affects all arms alike.

- **Timing.** All processes of an arm begin a turn together. After a step that is not counted, a turn is timed in
  windows of some steps; the clock is read at their edges only, after the devices have finished.
- **images/s** is the whole job's: examples over wall time, all windows together, never a mean of rates. A window of a
  synchronous job costs the time of its slowest process. Of an asynchronous job, the applied examples are counted, on
  the coordinator's clock. Of trainings without exchange, all are counted until the first of them is through.
- **Statistics.** The model is log images/s = arm + round + rest. The figure of an arm is its geometric mean over
  starts, and of each start over its rounds; a speed-up is the ratio of two figures. Intervals rest on the starts. The
  one that is shown decides: an arm is faster or slower if its interval of the speed-up excludes 1, and if equal arms
  (A/A) do not differ by as much. With fewer than 3 rounds there is no interval, and with fewer than 4 starts no verdict
  on less than 5 %.
- **Speed-up** is images/s over the baseline's; **efficiency** is the same per device. `independent` runs as many
  one-device trainings side by side without exchange: efficiency against it shows the cost of the strategy itself.
- **Trust.** Good, noisy or do not use, by the noise of two equal arms (A/A: within 5 %), disturbed turns (at most 10 %,
  50 %), rounds (3) and starts (4, none of which differs from its arm's others), and figures that contradict the plan.
- **One machine.** A CPU device is one core. Devices of one process share its threads, parameter servers share the cores
  of the workers, and processes on one host exchange data through its memory, not over a network: measure hosts with
  `--hosts`.
- **Losses.** Synchronous arms of the same work, seed, batch and number of replicas must have the same losses. An arm
  that has not is `wrong`, and is not ranked. Nor is one whose number of replicas is not the planned one, or that is
  faster for sure than as many devices can be. Arms of a program of yours are ranked at equal work: the same number of
  examples per step, of a device or of all.
- **Costs.** Start-up: from the start of the slowest process to the end of its first step. CPU s per s: CPU seconds of
  all processes of the job, per second of its turns. Percentiles: of the windows' times per step of all devices. Memory
  is resident memory: at the end of the last window, and the peak over the life of the process, import and trace
  included. MB and GB are decimal."""


def page_of(report: Report) -> Page:
    """All of the report."""
    folders = report.folders
    unreadable = (f"{folder.label}/{bad.file}: {bad.reason}" for folder in folders for bad in folder.unreadable)
    listings = (
        Listing("Arms that did not complete, or not as they should", tuple(_failures(report.rows))),
        Listing("Repeated turns", tuple(_replaced(folders))),
        Listing("Unreadable records", tuple(unreadable)),
    )
    title = f"Bench `{folders[0].bench.suite.name}`" if folders[0].bench else f"Launch {folders[0].label}"
    return Page(
        title=title if len(folders) == 1 else f"{len(folders)} folders side by side",
        trust=report.trust,
        headline=report.headline,
        sections=report.sections,
        environment=report.environment,
        warnings=report.warnings,
        commands=tuple(_commands(folders)),
        facts=tuple(_facts(report)),
        figures=report.figures,
        method=in_unit(METHOD, report.rows),
        listings=tuple(listing for listing in listings if listing.lines),
    )


def _facts(report: Report) -> Iterator[str]:
    """When, how much and on what it was measured."""
    days = sorted({folder.bench.started[:10] for folder in report.folders if folder.bench})
    if days:
        yield days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    yield counted(len(report.rows), "arm")
    yield counted(max(row.rounds_planned for row in report.rows), "round")
    for fact, form in (("cpu", "{}"), ("gpus", "{}"), ("cores", "{} cores"), ("tensorflow", "TensorFlow {}")):
        values = report.environment.get(fact, ("none",))
        if values != ("none",):
            yield form.format(" or ".join(values))


def _failures(rows: Iterable[ArmRow]) -> Iterator[str]:
    for row in rows:
        for record in row.records:
            if record.status != RecordStatus.OK:
                when = "all rounds" if record.status == RecordStatus.REFUSED else f"round {record.round}"
                logs = f" (logs: `{record.run_dir}`)" if record.run_dir else ""
                yield f"{row.label}, {when}: **{record.status}**: {record.reason}{logs}"
        if row.status in (NOT_RUN, PARTIAL, REFUTED, WRONG):
            yield f"{row.label}: **{row.status}**: {row.reason}"


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
