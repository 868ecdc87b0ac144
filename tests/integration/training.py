"""Trainings for the tests of this folder: every task is a process, started as `tfdist launch` starts it."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from tfdist.jobs.tasks import plan_command, plan_training
from tfdist.launch.job import Program
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import create_run_dir
from tfdist.launch.runs.writer import RunWriter
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.record import RankRecord, Record, RecordStatus
from tfdist.models.run import run_training
from tfdist.models.spec import Architecture, TrainingSpec

TINY = TrainingSpec(
    model=Architecture.TINY,
    image_size=32,
    classes=10,
    batch_size=8,
    dataset="digits",
    bn_momentum=0.9,
    steps=8,
    steps_per_window=2,
    warmup_steps=2,
)
"""A few steps of a small model on real data: about 8 s, most of it TensorFlow's start-up."""

MOBILE = replace(TINY, model=Architecture.MOBILENET_V2, alpha=0.35)


def train(
    spec: TrainingSpec,
    folder: Path,
    timeout_s: float = 500.0,
    script: Path | None = None,
    saving: Checkpointing | None = None,
) -> tuple[RankRecord, ...]:
    """The record of each rank of a successful training, run by `script` instead of the built-in task if given."""
    record = attempt(spec, folder, timeout_s, script, saving)
    assert record.status is RecordStatus.OK, f"{record.reason}\n{stderr(folder)}"
    return record.ranks


def attempt(
    spec: TrainingSpec,
    folder: Path,
    timeout_s: float = 500.0,
    script: Path | None = None,
    saving: Checkpointing | None = None,
) -> Record:
    """The record of a training that may fail. Only the built-in task can save."""
    if script is None:
        job = plan_training(spec, local_machines(), env=saving.to_env() if saving else None)
    else:
        job = plan_command(spec, Program((str(script),), {}, str(folder.parent), python=True), local_machines())
    run_dir = create_run_dir(folder, "training")
    policy = Policy(timeout_s=timeout_s)
    with RunWriter(run_dir) as writer:
        _, record = run_training(job, spec, writer, policy, {}, arm="test")
    return record


def train_all(specs: list[TrainingSpec], folder: Path, script: Path | None = None) -> list[tuple[RankRecord, ...]]:
    """Several trainings, two at a time, for tests that do not depend on speed."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        futures = [
            pool.submit(train, replace(spec, cores_per_device=None), folder / str(number), script=script)
            for number, spec in enumerate(specs)
        ]
        return [future.result() for future in futures]


def stderr(folder: Path) -> str:
    """The end of each task's stderr, for the message of a failed test."""
    return "\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in sorted(folder.rglob("stderr.log")))


def losses(rank: RankRecord) -> list[float]:
    """The loss at the end of each window, warm-up included."""
    return [window.loss for window in (*rank.warmup, *rank.windows) if window.loss is not None]
