"""Continuing at a checkpoint: which one, and reading it."""

from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.errors import TfdistError
from tfdist.models import checkpoints
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.agreement import make_sum
from tfdist.models.training.context import StartPoint, TrainingContext
from tfdist.models.training.ending import warn
from tfdist.models.training.moving_averages import MovingAverages
from tfdist.models.training.store import GFiles, check_writable


def saves(job: TrainingContext) -> bool:
    """Whether this task writes the checkpoints of its job."""
    return job.task.index == 0


def io_options(job: TrainingContext) -> tf.train.CheckpointOptions:
    """The files are read and written by this task. By default, parameter servers would write to their own disks."""
    device = "/job:chief/replica:0/task:0/device:CPU:0" if job.variables_on_servers else None
    return tf.train.CheckpointOptions(experimental_io_device=device)


def started(job: TrainingContext, options: checkpoints.Checkpointing, attempt: int) -> TrainingContext:
    """The training, from the newest intact checkpoint on if it is restarted or resumed.

    The task that saves chooses, and the other workers read the same one.

    Raises:
        TfdistError: the folder cannot be used, or the checkpoint is that of another training.
    """
    resumes = options.resume or attempt > 0
    manifest = None
    if saves(job):
        if attempt == 0:
            check_writable(options.folder)
        manifest = _choose(job.spec, options, resumes)
    if resumes:
        chosen = 0.0  # the sum over all workers is that of the one that saves
        if saves(job):
            chosen = -1.0 if manifest is None else float(manifest.step)
        (step,) = make_sum(job.strategy, job.workers)([chosen])
        manifest = manifest if saves(job) or step < 0 else _with_step(job, options.folder, round(step))
    if manifest is None:
        return job
    return replace(job, start=StartPoint(manifest.step, manifest.examples, f"{options.folder}/{manifest.name}"))


def _choose(spec: TrainingSpec, options: checkpoints.Checkpointing, resumes: bool) -> checkpoints.Manifest | None:
    listing = _list(options.folder)
    if not resumes:
        checkpoints.check_empty(listing, options.folder)
        return None
    for saved in listing.complete:
        checkpoints.check_same_training(saved, spec, options.folder)
    manifest, problems = listing.newest_intact(lambda name: damage(f"{options.folder}/{name}"))
    if manifest is None and (problems or (options.resume and not options.may_be_empty)):
        why = "; ".join(problems) or "there is none"
        raise TfdistError(f"{options.folder}: no checkpoint can be used ({why}); start again in another folder")
    for problem in problems:
        warn(f"{options.folder}: {problem}; continuing from an older checkpoint")
    return manifest


def damage(path: str) -> str:
    """Why the checkpoint with this path cannot be read; empty if it can. TensorFlow compares checksums as it reads."""
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, LookupError, OSError) as error:
        return " ".join(str(error).split())
    return ""


def _with_step(job: TrainingContext, folder: str, step: int) -> checkpoints.Manifest:
    """The checkpoint that the first worker chose, on another one."""
    listing = _list(folder)
    found = next((manifest for manifest in listing.complete if manifest.step == step), None)
    if found is None:
        raise TfdistError(
            f"{folder}: {job.task.name} does not see the checkpoint of step {step} that worker-0 continues from; use a "
            "folder that all hosts share"
        )
    return found


def _list(folder: str) -> checkpoints.CheckpointList:
    try:
        return checkpoints.list_checkpoints(folder, GFiles())
    except OSError as error:
        raise TfdistError(f"--checkpoint-dir {folder}: cannot be read ({error}); use another folder") from None


def restore(job: TrainingContext, model: tf.keras.Model, optimizer: Any, averages: MovingAverages | None) -> None:
    """Read the checkpoint at which the training starts, if there is one.

    Raises:
        TfdistError: it cannot be read.
    """
    path = job.start.path
    if path is None:
        return
    try:
        status = tf.train.Checkpoint(model=model, optimizer=optimizer).read(path, io_options(job))
        if job.spec.variable_partitioner == "none":  # otherwise it names containers, which have no value
            status.assert_existing_objects_matched()
        if averages is not None:
            averages.restore(path)
    except (tf.errors.OpError, AssertionError, ValueError) as error:
        raise TfdistError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    status.expect_partial()
    if saves(job):
        events.emit("resumed", step=job.start.step, examples=job.start.examples, path=path)
