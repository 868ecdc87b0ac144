"""The page about the table: bench_results/faults/README.md."""

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from lab.faults.results import Row
from lab.faults.scenario import Fault, Scenario
from tfdist.launch.git import git

COLUMNS = {
    "job": "",
    "task": "",
    "moment": "",
    "named": "",
    "exit code": "--:",
    "detected s": "--:",
    "ended s": "--:",
    "next step s": "--:",
    "x cold start": "--:",
    "steps lost": "--:",
    "left over": "--:",
}
NOT_HERE = """\
- **An agent, its parent and their guard killed at the same moment.** The parent cleans up after the agent, and the guard after
  both. Without all three, the kernel ends the tasks, but a process that a task has put into another session stays, and so does the temporary folder.
- **A clock that really jumps.** The wall clock of a machine is shared, and time namespaces do not cover it. A library in
  LD_PRELOAD (`lab/faults/clock.c`) shifts what the launcher, the agents and the tasks read; times of files stay right.
- **A host that loses power, a switch, a real network.** Hosts are network namespaces of one machine: links are cut, shaped
  and filtered, but the hosts share the kernel, the clock, the memory and the disks.
- **A shared disk that hangs** (NFS without its server), and a disk with bad sectors: checkpoints are damaged by
  overwriting bytes, disks are small file systems in memory.
- **GPUs**: no Xid errors, no out-of-memory of a device, no NCCL.
- **A real scheduler's preemption**: its signals are sent, Slurm and Kubernetes are not run.
- **Object storage** (gs://, s3://) for checkpoints."""


TENSORFLOW = """\
## Where TensorFlow decides

Workers of multiworker send each other heartbeats through TensorFlow's coordination service, by the wall clock, with a
deadline of 5 s and a limit of 10 s. So a job may fail although nothing is wrong with any task: when the clock is set back,
and when a link is down for 5 s. Nobody is to blame then, and whichever task failed first is named; `--max-restarts` restarts
the job. These scenarios count as expected if the job ends with code 0, with or without a restart."""


def page(rows: Sequence[Row], scenarios: Iterable[Scenario]) -> str:
    """The page in Markdown."""
    faults = {scenario.fault.name: scenario.fault for scenario in scenarios}
    groups = [(fault, [row for row in rows if row.fault == name]) for name, fault in faults.items()]
    sections = [_section(fault, of_fault) for fault, of_fault in groups if of_fault]
    return (
        "\n\n".join([_head(rows), _summary(rows), *sections, TENSORFLOW, f"## Not reproducible here\n\n{NOT_HERE}"])
        + "\n"
    )


def _head(rows: Sequence[Row]) -> str:
    commits = " and ".join(dict.fromkeys(row.commit for row in rows))
    return f"""# What happens when

Written by `make faults`: {len(rows)} scenarios, each a real `tfdist launch` that meets a fault. Measured on
{max(row.measured for row in rows)} UTC at {commits}; {len(os.sched_getaffinity(0))} cores, {_memory_gb()} GB, Linux {platform.release()}, Python
{platform.python_version()}, TensorFlow {version("tensorflow")}; {sum(row.took_s for row in rows) / 60:.0f} minutes in all.
[faults.csv](faults.csv) has all figures and the sentence that each run printed.

Trainings are the model `tiny` on `digits`, paced so that the fault comes before the end; several processes of one on this
machine are forked from a template, which has imported TensorFlow. `plain` jobs are programs without TensorFlow, `copied` ones
run with --copy, `function` is run by `tfdist.run`. Hosts are network namespaces with an sshd each.

- **named**: the task in the failure block; a dash where no task is to blame.
- **detected**: from the fault to the first line about it, or to the launcher's decision to stop the job.
- **ended**: from the fault to the end of the command, restarts included.
- **next step**: from the detection to the first step of the next attempt; **x cold start** compares it with the time from the
  start of the first attempt's tasks to its first step.
- **steps lost**: between the last step of the first attempt and the one that the next attempt continued from.
- **left over**: processes, listening ports and temporary folders 15 s after the end, on all hosts; not counted is the lock file
  of a few bytes that a killed launcher leaves of its claim on a checkpoint folder, until the next launch with that folder ends."""


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _summary(rows: Sequence[Row]) -> str:
    wrong = [row for row in rows if not row.as_expected]
    killed = [row for row in rows if row.fault == "sigkill"]
    frozen = [row for row in rows if row.fault == "sigstop"]
    lines = [
        ("as expected in every respect", f"{len(rows) - len(wrong)} of {len(rows)}"),
        ("named right", f"{sum(row.named_right for row in rows)} of {len(rows)}"),
        ("right exit code", f"{sum(row.exit_code == row.expected_code for row in rows)} of {len(rows)}"),
        ("runs that left anything behind", str(sum(row.orphans > 0 for row in rows))),
        ("slowest detection of a killed task", _longest([row.detected_s for row in killed], "s")),
        ("slowest detection of a frozen task", _longest([row.detected_s for row in frozen], "s")),
        ("slowest restart, in cold starts", _longest([row.ratio for row in rows], "")),
    ]
    table = ["| | |", "| --- | --: |", *(f"| {name} | {value} |" for name, value in lines)]
    listed = ["", "Not as expected:", "", *(f"- `{row.scenario}`: {row.deviations}" for row in wrong)] if wrong else []
    return "## In short\n\n" + "\n".join([*table, *listed])


def _longest(values: Iterable[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.2f} {unit}".strip() if known else "not measured"


def _section(fault: Fault, rows: Sequence[Row]) -> str:
    header = f"| {' | '.join(COLUMNS)} |\n| {' | '.join(align or '---' for align in COLUMNS.values())} |"
    return "\n".join([f"## {fault.summary}", "", f"`{fault.name}`", "", header, *map(_line, rows)])


def _line(row: Row) -> str:
    cells = (
        row.job,
        row.task or "-",
        row.moment + (f", {row.restarts} of {row.max_restarts} restarts" if row.max_restarts else ""),
        row.named or "-",
        str(row.exit_code),
        _cell(row.detected_s),
        _cell(row.ended_s),
        _cell(row.next_step_s),
        _cell(row.ratio),
        "" if row.steps_lost is None else str(row.steps_lost),
        str(row.orphans),
    )
    return f"| {' | '.join(cells)} |" + ("" if row.as_expected else " (!)")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def this_commit(root: Path) -> str:
    """The commit of the code that was measured, with `-dirty` if files are changed, results of measuring aside."""
    commit = git("describe", "--always", folder=root)
    if commit.returncode != 0:
        return f"version {version('tfdist')}"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench_results", folder=root).stdout
    return f"commit {commit.stdout.strip()}{'-dirty' if changed else ''}"
