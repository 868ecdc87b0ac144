"""A report as Markdown, section by section. Pure."""

from collections.abc import Iterable, Sequence

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.build import Report
from tfdist.bench.report.scaling import DESCRIPTIONS
from tfdist.bench.report.summary import NOT_RUN, ArmRow
from tfdist.models.record import Record, RecordStatus

METHOD = """\
Each run is one training in fresh processes. A round is one run of every arm, in shuffled order, so that drift of the
machine affects all arms alike.

- **Timing.** Warm-up steps are not timed. A barrier then starts the first timed window of all processes together. A
  window is a number of steps; the clock is read at its edges only, after the devices have finished.
- **images/s** is the whole job's: examples over wall time, all windows together, never a mean of rates. A window of a
  synchronous job costs the time of its slowest process. Of an asynchronous job, the applied examples are counted, on
  the coordinator's clock. Of trainings without exchange, the windows that all of them have are counted, until the last
  process ends.
- **Statistics.** The figure of an arm is its median over rounds. "Over rounds" is a 95 % bootstrap interval, or
  min..max of two rounds. Arms are compared round by round; an arm is faster or slower only if 1 lies outside both the
  bootstrap interval of the ratio and Student's interval of its logarithm.
- **Speed-up** is images/s over the baseline's; **efficiency** is the same per device. `independent` runs as many
  one-device trainings side by side without exchange: efficiency against it shows the cost of the strategy itself.
- **Peak memory** is resident memory as counted by the operating system: of the largest process, and the sum of all
  processes' peaks. MB and GB are decimal."""


def markdown(report: Report, table: str, pictures: Sequence[str]) -> str:
    """The whole report; `table` is Markdown, `pictures` are names of files in the same folder."""
    sections = (
        f"# {_title(report.folders)}\n\n" + "\n\n".join(report.headline),
        f"## Results\n\n{DESCRIPTIONS[report.scaling]}. {_baselines(report.rows)}\n\n{table}",
        "\n\n".join(f"![{name.removesuffix('.png').replace('_', ' ')}]({name})" for name in pictures),
        _section("Warnings", (f"**{w.code}**: {w.text} {w.advice}" for w in report.warnings)),
        _section("Arms that did not complete", _failures(report.rows)),
        _section("Repeated runs", _replaced(report.folders)),
        _section("Unreadable records", _unreadable(report.folders)),
        _section("Environment", _environment(report.environment)),
        f"## Method\n\n{METHOD}",
        _section("Command", _commands(report.folders)),
    )
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _baselines(rows: Iterable[ArmRow]) -> str:
    labels = dict.fromkeys(row.one_device.label for row in rows if row.one_device)
    return f"Baseline of speed-up and efficiency: {', '.join(labels)}." if labels else "No baseline was measured."


def _title(folders: Sequence[ResultFolder]) -> str:
    if len(folders) > 1:
        return f"{len(folders)} folders side by side"
    return f"Bench `{folders[0].bench.suite.name}`" if folders[0].bench else f"Launch {folders[0].label}"


def _section(title: str, lines: Iterable[str]) -> str:
    items = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}\n", *items]) if items else ""


def _failures(rows: Iterable[ArmRow]) -> Iterable[str]:
    for row in rows:
        for record in row.records:
            if record.status != RecordStatus.OK:
                logs = f" (logs: `{record.run_dir}`)" if record.run_dir else ""
                yield f"{row.label}, {_round(record)}: **{record.status}**: {record.reason}{logs}"
        if row.status == NOT_RUN:
            yield f"{row.label}: **{row.status}**: {row.reason}"


def _round(record: Record) -> str:
    return "all rounds" if record.status == RecordStatus.REFUSED else f"round {record.round}"


def _replaced(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        for record in folder.replaced:
            yield f"{record.arm}, round {record.round}: **{record.status}** at first ({record.reason}), then repeated"


def _unreadable(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        yield from (f"{folder.label}/{bad.file}: {bad.reason}" for bad in folder.unreadable)


def _environment(facts: dict[str, tuple[str, ...]]) -> Iterable[str]:
    for fact, values in facts.items():
        differs = " (differs between processes)" if len(values) > 1 else ""
        yield f"{fact}: {' | '.join(values)}{differs}"


def _commands(folders: Iterable[ResultFolder]) -> Iterable[str]:
    for folder in folders:
        commands = [folder.bench.command] if folder.bench else [record.command for record in folder.records]
        yield from (f"`{command}`" for command in dict.fromkeys(commands) if command)
