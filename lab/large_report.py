"""Seconds and peak memory of a report on 1,500 arms and 10,500 turns; the aim is 20 s and 1 GB.

The turns are those of a recorded bench, repeated for 150 batch sizes with a few percent of noise. With --records, each
turn has a record of its own, as in a bench with --isolated.
"""

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.bench.conftest import save_record
from tfdist.bench.folder import BenchFile, BenchPaths, read_bench
from tfdist.bench.reading import of_turn, read_records
from tfdist.bench.suites.arm import Arm
from tfdist.launch.json_files import save_json
from tfdist.models.record import Record, TurnRecord, Window

RECORDED = Path(__file__).parents[1] / "bench_results" / "20261124T102831Z-cpu"
BATCHES, ROUNDS = range(1, 151), 7
NOISE = 0.04
AIM_S, AIM_MB = 20.0, 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", action="store_true", help="a record for each turn")
    in_records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        turns = write_bench(root, in_records)
        before = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "tfdist", "report", folder], capture_output=True, text=True)
        seconds = time.perf_counter() - before
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak_mb = usage.ru_maxrss * 1024 / 1e6
        print(f"{turns:,} turns, exit code {done.returncode}")
        print(
            f"{seconds:.1f} s (aim {AIM_S:g}; {usage.ru_utime + usage.ru_stime:.1f} s of CPU time), peak memory {peak_mb:.0f} MB (aim {AIM_MB:g})"
        )
        size = (root / "report.html").stat().st_size
        print(f"report.html {size / 1e6:.1f} MB")


def write_bench(root: Path, in_records: bool) -> int:
    """A bench of `len(BATCHES)` times the recorded arms; returns its number of turns."""
    bench = read_bench(RECORDED)
    assert bench is not None
    arms = tuple(
        Arm(name(arm.name, batch), {**arm.choices, "batch_size": batch})
        for arm in bench.suite.arms
        for batch in BATCHES
    )
    suite = replace(bench.suite, name="large", arms=arms, rounds=ROUNDS)
    save_json(BenchPaths(root).bench, BenchFile(suite, bench.command, bench.started, ()).to_json())
    starts, _ = read_records(BenchPaths(RECORDED).records)
    by_start = {(start.arm, start.incarnation): start for start in starts}
    lines = (RECORDED / "turns.jsonl").read_text().splitlines()
    turns = list(repeated([TurnRecord.from_json(json.loads(line)) for line in lines]))
    records = [start_of(by_start[arm, turn.incarnation], turn, batch) for arm, batch, turn in turns] if in_records else [
        replace(start, arm=name(start.arm, batch), spec={**start.spec, "batch_size": batch}, order=number * 1000 + batch)
        for number, start in enumerate(starts) for batch in BATCHES
    ]  # fmt: skip
    for record in records:
        save_record(root, record)
    if not in_records:
        BenchPaths(root).turns.write_text("".join(json.dumps(turn.to_json()) + "\n" for _, _, turn in turns))
    return len(turns)


def repeated(turns: list[TurnRecord]) -> Iterator[tuple[str, int, TurnRecord]]:
    """Recorded arm, batch size, and its turn, ROUNDS for each arm and batch size."""
    draw = random.Random(0)
    latest = {(turn.arm, turn.round): turn for turn in turns}
    chosen = [turn for (_, number), turn in latest.items() if number <= ROUNDS]
    for order, (turn, batch) in enumerate(((turn, batch) for turn in chosen for batch in BATCHES), start=1):
        factor = batch / 16 * math.exp(draw.gauss(0, NOISE))
        windows = {task: tuple(scaled(window, batch, factor) for window in own) for task, own in turn.windows.items()}
        yield turn.arm, batch, replace(turn, arm=name(turn.arm, batch), order=order, windows=windows)


def start_of(start: Record, turn: TurnRecord, batch: int) -> Record:
    """A record of its own for a turn."""
    merged = of_turn(start, turn)
    return replace(merged, arm=turn.arm, spec={**start.spec, "batch_size": batch}, order=turn.order, incarnation=0)


def scaled(window: Window, batch: int, factor: float) -> Window:
    return replace(window, examples=window.examples * batch // 16, elapsed_s=window.elapsed_s * factor)


def name(arm: str, batch: int) -> str:
    return f"{arm}/batch={batch}"


if __name__ == "__main__":
    main()
