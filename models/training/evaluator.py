"""The evaluator: measures held-out accuracy at each checkpoint of a training. It is outside the training's cluster."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tfdist.launch import events
from tfdist.launch.errors import TfdistError
from tfdist.launch.events import Phase
from tfdist.models.checkpointing import Checkpointing
from tfdist.models.checkpoints import CheckpointList, Manifest, list_checkpoints
from tfdist.models.datasets import pipeline, table
from tfdist.models.datasets.table import check_held_out
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.evaluate import counter
from tfdist.models.training.gfile import GFiles
from tfdist.models.training.plain import build_plain, load_weights
from tfdist.strategies import devices
from tfdist.strategies.choice import StrategyChoice

POLL_S = 1.0
"""Seconds between two looks into the folder."""
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
    check_held_out(spec, table.describe(spec.dataset, spec.data_dir), "--set evaluator=true")
    lower_priority()
    measure = _accuracy_of(spec)
    events.emit("ready")
    look = _looks_into(checkpointing.folder)
    for manifest in new_checkpoints(spec, look, lambda: time.sleep(POLL_S)):
        events.emit("phase", phase=Phase.EVALUATING)
        try:
            accuracy = measure(f"{checkpointing.folder}/{manifest.name}")
        except OSError as error:
            if manifest in look().complete:  # otherwise it is older than those that are kept
                _warn(f"checkpoint {manifest.name} cannot be read ({error}); it is not evaluated")
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
        new = [manifest for manifest in look().complete if _identity(manifest) not in seen]
        if not new:
            wait()
            continue
        oldest = min(new, key=lambda manifest: manifest.step)
        seen.add(_identity(oldest))
        yield oldest
        if oldest.final and (_identity(oldest) not in before or _is_complete(oldest, spec)):
            return


def _identity(manifest: Manifest) -> tuple[int, int]:
    # after a restart, a step may be saved again
    return manifest.step, manifest.attempt


def _is_complete(manifest: Manifest, spec: TrainingSpec) -> bool:
    return manifest.step >= spec.steps if spec.examples is None else manifest.examples >= spec.examples


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
                _warn(f"{folder} cannot be read ({error}); trying again every {POLL_S:g} s")
            warned = True
            return CheckpointList((), {})

    return look


def _warn(text: str) -> None:
    sys.stderr.write(f"tfdist: warning: {text}\n")


def _accuracy_of(spec: TrainingSpec) -> Callable[[str], float]:
    """A function from a checkpoint's path to the accuracy. It raises OSError if the checkpoint cannot be read."""
    import tensorflow as tf

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
