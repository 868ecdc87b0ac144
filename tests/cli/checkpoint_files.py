"""Checkpoints and runs whose files are fake."""

import json
from pathlib import Path

from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.rundir import RunDir
from tfdist.models.checkpoints import Checkpointing, Manifest, name_of
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice

SPEC = TrainingSpec(
    alpha=0.35,
    image_size=32,
    batch_size=32,
    classes=10,
    bn_momentum=0.9,
    steps=200,
    steps_per_window=5,
    meta_optimizer=False,
)
"""A training of preset smoke with --steps 200."""


def save_checkpoint(folder: Path, step: int, spec: TrainingSpec = SPEC, *, final: bool = False) -> Manifest:
    """A checkpoint as TensorFlow and tfdist write it."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {f"{name_of(step)}.index": 7, f"{name_of(step)}.data-00000-of-00001": 20}
    for file, size in sizes.items():
        (folder / file).write_bytes(b"x" * size)
    values = json.loads(json.dumps(spec.to_json()))
    manifest = Manifest(step, step * spec.global_batch_size, values, sizes, final=final)
    (folder / manifest.file).write_text(manifest.to_text())
    return manifest


def save_run(
    name: str,
    *steps: int,
    spec: StrategyChoice = SPEC,
    command: tuple[str, ...] = (),
    every_steps: int | None = 50,
    saved: bool = True,
) -> RunDir:
    """A run that has ended, in the folder runs, with checkpoints of these steps."""
    run_dir = RunDir(Path("runs", name).absolute())
    checkpointing = Checkpointing(str(run_dir.checkpoints), every_steps, keep=5) if saved else None
    save_json(run_dir.spec, SavedSpec(spec, command, checkpointing).to_json())
    save_json(run_dir.outcome, {"format": 1, "status": "failed", "exit_code": 137, "reason": "worker-0 was killed"})
    for step in steps:
        assert isinstance(spec, TrainingSpec)
        save_checkpoint(run_dir.checkpoints, step, spec)
    return run_dir
