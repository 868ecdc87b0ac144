"""Loss and accuracy on the held-out examples, computed the same way for every strategy.

The evaluator is a task outside the training's cluster: it measures the accuracy at each checkpoint.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.errors import TfdistError
from tfdist.models.architectures.build import build as build_model
from tfdist.models.checkpoints import Checkpointing, CheckpointList, Manifest, list_checkpoints
from tfdist.models.datasets import pipeline, table
from tfdist.models.record import HeldOut
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import feed
from tfdist.models.training.agreement import make_sum
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.ending import warn
from tfdist.models.training.moving_averages import build_plain, cut, load_weights
from tfdist.models.training.store import GFiles
from tfdist.strategies import devices
from tfdist.strategies.choice import StrategyChoice

POLL_S = 1.0
"""Seconds between two listings of the folder."""
NICENESS = 10
"""Niceness of an evaluator: on a core that it shares with a busy task, it gets about a tenth of the time."""


def follow(spec: TrainingSpec) -> None:
    """Evaluate every checkpoint of the folder until the final one. TensorFlow must have been imported.

    Raises:
        TfdistError: there is no folder of checkpoints, or the data set has no held-out examples.
    """
    checkpointing = Checkpointing.from_env(os.environ)
    if checkpointing is None:
        raise TfdistError(
            f"{Checkpointing.VARIABLE} is not set: start evaluators with `tfdist launch --set evaluator=true`"
        )
    table.check_held_out(spec, table.describe(spec.dataset, spec.data_dir), "--set evaluator=true")
    lower_priority()
    measure = _accuracy_of(spec)
    events.emit("ready")
    look = _looks_into(checkpointing.folder)
    for manifest in new_checkpoints(spec, look, lambda: time.sleep(POLL_S)):
        events.emit("phase", phase=events.Phase.EVALUATING)
        try:
            accuracy = measure(f"{checkpointing.folder}/{manifest.name}")
        except OSError as error:
            if manifest in look().complete:  # otherwise it is older than those that are kept
                warn(f"checkpoint {manifest.name} cannot be read ({error}); it is not evaluated")
            events.emit("ready")
            continue
        events.emit("evaluation", step=manifest.step, accuracy=accuracy)
        sys.stdout.write(f"step {manifest.step}: accuracy {accuracy:.3f}\n")
        sys.stdout.flush()


def new_checkpoints(
    spec: TrainingSpec, look: Callable[[], CheckpointList], wait: Callable[[], None]
) -> Iterator[Manifest]:
    """Each checkpoint once, the oldest first, until the final one of this training.

    A folder that is resumed holds the final checkpoint of a shorter training: after that one, more follow.

    Args:
        spec: of the training.
        look: lists the folder.
        wait: called if there is nothing new.
    """
    before = {_identity(manifest) for manifest in look().complete}
    seen: set[tuple[int, int]] = set()
    while True:
        while not (new := [manifest for manifest in look().complete if _identity(manifest) not in seen]):
            wait()
        oldest = min(new, key=lambda manifest: manifest.step)
        seen.add(_identity(oldest))
        yield oldest
        complete = oldest.step >= spec.steps if spec.examples is None else oldest.examples >= spec.examples
        if oldest.final and (_identity(oldest) not in before or complete):
            return


def _identity(manifest: Manifest) -> tuple[int, int]:
    # after a restart, a step may be saved again
    return manifest.step, manifest.attempt


def lower_priority() -> None:
    """Let training tasks on the same cores go first.

    Each task has a session of its own. Where the kernel schedules sessions as groups (autogroup), the group needs the
    nice value, and that of the process changes nothing.
    """
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def _looks_into(folder: str) -> Callable[[], CheckpointList]:
    """A function that lists the folder. While it cannot be read, it has no checkpoints; the first time is a warning."""
    warned = False

    def look() -> CheckpointList:
        nonlocal warned
        try:
            return list_checkpoints(folder, GFiles())
        except OSError as error:
            if not warned:
                warn(f"{folder} cannot be read ({error}); trying again every {POLL_S:g} s")
            warned = True
            return CheckpointList((), {})

    return look


def _accuracy_of(spec: TrainingSpec) -> Callable[[str], float]:
    """A function from a checkpoint's path to the accuracy. It raises OSError if the checkpoint cannot be read."""
    tf.get_logger().setLevel("ERROR")  # after a damaged checkpoint it would list every variable
    devices.configure(
        StrategyChoice(gpus=spec.gpus, memory_growth=spec.memory_growth, memory_limit_mb=spec.memory_limit_mb)
    )
    model = build_plain(spec, spec.precision)
    count = counter(model)
    examples = pipeline.held_out(table.examples(spec.dataset, spec.data_dir), spec, pipeline.Share())

    def accuracy(prefix: str) -> float:
        try:
            load_weights(model, prefix)
        except tf.errors.OpError as error:
            raise OSError(error.message) from None
        correct, total, _ = count(examples)
        return correct / total

    return accuracy


REPORT_S = 10.0
"""Seconds between two reports that the evaluation continues."""


def held_out(job: TrainingContext) -> Callable[[TrainingState], HeldOut]:
    """A function that measures what has been trained so far; every worker of a synchronous job must call it.

    Each worker evaluates its part of the examples on a plain copy of the model, and the counts are summed. So workers
    do not wait for each other on parts of unequal size. Reading the weights averages BatchNorm's moving statistics
    over replicas where the strategy keeps one copy per replica. The copy is made once, so that later calls are fast.
    """
    model = build_model(job.spec)
    part = feed.share(job) if job.workers > 1 else pipeline.Share()
    examples = pipeline.held_out(table.examples(job.spec.dataset, job.spec.data_dir), job.spec, part)
    count = counter(model)
    total = make_sum(job.strategy, job.workers)

    def measure(trained: TrainingState) -> HeldOut:
        model.set_weights(cut(trained.evaluated_weights(), model.weights))
        correct, number, loss = total(count(_reported(examples)))
        return {"examples": trained.examples * job.workers, "loss": loss / number, "accuracy": correct / number}

    return measure


def _reported(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches; reports now and then that the evaluation continues: a job without a step may count as stalled."""
    reported_at = time.monotonic()
    for batch in batches:
        if time.monotonic() - reported_at >= REPORT_S:
            reported_at = time.monotonic()
            events.emit("phase", phase=events.Phase.EVALUATING)
        yield batch


def counter(model: tf.keras.Model) -> Callable[[Iterable[Any]], tuple[float, float, float]]:
    """A function that counts the examples that the model classifies correctly and all examples, and sums their losses.

    The loss of an example is its cross-entropy.
    """
    per_example = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function(reduce_retracing=True)
    def sums(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits = model(images, training=False)
        predicted = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        return tf.math.count_nonzero(predicted == labels), tf.reduce_sum(per_example(labels, logits))

    def count(examples: Iterable[Any]) -> tuple[float, float, float]:
        rows = [(*map(float, sums(images, labels)), float(labels.shape[0])) for images, labels in examples]
        correct, losses, sizes = zip(*rows, strict=True) if rows else ((), (), ())
        return sum(correct), sum(sizes), sum(losses)

    return count
