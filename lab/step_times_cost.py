"""What reading the clock in each step costs: python -m lab.step_times_cost [--workers N] [--pairs N].

The same model with step times and without is trained a few steps in turn, by all workers together, in the same
processes: what differs from start to start cannot differ, and noise of the machine that lasts longer hits both. On an
H200, with --workers 1 --preset reference --pairs 300: 14.5 % (14.3 to 14.7).
"""

import argparse
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from scipy.stats import quantile_test

from lab.commands import PYTHON, TFDIST

STRETCH = 3
"""Steps."""


def measure(workers: int, pairs: int, preset: str) -> dict[str, list[float]]:
    """The ratios of seconds with step times to those without, in each pair of stretches of this worker."""
    from tfdist.jobs.presets import resolve
    from tfdist.launch.machine import local_machine
    from tfdist.models.training import leading
    from tfdist.models.training.task import cluster_and_task

    choices = {"strategy": "multiworker", "workers": workers} if workers > 1 else {"strategy": "one-device"}
    spec = resolve({**choices, "dataset": "synthetic", "step_times": False}, local_machine(), preset).spec
    job = leading.connect(spec, cluster_and_task()[1])
    with_times = replace(job, spec=replace(spec, step_times=True))
    loops = [("plain", leading.prepare(job)[0]), ("timed", leading.prepare(with_times)[0])]
    for _, loop in loops:
        loop._run(10)
    order = random.Random(0)  # the same in all workers
    ratios: dict[str, list[float]] = {"wall time": [], "CPU time": []}
    for _ in range(pairs):
        seconds = {}
        for name, loop in order.sample(loops, 2):
            started, used = time.perf_counter(), time.process_time()
            loop._run(STRETCH)
            seconds[name] = {"wall time": time.perf_counter() - started, "CPU time": time.process_time() - used}
            if loop.times is not None:
                loop.times.take()
        for clock, values in ratios.items():
            values.append(seconds["timed"][clock] / seconds["plain"][clock])
    return ratios


def main() -> None:
    """Print the cost, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="1: the strategy one-device")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--preset", default="smoke", help="shorter steps make the cost larger")
    options = parser.parse_args()
    if options.workers > 1 and "TF_CONFIG" not in os.environ:
        launch = [TFDIST, "launch", "--strategy", "multiworker", "--workers", str(options.workers)]
        options_of_job = "--set cores_per_device=1 --stall-timeout 0"  # as the built-in training; it reports no steps
        launch += options_of_job.split()
        sys.exit(subprocess.run([*launch, PYTHON, "-m", "lab.step_times_cost", *sys.argv[1:]], check=False).returncode)
    for clock, ratios in measure(options.workers, options.pairs, options.preset).items():
        found = quantile_test(ratios, q=1.0, p=0.5)
        low, high = found.confidence_interval(0.95)
        median = sorted(ratios)[len(ratios) // 2]
        print(f"{clock}: {median - 1:+.2%}, 95 % {low - 1:+.2%} to {high - 1:+.2%} ({options.pairs} pairs)")


if __name__ == "__main__":
    main()
