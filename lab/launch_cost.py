"""Overhead of the launcher, compared with the same processes started by a shell. Run it with `make bench-launch`.

Launcher and shell take turns; the table has medians of wall seconds and their ratios, and the peak memory of the largest
process, which is the launcher. Further: lines per second from a task to the launcher, seconds until other hosts are
ready, and CPU time of the launcher while two workers train. ssh connects to a private sshd on this machine.
"""

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.commands import NO_OP, PYTHON, TFDIST, timed
from lab.hosts_cost import hosts_ready
from lab.private_sshd import NoSshdError, private_sshd
from lab.relay_cost import relay

ROUNDS = 9
TRAINING_S = 15.0
REFERENCE = "import typer, rich.console"
"""Imports that the launcher needs as well: the times of tfdist are also given as multiples of theirs, which depend less
on the machine. The aims are of a machine on which they take 0.21 s."""
WIDTH = 120
"""Columns of the tables, also if stdout is not a terminal."""


def shell_command(tasks: int) -> list[str]:
    """A shell that starts `tasks` no-op processes at once and waits for them."""
    return ["sh", "-c", f'for n in $(seq {tasks}); do "$0" "$@" & done; wait', *NO_OP]


def launch_command(tasks: int, runs: Path) -> list[str]:
    """The same processes started by the launcher, each with a port and a TF_CONFIG."""
    cluster = ["--strategy", "multiworker", "--workers", str(tasks)]
    return [TFDIST, "launch", *cluster, "--quiet", "--runs-dir", str(runs), "--", *NO_OP]


def compare(runs: Path) -> Table:
    """Time each pair in turns, after one warm-up turn."""
    pairs = {
        REFERENCE: ([PYTHON, "-c", REFERENCE], list(NO_OP), ""),
        "import tfdist": ([PYTHON, "-c", "import tfdist"], list(NO_OP), ""),
        "tfdist --help": ([TFDIST, "--help"], list(NO_OP), "0.16 s"),
        "2 no-op tasks": (launch_command(2, runs), shell_command(2), "0.56 s"),
        "16 no-op tasks": (launch_command(16, runs), shell_command(16), "0.78 s"),
    }
    rounds = [
        {name: (timed(ours), timed(plain)) for name, (ours, plain, _) in pairs.items()} for _ in _track(ROUNDS + 1)
    ]
    times = {name: [turn[name] for turn in rounds[1:]] for name in pairs}
    table = Table(
        "", "tfdist s", "min..max", "shell s", "ratio", "memory MB", "/ imports", "aim", box=None, pad_edge=False
    )
    for name, turns in times.items():
        ours = [mine[0] for mine, _ in turns]
        plain = [other[0] for _, other in turns]
        ratio = median(mine / other for mine, other in zip(ours, plain, strict=True))
        memory = max(mine[1] for mine, _ in turns) / 1e6
        spread = f"{min(ours):.2f}..{max(ours):.2f}"
        units = median(mine[0] / unit[0] for (mine, _), (unit, _) in zip(turns, times[REFERENCE], strict=True))
        values = (f"{median(plain):.3f}", f"{ratio:.1f}", f"{memory:.0f}", f"{units:.2f}", pairs[name][2])
        table.add_row(name, f"{median(ours):.3f}", spread, *values)
    return table


def _track(rounds: int) -> Iterable[int]:
    return track(range(rounds), description="launching", console=Console(stderr=True), transient=True)


def watch_training(runs: Path) -> str:
    """CPU time of launcher and agent, as a percentage of one core, while two workers train."""
    argv = [TFDIST, "launch", "--strategy", "multiworker", "--workers", "2", "--preset", "smoke", "--steps", "100000"]
    launcher = subprocess.Popen([*argv, "--runs-dir", str(runs)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        steps_before = wait_for_steps(runs, 4)
        ours = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children()]
        cpu_before = cpu_s(ours)
        start = time.perf_counter()
        time.sleep(TRAINING_S)  # the length of the measurement
        used, watched = cpu_s(ours) - cpu_before, time.perf_counter() - start
        steps = step_events(runs) - steps_before
    finally:
        launcher.send_signal(signal.SIGINT)
        launcher.wait()
    return f"two workers training for {watched:.1f} s, {steps} step events: launcher and agent use {100 * used / watched:.2f} % of a core (aim: under 1 %)"


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """User and system seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def step_events(runs: Path) -> int:
    """Number of step events so far."""
    lines = [line for path in runs.glob("*/events.jsonl") for line in path.read_text().splitlines()]
    return sum(json.loads(line).get("event", {}).get("event") == "step" for line in lines)


def wait_for_steps(runs: Path, count: int) -> int:
    """Wait for at least `count` step events; their number."""
    deadline = time.monotonic() + 180
    while (steps := step_events(runs)) < count:
        if time.monotonic() > deadline:
            raise SystemExit("the training did not start within 180 s")
        time.sleep(0.2)
    return steps


def print_ssh_tables(folder: Path, console: Console) -> None:
    """Print the comparisons with ssh; without an sshd, only those that do not need it."""
    with ExitStack() as stack:
        try:
            keys = folder / "sshd"
            keys.mkdir()
            ssh = stack.enter_context(private_sshd(keys))
        except NoSshdError as reason:
            console.print(f"skipped the comparison with ssh: {reason}")
            ssh = None
        console.print(relay(folder, ssh))
        console.print(hosts_ready(folder, ssh))


def main() -> None:
    """Print all results."""
    console = Console(highlight=False, width=WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        console.print(compare(Path(folder, "no-ops")))
        print_ssh_tables(Path(folder), console)
        console.print(watch_training(Path(folder, "training")))


if __name__ == "__main__":
    main()
