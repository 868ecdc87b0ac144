"""Records of runs that never were: same shape, known times."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfdist.bench.folder import BenchPaths
from tfdist.launch.json_files import append_line, dumps
from tfdist.models.record import RankRecord, Record, TaskUsage, Window
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import StrategyName

HARDWARE = {"cpu": "A CPU", "cores": [0, 1], "memory_bytes": 8_000_000_000, "gpus": [], "os": "Linux 6"}

MakeRecord = Callable[..., Record]


def rank(task: str, elapsed_s: Sequence[float], examples: int, host: str, replicas: int) -> RankRecord:
    windows = tuple(Window(1, examples, elapsed, 2.0) for elapsed in elapsed_s)
    phases = {"import": 4.0, "build": 1.0, "trace": 2.0, "first_step_end": 7.0}
    total = examples * len(windows)
    return RankRecord(task, host, replicas, (), windows, phases, total, len(windows), peak_memory_bytes=600_000_000,
                      software={"tensorflow": "2.21.0"}, environment={"TF_NUM_INTRAOP_THREADS": "1"})  # fmt: skip


def record(
    arm: str = "one-device",
    times: Sequence[Sequence[float]] = ((0.1, 0.1),),
    *,
    round: int = 1,
    strategy: str = "one-device",
    workers: int = 1,
    devices: int = 1,
    ps: int = 0,
    status: str = "ok",
    reason: str = "",
    examples: int = 10,
    order: int = 1,
    tasks: Sequence[str] | None = None,
    hosts: Sequence[str] | None = None,
    **spec: Any,
) -> Record:
    """`times`: for each rank the seconds of each of its windows, of one step and `examples` examples."""
    names = tasks or [f"worker-{index}" for index in range(len(times))]
    boxes = hosts or ["box"] * len(times)
    ranks = tuple(rank(n, t, examples, h, devices) for n, t, h in zip(names, times, boxes, strict=True))
    values = {"batch_size": 10, "workers": workers, "devices": devices, "ps": ps, **spec}
    training = TrainingSpec(strategy=StrategyName(strategy), **values)
    ok = status == "ok"
    return Record(
        arm=arm, round=round, spec=training.to_json(), status=status, reason=reason, exit_code=0 if ok else 1,
        ranks=ranks if ok else (), usage={r.task: TaskUsage(700_000_000, 9.0) for r in ranks} if ok else {},
        hardware=HARDWARE, command="tfdist bench", started="2026-01-01T00:00:00+00:00", wall_s=20.0, order=order,
        hosts=len(set(boxes)),
    )  # fmt: skip


def save_record(root: Path, record: Record) -> None:
    """Append a record to those of a folder, which is created."""
    root.mkdir(parents=True, exist_ok=True)
    append_line(BenchPaths(root).records, dumps(record.to_json()))


@pytest.fixture
def make_record() -> MakeRecord:
    return record


@pytest.fixture
def save_all() -> Callable[[Path, Sequence[Record]], Path]:
    """Write records into a folder, numbered in their order, and return the folder."""

    def save(root: Path, records: Sequence[Record]) -> Path:
        for number, one in enumerate(records, start=1):
            numbered = replace(one, order=number)
            save_record(root, numbered)
        return root

    return save


@pytest.fixture
def bench_records() -> list[Record]:
    """Three rounds of every strategy on two devices, with a straggler here and there; one arm that failed."""
    records = []
    for number, drift in enumerate((1.0, 1.04, 0.98), start=1):
        one = [drift * t for t in (0.100, 0.101, 0.099, 0.104, 0.100)]
        two = [drift * t for t in (0.150, 0.148, 0.151, 0.170, 0.149)]
        records += [
            record("one-device", [one], round=number),
            record("independent", [two, two], round=number, strategy="independent", workers=2),
            record("mirrored/auto", [two], round=number, strategy="mirrored", devices=2, examples=19),
            record("multiworker/ring", [two, [1.1 * t for t in two]], round=number, strategy="multiworker", workers=2),
            record("central-storage", [[1.2 * t for t in two]], round=number, strategy="central-storage", devices=2, examples=20),
            record("parameter-server/1-ps", [[0.6 * t for t in two]], round=number, strategy="parameter-server",
                   workers=2, ps=1, tasks=["chief-0"]),
            record("broken", round=number, strategy="multiworker", workers=2, status="failed", reason="worker-1 was killed by SIGKILL"),
        ]  # fmt: skip
    return records
