"""`make faults`: runs the table's scenarios one after the other, and writes bench_results/faults/."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.faults.page import page, this_commit
from lab.faults.results import FOLDER, ROOT, Row, load, row_of, save
from lab.faults.run import run
from lab.faults.scenario import Scenario
from lab.faults.table import SCENARIOS
from tests.integration.namespaces import Network, missing, network

HOSTS = 3
GUESS_S = 15.0
"""Assumed duration of a scenario that has never been measured here."""


def main() -> int:
    """Run what the arguments say; 1 if anything was not as expected."""
    options = _options()
    chosen = [each for each in SCENARIOS if not options.names or any(name in each.name for name in options.names)]
    if not chosen:
        sys.exit(f"no scenario's name contains {' or '.join(options.names)}; --list prints all")
    if options.list:
        print("\n".join(each.name for each in chosen))
        return 0
    reason = missing() or ("" if shutil.which("cc") else "not installed: cc")
    if reason:
        sys.exit(f"the scenarios need hosts in network namespaces, and a C compiler: {reason}")
    table = options.out / "faults.csv"
    unfinished = options.out / "unfinished.csv"
    rows = _measure(chosen, table, table if options.names else unfinished, options.keep)
    if not options.names:
        unfinished.replace(table)
    (options.out / "README.md").write_text(page(load(table), SCENARIOS))
    print(f"written: {options.out}")
    return int(any(not row.as_expected for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description="Measure what happens after each fault.")
    parser.add_argument("names", nargs="*", help="run only scenarios whose name contains one of these")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="default: bench_results/faults")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs, not only of unexpected ones")
    return parser.parse_args()


def _measure(chosen: Sequence[Scenario], table: Path, path: Path, keep: bool) -> list[Row]:
    """Measure scenarios, and save the rows after each. Those that an interrupted run has measured are not repeated.

    Args:
        chosen: the scenarios.
        table: the rows of the last complete run; they say how long each may take.
        path: where rows are saved: `table` or, for a complete run, a file of its own until all are measured.
        keep: keep the folders of all runs.
    """
    commit = this_commit(ROOT)
    rows = {row.scenario: row for row in load(path)}
    left = [each for each in chosen if path == table or each.name not in rows]
    if len(left) < len(chosen):
        print(
            f"{len(chosen) - len(left)} of {len(chosen)} were measured before an interruption; delete {path} to repeat"
        )
    took = {row.scenario: row.took_s for row in (*load(table), *rows.values())}
    with _folder() as folder, network(folder / "net", HOSTS) as net:
        for number, scenario in enumerate(left):
            minutes = sum(took.get(each.name, GUESS_S) for each in left[number:]) / 60
            print(f"[{number + 1}/{len(left)}, {minutes:.0f} min left] {scenario.name} ... ", end="", flush=True)
            row = _run_one(scenario, folder / str(number), net, keep, commit)
            rows[scenario.name] = row
            save([rows[each.name] for each in SCENARIOS if each.name in rows], path)
            print(
                f"{'as expected' if row.as_expected else f'NOT AS EXPECTED: {row.deviations}'} ({row.took_s:.0f} s)",
                flush=True,
            )
    return [rows[each.name] for each in chosen]


def _run_one(scenario: Scenario, folder: Path, net: Network, keep: bool, commit: str) -> Row:
    started_at = time.monotonic()
    measured = run(scenario, folder, net)
    row = row_of(scenario, measured, time.monotonic() - started_at, commit)
    if row.as_expected and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the runs, removed at the end if it holds none."""
    folder = Path(tempfile.mkdtemp(prefix="tfdist-faults-"))
    (folder / "net").mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder / "net")
        with suppress(OSError):
            folder.rmdir()
        if folder.exists():
            print(f"kept: {folder}")


if __name__ == "__main__":
    sys.exit(main())
