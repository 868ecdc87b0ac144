"""Real trainings for the tests of this folder: every task is a process, started as `tfdist launch` starts it."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from tfdist.models.record import RankRecord
from tfdist.models.run import run_spec
from tfdist.models.spec import TrainingSpec

TINY = TrainingSpec(
    model="tiny",
    image_size=32,
    classes=10,
    batch_size=8,
    dataset="digits",
    bn_momentum=0.9,
    steps=8,
    steps_per_window=2,
    warmup_steps=2,
)
"""A few steps of a small model on real data: about 8 s, most of which TensorFlow takes to start."""

MOBILE = replace(TINY, model="mobilenet_v2", alpha=0.35)


def train(spec: TrainingSpec, folder: Path, timeout_s: float = 240.0) -> tuple[RankRecord, ...]:
    """What each rank measured of one training; it must end well."""
    record = run_spec(spec, folder, arm="test", timeout_s=timeout_s)
    assert record.status == "ok", f"{record.reason}\n{stderr(folder)}"
    return record.ranks


def train_all(specs: list[TrainingSpec], folder: Path) -> list[tuple[RankRecord, ...]]:
    """Several trainings, two at a time, for tests that ask whether they run and not how fast."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        waiting = [
            pool.submit(train, replace(spec, cores_per_device=None), folder / str(number))
            for number, spec in enumerate(specs)
        ]
        return [future.result() for future in waiting]


def stderr(folder: Path) -> str:
    """What the tasks of a failed training said last."""
    return "\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in sorted(folder.rglob("stderr.log")))


def losses(rank: RankRecord) -> list[float]:
    """The loss at the end of each window, warm-up included."""
    return [window.loss for window in (*rank.warmup, *rank.windows) if window.loss is not None]
