"""`tfdist export`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.cli.options import Json
from tfdist.cli.run_argument import RUNS_DIR, RunName, RunsDir, argument
from tfdist.jobs.checkpoint_source import find_source, listing_of, no_checkpoint
from tfdist.launch.agent_program.system import temporary_root
from tfdist.launch.agent_program.template import module_command, without_working_folder
from tfdist.launch.agents.messages import Event
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.follow import RunFollower
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import find_run
from tfdist.launch.text import plain
from tfdist.models.checkpoints import UNREADABLE, Manifest
from tfdist.models.spec import TrainingSpec

_MODULE = "tfdist.models.training.export"
_LAST_LINES = 20
"""Lines of the process's stderr that are printed when it fails."""

Target = Annotated[str, argument("TARGET", "What to write: a folder (SavedModel), or a file that ends in .keras.")]


def export(run: RunName, target: Target, runs_dir: RunsDir = RUNS_DIR, json: Json = False) -> None:
    """Write the model of the last checkpoint of a run.

    \b
    Examples:
      tfdist export last model
      tfdist export last model.keras
      tfdist export /shared/checkpoints model

    TARGET becomes a SavedModel, or a Keras file if it ends in .keras. RUN may also be a folder of checkpoints.

    The model maps images to logits. A Keras file is loaded by Keras 3, whatever Keras trained it. If the last
    checkpoint is damaged, the one before it is written, with a warning.
    """
    if "://" in target:
        raise TfdistError(f"TARGET {target}: must be a local path; export there, then copy it")
    if os.path.lexists(target):
        raise TfdistError(f"TARGET {target}: exists already; choose another name")
    folder, manifests = _checkpoints_of(run, runs_dir)
    manifest = _export_first(manifests, folder, target)
    is_keras = target.endswith(".keras")
    kind = "Keras file" if is_keras else "SavedModel"
    if json:
        typer.echo(dumps({"format": 1, "path": str(Path(target).absolute()), "kind": kind, "step": manifest.step}))
        return
    spec = TrainingSpec.from_json(manifest.spec)
    signature = f"tf.saved_model.load({target!r}).signatures['serving_default'](images=...)"
    typer.echo(
        f"{target}: {kind} of step {manifest.step}\n"
        f"  load:   {f'keras.saving.load_model({target!r})' if is_keras else signature}\n"
        f"  input:  float32 images of shape (N, {spec.image_size}, {spec.image_size}, 3), values 0 to 1\n"
        f"  output: {spec.classes} logits of each image"
    )


def _checkpoints_of(run: str, runs_dir: Path) -> tuple[str, tuple[Manifest, ...]]:
    """The folder of checkpoints that RUN names, and the complete checkpoints of that run in it, the newest first.

    Warns of those that cannot be used.

    Raises:
        TfdistError: there is none that can be exported.
    """
    source = find_source(run, runs_dir, f"RUN {run}")
    if "://" in source.folder:
        raise TfdistError(f"RUN {run}: its checkpoints are in {source.folder}; copy that folder here and export it")
    listing = listing_of(source)
    if source.run is not None and source.run.command:
        raise TfdistError(f"RUN {run}: ran your own program; only the built-in training can be exported")
    if listing.newest is None:
        raise no_checkpoint(source, listing)
    for problem in listing.problems.values():
        typer.echo(plain(f"warning: {problem}"), err=True)
    if source.run is None:
        return source.folder, listing.complete
    saved = _steps_saved_by(find_run(run, runs_dir))
    # a run that continued this one saved later steps in the same folder
    complete = tuple(manifest for manifest in listing.complete if not saved or manifest.step <= max(saved))
    if not complete:
        what = f"RUN {run}: its last checkpoint, of step {max(saved)}, is no longer in {source.folder}"
        raise TfdistError(f"{what}; export that folder for its newest one")
    return source.folder, complete


def _steps_saved_by(run_dir: RunDir) -> list[int]:
    """The steps of the checkpoints that a run has saved, by its events."""
    follower = RunFollower(run_dir)
    follower.skip_to_tail(0)
    events = [message.event for message in follower.events(ended=True) if isinstance(message, Event)]
    steps = [event.get("step") for event in events if event.get("event") == "checkpoint"]
    return [step for step in steps if type(step) is int]


def _export_first(manifests: tuple[Manifest, ...], folder: str, target: str) -> Manifest:
    """Export the first of these checkpoints that can be read, each in a process that imports TensorFlow."""
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "TMPDIR": temporary_root()}
    for manifest in manifests:
        words = module_command(_MODULE, f"{folder}/{manifest.name}", str(Path(target).absolute()))
        command = [sys.executable, *words]
        env = {**without_working_folder(os.environ), **TrainingSpec.from_json(manifest.spec).to_env(), **quiet}
        process = subprocess.run(command, env=env, text=True, errors="replace", stderr=subprocess.PIPE, check=False)
        lines = process.stderr.strip().splitlines()[-_LAST_LINES:]
        if process.returncode == 0:
            return manifest
        if process.returncode != UNREADABLE:
            raise TfdistError("\n".join([f"{target} could not be written:", *lines]), ExitCode.FAILED)
        typer.echo(plain(f"warning: {lines[-1].removeprefix('tfdist: ')}"), err=True)
    raise TfdistError(f"no checkpoint in {folder} can be read", ExitCode.FAILED)
