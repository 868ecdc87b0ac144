"""What the launcher costs with N hosts, which are played: `python -m lab.fleet [N ...] [--real]`, or `make scale`.

Each launch starts a task on every host, trains for some seconds, answers `tfdist logs`, `runs` and `stacks`, and ends
with the failure of one task. Rows of earlier runs in scale.csv stay, unless they are measured again.
"""

import argparse
import sys
from pathlib import Path

from lab.fleet.measure import ROOT, Figures, LaunchError, measure_played, measure_real
from lab.fleet.page import load, merged, write

SIZES = (10, 100, 1000, 4000)
REAL_SIZES = (16, 64)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hosts", nargs="*", type=int, help="numbers of hosts (10 100 1000 4000; with --real 16 64)")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds until a played host answers")
    parser.add_argument("--training", type=float, default=10.0, help="seconds over which the training is measured")
    parser.add_argument("--real", action="store_true", help="real agents, and beside them played ones without a delay")
    parser.add_argument("--out", type=Path, default=ROOT / "bench_results" / "scale")
    return parser.parse_args()


def main() -> int:
    """Measure and write the page; returns 1 if a launch could not be measured."""
    options = _options()
    rows = load(options.out / "scale.csv")
    notes: list[str] = []
    for hosts in options.hosts or (REAL_SIZES if options.real else SIZES):
        try:
            found = _measured(hosts, options)
        except LaunchError as error:
            notes.append(f"{hosts:,} hosts could not be measured: {error}")
            print(notes[-1], file=sys.stderr, flush=True)
            continue
        rows = merged(rows, found)
        write(rows, options.out, options.delay, notes)
        for row in found:
            print(f"{row.agents}, {row.hosts:,} hosts: started in {row.started_s:.1f} s", flush=True)
    if rows:
        print(write(rows, options.out, options.delay, notes))
    return int(bool(notes))


def _measured(hosts: int, options: argparse.Namespace) -> list[Figures]:
    if not options.real:
        return [measure_played(hosts, options.delay, options.training)]
    return [measure_played(hosts, 0.0, options.training), measure_real(hosts, options.training)]


if __name__ == "__main__":
    sys.exit(main())
