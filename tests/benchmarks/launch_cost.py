"""What the launcher costs, against the same processes started bare; all in one run, taking turns, medians and ratios.

    make bench-launch

Times are wall seconds of whole commands; memory is that of the launch's largest process, the launcher.
Then lines a second from a task to the launcher, seconds until other hosts are ready, and the launcher's share of a
core while two workers train. What goes through ssh goes to a private sshd on this machine.
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
from commands import NO_OP, TFDIST, timed
from hosts_cost import hosts_ready
from private_sshd import NoSshdError, private_sshd
from relay_cost import relay
from rich.console import Console
from rich.progress import track
from rich.table import Table

ROUNDS = 9
WATCHED_S = 15.0
WIDTH = 120
"""Of the tables, wherever they are printed."""


def bare(tasks: int) -> list[str]:
    """A shell that starts so many no-op tasks at once and waits for them."""
    return ["sh", "-c", f'for n in $(seq {tasks}); do "$0" "$@" & done; wait', *NO_OP]


def launched(tasks: int, runs: Path) -> list[str]:
    """The same processes through the launcher, each with a port and a TF_CONFIG."""
    cluster = ["--strategy", "multiworker", "--workers", str(tasks)]
    return [TFDIST, "launch", *cluster, "--quiet", "--runs-dir", str(runs), "--", *NO_OP]


def compare(runs: Path) -> Table:
    """Each pair in turns, after one turn that is not counted."""
    pairs = {
        "tfdist --help": ([TFDIST, "--help"], list(NO_OP), "0.2 s"),
        "2 no-op tasks": (launched(2, runs), bare(2), "0.5 s"),
        "16 no-op tasks": (launched(16, runs), bare(16), "1.2 s"),
    }
    taken = {
        name: [(timed(ours), timed(plain)) for _ in range(ROUNDS + 1)][1:] for name, (ours, plain, _) in _track(pairs)
    }
    table = Table("", "tfdist s", "min..max", "bare s", "ratio", "peak memory MB", "aim", box=None, pad_edge=False)
    for name, turns in taken.items():
        ours = [mine[0] for mine, _ in turns]
        plain = [other[0] for _, other in turns]
        ratio = median(mine / other for mine, other in zip(ours, plain, strict=True))
        memory = max(mine[1] for mine, _ in turns) / 1e6
        spread = f"{min(ours):.2f}..{max(ours):.2f}"
        table.add_row(
            name, f"{median(ours):.3f}", spread, f"{median(plain):.3f}", f"{ratio:.1f}", f"{memory:.0f}", pairs[name][2]
        )
    return table


def _track(
    pairs: dict[str, tuple[list[str], list[str], str]],
) -> Iterable[tuple[str, tuple[list[str], list[str], str]]]:
    return track(list(pairs.items()), description="launching", console=Console(stderr=True), transient=True)


def watch_training(runs: Path) -> str:
    """CPU seconds of launcher and agent for each second in which two workers train."""
    argv = [TFDIST, "launch", "--strategy", "multiworker", "--workers", "2", "--preset", "smoke", "--steps", "100000"]
    launcher = subprocess.Popen([*argv, "--runs-dir", str(runs)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        steps_before = wait_for_steps(runs, 4)
        ours = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children()]
        before, began = cpu_s(ours), time.perf_counter()
        time.sleep(WATCHED_S)  # the length of the measurement, not a wait for something
        used, watched = cpu_s(ours) - before, time.perf_counter() - began
        steps = steps_seen(runs) - steps_before
    finally:
        launcher.send_signal(signal.SIGINT)
        launcher.wait()
    return f"two workers training for {watched:.1f} s, {steps} step events: launcher and agent use {100 * used / watched:.2f} % of a core (aim: under 1 %)"


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """User and system seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def steps_seen(runs: Path) -> int:
    """Step events so far."""
    lines = [line for path in runs.glob("*/events.jsonl") for line in path.read_text().splitlines()]
    return sum(json.loads(line).get("event", {}).get("event") == "step" for line in lines)


def wait_for_steps(runs: Path, count: int) -> int:
    """Wait until so many step events have come; the number that have."""
    until = time.monotonic() + 180
    while (seen := steps_seen(runs)) < count:
        if time.monotonic() > until:
            raise SystemExit("the training did not begin within 180 s")
        time.sleep(0.2)
    return seen


def beside_ssh(folder: Path, console: Console) -> None:
    """What is compared with ssh, as far as there is an sshd."""
    with ExitStack() as stack:
        try:
            keys = folder / "sshd"
            keys.mkdir()
            ssh = stack.enter_context(private_sshd(keys))
        except NoSshdError as reason:
            console.print(f"skipped what goes through ssh: {reason}")
            ssh = None
        console.print(relay(folder, ssh))
        console.print(hosts_ready(folder, ssh))


def main() -> None:
    """Print the tables and the sentence."""
    console = Console(highlight=False, width=WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        console.print(compare(Path(folder, "no-ops")))
        beside_ssh(Path(folder), console)
        console.print(watch_training(Path(folder, "training")))


if __name__ == "__main__":
    main()
