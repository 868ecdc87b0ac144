"""The page about the fleet: bench_results/scale/scale.md, with its figures as CSV and a picture."""

import csv
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lab.fleet.measure import Figures
from lab.fleet.task import CONSEQUENCE_S
from tfdist.bench.report.figures.pictures import to_png
from tfdist.bench.report.section import Chart

FIT_FROM = 100
"""Hosts from which on the slopes are fitted: with fewer, what every launch costs hides them."""
AIM_HOSTS = 1000


@dataclass(frozen=True)
class Quantity:
    """A row of the table."""

    name: str
    value: Callable[[Figures], float | None]
    text: str = "{:.2f}"
    aim: float | None = None
    """Upper limit at `AIM_HOSTS` hosts."""
    has_slope: bool = True


QUANTITIES = (
    Quantity("all tasks started, s", lambda each: each.started_s, "{:.1f}", 15.0),
    Quantity("CPU time of the launcher until then, s", lambda each: each.cpu_start_s),
    Quantity("the same per host, ms", lambda each: 1e3 * each.cpu_start_s / each.hosts, "{:.1f}", 20.0),
    Quantity("cores of the launcher while all report a step a second", lambda each: each.cores_training, "{:.3f}", 0.3),
    Quantity("peak memory of the launcher, MB", lambda each: each.memory_mb, "{:.0f}", 300.0),
    Quantity("one failure named, s", lambda each: each.named_s, aim=5.0),
    Quantity("`tfdist logs`, s", lambda each: each.logs_s, aim=2.0),
    Quantity("`tfdist runs`, s", lambda each: each.runs_s, aim=2.0),
    Quantity("`tfdist stacks`, s", lambda each: each.stacks_s, aim=2.0),
    Quantity("`tfdist runs NAME` after the end, s", lambda each: each.run_s, aim=2.0),
)
BESIDE = (
    Quantity("steps that the launcher wrote down per second", lambda each: each.steps_per_s, "{:,.0f}"),
    Quantity("CPU time of the played hosts until the start, s", lambda each: each.fleet_cpu_s),
    Quantity("load average of the machine before the launch", lambda each: each.load, "{:.1f}", has_slope=False),
)
PAGE = """# What the launcher costs with many hosts

{hosts} hosts, played by one process: `tfdist launch` starts one small process for each host and gets the messages of an agent and of a worker from it, each answer {delay:g} s late. Written by
`make scale` on {cores} cores, {gb:.0f} GB, Linux {kernel}, Python {python}; the hosts are played on the same cores. [scale.csv](scale.csv) has all figures, each with its commit.

{verdict}

{table}

{notes}

## Files of a run

Bytes. events.jsonl grows with the length of the run as well, by a line for each step that a task reports.

{files}

![{alt}](scale.png)
{real}"""
NOTES = """\
- "slope": the exponent of N, fitted on logarithms over the sizes from {fit_from} hosts on: 1 is linear. A dash: fewer than two such sizes.
- "aim": at {aim_hosts:,} hosts.
- "all tasks started": from the command until events.jsonl has the start of each.
- "CPU time", "cores", "memory": of the launcher's process alone, without the processes that carry the messages.
- "one failure named": worker N/2 raises an exception, and each of the others ends with TensorFlow's error about a peer within {consequence:g} s; until the launcher has exited. {named}
- `tfdist logs`, `runs` and `stacks` while all report."""
REAL = """
## Real agents

The same launch with real agents and tasks, all on this machine, beside played hosts that answer at once. The wall time is that of this machine's cores, which run all agents; what must agree is the launcher's part.

{table}
"""


def load(path: Path) -> list[Figures]:
    """The rows of an earlier run; none without a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [_from_row(row) for row in csv.DictReader(file)]


def _from_row(row: dict[str, str]) -> Figures:
    texts = {"agents", "named", "problems", "commit"}
    parse: dict[str, Callable[[str], object]] = {
        **{each.name: str if each.name in texts else _number for each in fields(Figures)},
        "hosts": int,
        "named_right": "True".__eq__,
        "files": json.loads,
    }
    return Figures(**{name: parse[name](text) for name, text in row.items()})  # type: ignore[arg-type]


def _number(text: str) -> float | None:
    return float(text) if text else None


def save(rows: Sequence[Figures], path: Path) -> None:
    """Write the rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Figures)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**_rounded(asdict(row)), "files": json.dumps(row.files)})


def _rounded(values: dict[str, object]) -> dict[str, object]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def merged(old: Iterable[Figures], new: Iterable[Figures]) -> list[Figures]:
    """The rows in the order of their sizes; a new one replaces an old one of the same launch."""
    rows = {(row.agents, row.delay_s, row.hosts): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows)]


def slope(sizes: Sequence[int], values: Sequence[float | None]) -> float | None:
    """The exponent of N, by least squares on logarithms; None: fewer than two sizes of `FIT_FROM` or more."""
    points = [(size, value) for size, value in zip(sizes, values, strict=True) if size >= FIT_FROM and value]
    if len({size for size, _ in points}) < 2:
        return None
    logs = np.log(points)
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def table(rows: Sequence[Figures], quantities: Sequence[Quantity], with_aim: bool = True) -> str:
    """A row for each quantity, a column for each size."""
    sizes = [row.hosts for row in rows]
    head = ["quantity", *(f"{size:,}" for size in sizes), "slope", *(["aim"] if with_aim else [])]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for quantity in quantities:
        values = [quantity.value(row) for row in rows]
        cells = ["-" if value is None else quantity.text.format(value) for value in values]
        exponent = slope(sizes, values) if quantity.has_slope else None
        fitted = "-" if exponent is None else f"{exponent:.2f}"
        aim = "" if quantity.aim is None else f"under {quantity.aim:g}"
        lines.append([quantity.name, *cells, fitted, *([aim] if with_aim else [])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def file_quantities(rows: Sequence[Figures]) -> list[Quantity]:
    """One for the bytes of each file, the largest first."""
    sizes = {name: size for row in rows for name, size in row.files.items()}  # of the largest launch
    ordered = sorted(sizes, key=lambda name: -sizes[name])
    return [Quantity(name, lambda each, name=name: each.files.get(name), "{:,.0f}") for name in ordered]  # type: ignore[misc]


def verdict(rows: Sequence[Figures]) -> str:
    """Which aims are met at `AIM_HOSTS` hosts."""
    row = next((row for row in rows if row.hosts == AIM_HOSTS), None)
    if row is None:
        return f"{AIM_HOSTS:,} hosts, for which there are aims, were not measured."
    aims = [(each, each.value(row), each.aim) for each in QUANTITIES]
    missed = [
        f"{each.name}: {each.text.format(value)} (aim: under {aim:g})"
        for each, value, aim in aims
        if aim is not None and value is not None and value >= aim
    ]
    return f"With {AIM_HOSTS:,} hosts " + (f"not met: {'; '.join(missed)}." if missed else "all aims are met.")


def _paint(axes: Axes, rows: Sequence[Figures]) -> None:
    sizes = [row.hosts for row in rows]
    lines = {
        "all tasks started, s": [row.started_s for row in rows],
        "CPU time of the launcher until then, s": [row.cpu_start_s for row in rows],
        "cores of the launcher, all report": [row.cores_training for row in rows],
        "one failure named, s": [row.named_s for row in rows],
        "files of the run with one step of each task, MB": [sum(row.files.values()) / 1e6 for row in rows],
        "peak memory, 100 MB": [row.memory_mb / 100 for row in rows],
    }
    for marker, (name, values) in zip("os^vDP", lines.items(), strict=True):
        exponent = slope(sizes, values)
        label = name if exponent is None else f"{name} (slope {exponent:.2f})"
        axes.plot(sizes, values, marker=marker, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("hosts")


def comparison(rows: Sequence[Figures]) -> str:
    """Played beside real hosts of the same number; empty without real ones."""
    real = {row.hosts: row for row in rows if row.agents == "real"}
    beside = {row.hosts: row for row in rows if row.agents == "played" and row.delay_s == 0 and row.hosts in real}
    if not beside:
        return ""
    head = ["quantity", *(f"{kind}, {size:,}" for size in beside for kind in ("played", "real", "ratio"))]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for quantity in (*QUANTITIES, *file_quantities(list(beside.values()))):
        cells: list[str] = []
        for size, row in beside.items():
            values = [quantity.value(row), quantity.value(real[size])]
            cells += ["-" if value is None else quantity.text.format(value) for value in values]
            cells.append(f"{values[0] / values[1]:.2f}" if values[0] and values[1] else "-")
        lines.append([quantity.name, *cells])
    return REAL.format(table="\n".join(f"| {' | '.join(line)} |" for line in lines))


def _busy(launches: Sequence[str]) -> Iterator[str]:
    if launches:
        yield (
            f"Other programs kept the machine busy (load average) during {', '.join(launches)}: wall times are too long "
            "there, and a launcher that gets too little of a core falls behind; CPU times, memory and files count."
        )


def write(rows: Sequence[Figures], out: Path, delay_s: float, notes: Sequence[str]) -> str:
    """Write the page, the picture and the figures into the folder; `notes`: what could not be measured."""
    out.mkdir(parents=True, exist_ok=True)
    shown = [row for row in rows if row.agents == "played" and row.delay_s == delay_s]
    wrong = [f"{row.named} with {row.hosts:,} hosts" for row in shown if not row.named_right]
    named = f"Named wrong: {', '.join(wrong)}." if wrong else "It was named with each number of hosts."
    cores = len(os.sched_getaffinity(0))
    busy = [f"{row.hosts:,} hosts ({row.load:.0f})" for row in shown if row.load > cores]
    problems = [f"{row.hosts:,} hosts: {row.problems}" for row in shown if row.problems]
    method = NOTES.format(fit_from=FIT_FROM, aim_hosts=AIM_HOSTS, consequence=CONSEQUENCE_S, named=named)
    alt = f"{', '.join(f'{row.hosts:,} hosts: all tasks started in {row.started_s:.1f} s' for row in shown)}"
    chart = Chart("scale", "The launcher's cost over hosts", alt, lambda axes: _paint(axes, shown), pd.DataFrame())
    page = PAGE.format(
        hosts=", ".join(f"{row.hosts:,}" for row in shown),
        delay=delay_s,
        cores=cores,
        gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        kernel=platform.release(),
        python=platform.python_version(),
        verdict=verdict(shown),
        table=table(shown, (*QUANTITIES, *BESIDE)),
        notes="\n".join([method, *(f"- {note}" for note in (*problems, *notes, *_busy(busy)))]),
        files=table(shown, file_quantities(shown), with_aim=False),
        alt=alt,
        real=comparison(rows),
    )
    save(rows, out / "scale.csv")
    (out / "scale.png").write_bytes(to_png(chart))
    (out / "scale.md").write_text(page, encoding="utf-8")
    return page
