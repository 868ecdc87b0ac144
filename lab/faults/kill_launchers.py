"""Launches of two no-op tasks, each launcher killed by SIGKILL at a random moment: is anything left after 15 s?

`python -m lab.faults.kill_launchers --count 50` writes bench_results/faults/killed_launchers.md.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from lab.faults.leftovers import kill_left, left_over
from lab.faults.page import this_commit
from lab.faults.results import FOLDER, ROOT
from lab.faults.sandbox import Sandbox, sandbox
from tests.integration.namespaces import Network, missing, network

NO_OP = (sys.executable, "-S", "-c", "pass")
COUNT = 50
SLACK = 1.1
"""The last moments are after the end of an undisturbed launch."""


@dataclass(frozen=True)
class Killed:
    """One launch."""

    after_s: float
    """Time from its start to the signal."""
    code: int
    """-9, or 0 if it ended before."""
    clean_s: float
    """Time from the signal until nothing was left, or until the wait for that was over."""
    left: tuple[str, ...]


def undisturbed_s(box: Sandbox) -> float:
    """Seconds of one launch that is not killed."""
    started_at = time.monotonic()
    assert start(box).wait() == 0
    return time.monotonic() - started_at


def kill_at(box: Sandbox, after_s: float) -> Killed:
    """Start a launch, kill its launcher after some seconds, and see what is left."""
    launcher = start(box)
    time.sleep(after_s)  # the moment is the point
    killed_at = time.monotonic()
    launcher.send_signal(signal.SIGKILL)
    code = launcher.wait()
    left = left_over(box)
    return Killed(after_s, code, time.monotonic() - killed_at, tuple(left))


def start(box: Sandbox) -> "subprocess.Popen[bytes]":
    """Start a launch of two no-op tasks."""
    argv = box.argv("launch", "--strategy", "multiworker", "--workers", "2", "--runs-dir", str(box.runs), "--", *NO_OP)
    nothing = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=box.folder, env=box.environment(), stdin=nothing, stdout=nothing, stderr=nothing)


def kill_many(count: int, net: Network | None, seed: int = 0) -> list[Killed]:
    """Kill a number of launchers, each in a sandbox of its own, at moments spread evenly over a launch, in random order."""
    chance = random.Random(seed)
    base = Path(tempfile.mkdtemp(prefix="tfdist-killed-"))
    results: list[Killed] = []
    try:
        with sandbox(base / "whole", net, uuid.uuid4().hex) as box:
            undisturbed_s(box)  # loads the files
            whole_s = undisturbed_s(box) * SLACK
        for number in range(count):
            with sandbox(base / str(number), net, uuid.uuid4().hex) as box:
                results.append(kill_at(box, chance.uniform(0, whole_s)))
                kill_left(box)
    finally:
        shutil.rmtree(base)
    return results


def text(results: Sequence[Killed], namespaces: bool, commit: str) -> str:
    """The result in Markdown."""
    killed = [result for result in results if result.code == -signal.SIGKILL]
    dirty = [result for result in results if result.left]
    where = "in a network namespace" if namespaces else "on this machine"
    lines = [
        "# Killed launchers",
        "",
        f"{len(results)} launches of 2 no-op tasks {where}, each launcher killed by SIGKILL after 0 to "
        f"{max(result.after_s for result in results):.2f} s, chosen at random;",
        f"{len(killed)} were killed before they had ended. {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {commit}.",
        "",
        f"- left a process, a port or a temporary folder after 15 s: **{len(dirty)}**",
        f"- seconds until nothing was left: median {median(result.clean_s for result in results):.2f}, "
        f"longest {max(result.clean_s for result in results):.2f}",
        *(f"- after {result.after_s:.3f} s: {'; '.join(result.left)}" for result in dirty),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Kill launchers, and write what was found; 1 if anything was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    commit = this_commit(ROOT)
    if missing():
        results = kill_many(options.count, None, options.seed)
        namespaces = False
    else:
        with tempfile.TemporaryDirectory() as folder, network(Path(folder), 1) as net:
            results = kill_many(options.count, net, options.seed)
            namespaces = True
    FOLDER.mkdir(exist_ok=True)
    page = text(results, namespaces, commit)
    (FOLDER / "killed_launchers.md").write_text(page)
    print(page)
    return int(any(result.left for result in results))


if __name__ == "__main__":
    sys.exit(main())
