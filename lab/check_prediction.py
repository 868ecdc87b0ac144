"""How wrong `tfdist predict` is on points that it was not fitted to: other numbers of hosts, and a slower link.

python -m lab.check_prediction [--out DIR] [--rounds N]    # as root; about 11 minutes

Hosts are network namespaces with an equal share of a core each, so that four of them fit on two cores. Fitted: a sweep
of all-reduces over 2 hosts and a bench over 2 (and over 2 and 3) hosts at 1 Gbit/s. Compared: the other numbers of hosts
at 1 Gbit/s, and 2 to 4 at 100 Mbit/s.
"""

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

from lab import cpu_share
from tests.integration.launcher import Launcher
from tests.integration.namespaces import missing, network
from tests.integration.sshd import pid_file
from tfdist.bench.environment import environment_of
from tfdist.bench.predict.curve import ScalingCurve
from tfdist.bench.predict.prediction import Prediction, PredictionOptions, predict
from tfdist.bench.reading import read_folder
from tfdist.bench.report.section import Chart, Page, Section
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import turn_warnings
from tfdist.bench.report.write import write_page
from tfdist.bench.table import Column, Table

HOSTS = (2, 3, 4)
FITS = ((2,), (2, 3))
"""Numbers of hosts of the arms that a prediction is fitted to."""
FITTED, SLOW = 1000, 100
"""Mbit/s."""
PERIOD_US = 10_000
SHARE = 0.35
"""Part of a core that each host has: two hosts share a core; the kernel needs the rest for their packets."""
TIMEOUT_S = 1800.0

SUITE = """
name = "{name}"
preset = "cpu"
rounds = {rounds}
incarnations = 1
turn = 3
[defaults]
model = "mobilenet_v2"
alpha = 0.35
image_size = 32
classes = 1000
batch_size = 16
dataset = "synthetic"
evaluate = false
"""
ONE = '[[arms]]\nname = "one-device"\nstrategy = "one-device"\n'
MANY = '[[arms]]\nname = "{strategy}/{hosts}"\nstrategy = "{strategy}"\nworkers = {hosts}\nhosts = {hosts}\n'


@dataclass(frozen=True)
class Compared:
    """A predicted and a measured point."""

    fitted: tuple[int, ...]
    """One of FITS."""
    mbit: int
    hosts: int
    predicted: float
    low: float
    high: float
    measured: float
    measured_low: float
    measured_high: float

    @property
    def error(self) -> float:
        """Predicted over measured images/s, less 1."""
        return self.predicted / self.measured - 1

    @property
    def held_out(self) -> bool:
        """Whether the model was not fitted to it."""
        return self.mbit != FITTED or self.hosts not in self.fitted

    @property
    def inside(self) -> bool:
        """Whether the measured figure is inside the interval."""
        return self.low <= self.measured <= self.high


def measure(folder: Path, rounds: int) -> None:
    """Write the folders `sweep`, `fitted` and `slow`."""
    with network(folder, HOSTS[-1]) as net, ExitStack() as shares:
        for host in net.hosts:  # its sshd, and so all that is started through it
            shares.enter_context(cpu_share.limited(int(pid_file(host).read_text()), SHARE, PERIOD_US))
        launcher = Launcher(net, Path(sys.executable), folder)
        two, every = (",".join(host.name for host in net.hosts[:number]) for number in (HOSTS[0], HOSTS[-1]))
        try:
            with net.limit_mbit(FITTED):
                sizes = ("--sizes", "16K:32M:4", "--communication", "ring", "--rounds", str(rounds))
                run(launcher, "collectives", "--hosts", two, "--workers", "2", *sizes, "--out", "sweep")
                suite = launcher.script(suite_of("fitted", rounds, (HOSTS[0],)), "fitted.toml")
                run(launcher, "bench", "--hosts", every, "--suite", suite, "--out", "fitted")
            with net.limit_mbit(SLOW):
                suite = launcher.script(suite_of("slow", rounds, ()), "slow.toml")
                run(launcher, "bench", "--hosts", every, "--suite", suite, "--out", "slow")
        finally:
            launcher.kill_started()


def suite_of(name: str, rounds: int, independent: Sequence[int]) -> str:
    """All arms of one link, so that they take turns: the fitted and those held out."""
    alone = [MANY.format(strategy="independent", hosts=number) for number in independent]
    ring = [MANY.format(strategy="multiworker", hosts=number) + 'communication = "ring"\n' for number in HOSTS]
    return "".join([SUITE.format(name=name, rounds=rounds), ONE, *alone, *ring])


def run(launcher: Launcher, command: str, *arguments: str) -> None:
    """Run a tfdist command on the hosts.

    Raises:
        SystemExit: it failed.
    """
    done = launcher.run(*arguments, command=command, timeout_s=TIMEOUT_S)
    print(f"tfdist {command}: {done.seconds:.0f} s", flush=True)
    if done.code:
        raise SystemExit(f"tfdist {command} exited with code {done.code}:\n{done.out[-2000:]}\n{done.err[-4000:]}")


def compare(folder: Path) -> tuple[list[Compared], Prediction]:
    """Predicted with the arms over two, or two and three, hosts at 1 Gbit/s alone, and measured."""
    found = []
    last = None
    for fitted, (mbit, name) in product(FITS, ((FITTED, "fitted"), (SLOW, "slow"))):
        rows = {row.arm: row for row in summarize([read_folder(folder / name, "")])}
        measured = [rows[f"multiworker/{number}"] for number in HOSTS]
        link = measured[0].link  # as `tfdist doctor` measures it: known before any training
        slow = {"bandwidth": link["bytes_per_s"], "latency_s": link["rtt_s"] / 2} if mbit != FITTED else {}
        arms = tuple(f"multiworker/{number}" for number in fitted)
        last = predict(folder / "fitted", folder / "sweep", PredictionOptions(HOSTS, arms=arms, **slow))
        found += [_compared(fitted, mbit, last.curves[0], index, row) for index, row in enumerate(measured)]
    assert last is not None
    return found, last


def _compared(fitted: tuple[int, ...], mbit: int, curve: ScalingCurve, index: int, row: ArmRow) -> Compared:
    point = curve.points[index]
    limits = point.interval
    if row.images_per_s is None:
        raise SystemExit(f"{row.arm} at {mbit} Mbit/s was not measured: {row.reason}")
    low, high = (row.spread.low, row.spread.high) if row.spread else (math.nan, math.nan)
    rate = point.images_per_s
    return Compared(fitted, mbit, point.devices, rate, limits.low, limits.high, row.images_per_s, low, high)


def section_of(found: Sequence[Compared]) -> Section:
    """The errors, as a table and a chart."""
    data = pd.DataFrame(
        [
            {
                **vars(each),
                "fitted": " and ".join(map(str, each.fitted)),
                "error": each.error,
                "held_out": each.held_out,
                "inside": each.inside,
            }
            for each in found
        ]
    )
    columns = (
        Column("fitted to hosts", ("fitted",)),
        Column("link", ("mbit",), "{} Mbit/s"),
        Column("hosts", ("hosts",)),
        Column("measured images/s", ("measured",), "{:.1f}"),
        Column("its 95 % interval", ("measured_low", "measured_high"), "{:.1f} to {:.1f}"),
        Column("predicted images/s", ("predicted",), "{:.1f}"),
        Column("interval", ("low", "high"), "{:.1f} to {:.1f}"),
        Column("error", ("error",), "{:+.1%}"),
        Column("point", ("held_out",), lambda held_out: "held out" if held_out else "fitted"),
        Column("inside", ("inside",), lambda inside: "yes" if inside else "no"),
    )
    held = [each for each in found if each.held_out]
    worst = max(held, key=lambda each: abs(each.error))
    answer = (
        f"The largest error on {len(held)} points that were held out is {worst.error:+.0%} ({worst.hosts} hosts at "
        f"{worst.mbit} Mbit/s, fitted to {' and '.join(map(str, worst.fitted))}); {sum(each.inside for each in held)} of "
        f"them are inside the interval."
    )
    chart = Chart("predicted-and-measured", "Predicted and measured", answer, lambda axes: paint(axes, found), data)
    table = Table("errors", "Errors of predictions", data, columns)
    return Section("errors", "Errors", (answer,), (chart,), (table,))


def paint(axes: object, found: Sequence[Compared]) -> None:
    """A line for the predictions of each link from two hosts, dots for what was measured."""
    from matplotlib.axes import Axes

    from tfdist.bench.report.figures.colors import ASYNC, GRID, INK, SYNC

    assert isinstance(axes, Axes)
    for mbit, color in ((FITTED, SYNC), (SLOW, ASYNC)):
        points = [each for each in found if (each.fitted, each.mbit) == (FITS[0], mbit)]
        hosts = [each.hosts for each in points]
        axes.plot(hosts, [each.predicted for each in points], color=color, label=f"predicted, {mbit} Mbit/s")
        axes.fill_between(hosts, [p.low for p in points], [p.high for p in points], color=color, alpha=0.15, lw=0)
        spread = [[p.measured - p.measured_low for p in points], [p.measured_high - p.measured for p in points]]
        axes.errorbar(
            hosts, [p.measured for p in points], spread, fmt="o", color=color, label=f"measured, {mbit} Mbit/s"
        )
    axes.set_xticks(HOSTS)
    axes.set_xlabel("hosts", color=INK)
    axes.set_ylabel("images/s of the whole job", color=INK)
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)


METHOD = """\
Hosts are network namespaces of one machine, each with {share:.0%} of a core (CPU quota), on links that are limited by a token bucket. MobileNetV2, alpha 0.35, 32 px, 1000 classes, batch 16 per
host, {megabytes:.1f} MB of gradients. All arms of one link took turns in one bench.

- **Fitted** to a sweep of all-reduces over 2 hosts and to the arms one-device, independent over 2 hosts and multiworker over 2, or 2 and 3, hosts, all at {fitted} Mbit/s. From 2 hosts
  alone, a step is assumed to grow by 5 % for each doubling; from 2 and 3, its rest grows as measured.
- **Held out**: multiworker over the other numbers of hosts, and all at {slow} Mbit/s. Of the slow link only its bandwidth and round trip were given to the prediction, as `tfdist doctor`
  measures them.
- An error is predicted over measured images/s, less 1."""


def report(folder: Path, out: Path) -> Path:
    """Compare, and write the page and the records into `out`."""
    found, prediction = compare(folder)
    section = section_of(found)
    megabytes = prediction.curves[0].gradient_bytes / 1e6
    method = METHOD.format(share=SHARE, megabytes=megabytes, fitted=FITTED, slow=SLOW)
    folders = [read_folder(folder / name, "") for name in ("fitted", "slow")]
    warnings = [warning for each in folders for warning in turn_warnings(summarize([each]))]
    records = [record for each in folders for record in each.records]
    commands = ["python -m lab.check_prediction"]
    title = "How far predictions are off"
    facts = environment_of(records)
    made = Page(title, section.answer, (section,), facts, tuple(warnings), tuple(commands), method=method)
    page = write_page(made, out)
    for name in ("sweep", "fitted", "slow"):
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(folder / name, out / name, ignore=shutil.ignore_patterns("runs", "*.log"))
    return page


def main() -> None:
    """Measure, unless --measured names a folder of an earlier run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "bench_results" / "prediction")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--measured", type=Path, help="a folder with sweep, fitted and slow")
    options = parser.parse_args()
    if options.measured:
        print(report(options.measured, options.out))
        return
    reason = missing() or cpu_share.missing()
    if reason:
        raise SystemExit(f"check_prediction: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="tfdist-prediction-"))
    print(f"measuring in {folder}", flush=True)
    measure(folder, options.rounds)
    print(report(folder, options.out))


if __name__ == "__main__":
    main()
