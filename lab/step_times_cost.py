"""What reading the clock in each step costs: python -m lab.step_times_cost [--strategy S] [--pairs N].

One process trains the same model with step times and without, a few steps in turn, and compares pairs of neighbouring
stretches: noise of the machine that lasts longer than a stretch hits both. On GPUs not run on hardware.
"""

import argparse
import os
import random
import time
from dataclasses import replace
from statistics import mean, median, stdev

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

STRETCH = 3
"""Steps."""


def main(strategy_name: str, pairs: int, preset: str) -> None:
    """Print the ratio of wall and CPU times, with and without step times."""
    from tfdist.jobs.presets import resolve
    from tfdist.launch.cluster import Task
    from tfdist.launch.machine import local_machine
    from tfdist.models.training import loop
    from tfdist.models.training.context import TrainingContext
    from tfdist.strategies.build import build

    spec = resolve({"strategy": strategy_name, "dataset": "synthetic"}, local_machine(), preset).spec
    job = TrainingContext(spec, build(spec), Task("worker", 0), 1)
    plain, _ = loop.prepare(job)
    timed, _ = loop.prepare(replace(job, spec=replace(spec, step_times=True)))
    for each in (plain, timed):
        each._run(10)
    wall, cpu = [], []
    for _ in range(pairs):
        seconds = {}
        for name, each in random.sample([("plain", plain), ("timed", timed)], 2):
            started, used = time.perf_counter(), time.process_time()
            each._run(STRETCH)
            seconds[name] = time.perf_counter() - started, time.process_time() - used
            if each.times is not None:
                each.times.take()
        wall.append(seconds["timed"][0] / seconds["plain"][0] - 1)
        cpu.append(seconds["timed"][1] / seconds["plain"][1] - 1)
    for name, ratios in (("wall time", wall), ("CPU time", cpu)):
        half = 2 * stdev(ratios) / len(ratios) ** 0.5
        print(
            f"{strategy_name}, {name}: median {median(ratios):+.2%}, mean {mean(ratios):+.2%} +- {half:.2%} ({pairs} pairs)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="one-device")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--preset", default="cpu")
    options = parser.parse_args()
    main(options.strategy, options.pairs, options.preset)
