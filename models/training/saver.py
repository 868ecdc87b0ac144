"""When a training is saved: at window edges, at which all ranks decide the same."""

import os
import sys
import time
from collections.abc import Callable

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.checkpoints import Checkpointing, Manifest
from tfdist.models.training.agreement import make_sum
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.exit_barrier import wait_before_exit
from tfdist.models.training.preemption import PreemptedError, SaveRequests
from tfdist.models.training.restore import io_options, saves
from tfdist.models.training.store import MEMORY, Writer, drop_snapshot, mark_final
from tfdist.strategies.catalog import CATALOG

CHECK_S = 1.0
"""Smallest number of seconds between two questions to the other ranks whether to save now."""


class Saver:
    """Saves one training. All ranks must call it at the same steps."""

    def __init__(self, job: TrainingContext, options: Checkpointing, trained: Callable[[], TrainingState]) -> None:
        """Save what `trained` returns, from now on also when a signal requests it."""
        self._job, self._options, self._trained = job, options, trained
        self._sum = make_sum(job)
        self._writer = Writer(options.folder, options.keep, self._report)
        self._write = _write_function(job, trained)
        self._failure = ""
        """Failure of the last save."""
        self._last_step = job.start.step if job.start.path is not None else None
        """Step of the newest checkpoint."""
        self._saved_at = self._checked_at = time.monotonic()
        self._checked_step = job.start.step
        self._spacing = 1
        self.step_s: float | None = None
        """Seconds of a step lately, the same on all ranks; None: unknown."""
        self._requests = SaveRequests()
        self._requests.catch()

    def at_edge(self, step: int) -> bool:
        """Save after this step if it is time to. Returns whether that, or asking the others, took time.

        Raises:
            PreemptedError: it was saved because a signal requested it.
        """
        due = self._options.every_steps is not None and step % self._options.every_steps == 0
        if step >= self._job.spec.steps or not (due or step - self._checked_step >= self._spacing):
            return False
        late, leaves = self._ask(step)
        if due or late or leaves:
            self._save(step)
        if leaves:
            self._leave(step)
        self._checked_at = time.monotonic()
        return True

    def finish(self) -> None:
        """Save the trained model and wait until it is stored. From now on, signals end the task."""
        if self._job.start.step < self._job.spec.steps:
            self._save(self._job.spec.steps, final=True)
            self._writer.wait()
        elif saves(self._job):
            mark_final(self._options.folder, self._job.start.step)
        self._requests.release()

    def end(self) -> None:
        """Check that the trained model was stored.

        Raises:
            TfdistError: the trained model could not be stored.
        """
        if self._failure:
            raise TfdistError(
                f"the trained model could not be saved in {self._options.folder} ({self._failure})", ExitCode.FAILED
            )

    def _ask(self, step: int) -> tuple[bool, bool]:
        """Whether the last checkpoint is too old, and whether any task is requested to leave."""
        now = time.monotonic()
        every_s = self._options.every_s
        late = saves(self._job) and every_s is not None and now - self._saved_at >= every_s
        requested = self._requests.signal is not None
        lates, requests, seconds = self._sum([float(late), float(requested), now - self._checked_at])
        if self._checked_step > self._job.start.step:  # the first steps took the time of their trace
            self.step_s = max(1e-6, seconds / self._job.workers / max(1, step - self._checked_step))
            self._spacing = max(1, int(CHECK_S / self.step_s))
        self._checked_step = step
        return lates > 0.5, requests > 0.5

    def _save(self, step: int, final: bool = False) -> None:
        """Take a snapshot, and start to store it. Every worker takes part, because averages need all of them."""
        self._writer.wait()
        self._failure = ""
        started_at = time.perf_counter()
        self._write()
        self._saved_at = time.monotonic()
        if not saves(self._job):
            drop_snapshot()
            return
        attempt = int(os.environ.get("TFDIST_ATTEMPT", "0"))
        examples = self._job.examples_at(step)
        self._writer.start(Manifest(step, examples, self._job.spec.to_json(), {}, attempt, final), started_at)

    def _leave(self, step: int) -> None:
        self._writer.wait()
        wait_before_exit(self._job)
        if self._failure and self._last_step is None:
            raise TfdistError(f"{self._options.folder} has no checkpoint to resume", ExitCode.FAILED)
        raise PreemptedError(f"step {step}")

    def _report(self, manifest: Manifest, seconds: float, failure: str) -> None:
        folder = self._options.folder
        if failure:
            self._failure = failure
            last = "there is none yet" if self._last_step is None else f"the last one is of step {self._last_step}"
            sys.stderr.write(
                f"tfdist: warning: the checkpoint of step {manifest.step} could not be saved in {folder} ({failure}); "
                f"{last}\n"
            )
            return
        self._last_step = manifest.step
        path = f"{folder}/{manifest.name}"
        events.emit(
            "checkpoint",
            step=manifest.step,
            examples=manifest.examples,
            path=path,
            seconds=round(seconds, 3),
            final=manifest.final,
        )


def _write_function(job: TrainingContext, trained: Callable[[], TrainingState]) -> Callable[[], object]:
    """A function that writes what is trained into memory; that of a session is copied before.

    Under parameter-server it is traced once: TensorFlow builds a graph of all variables for each save, which takes
    seconds there. Elsewhere that graph would lack the loss scale of tf_keras.
    """
    checkpoint, options = _checkpoint_of(trained()), io_options(job)

    def write() -> object:
        return checkpoint.write(MEMORY, options)

    if CATALOG[job.spec.strategy].graph:
        return lambda: (trained(), write())
    if not job.variables_on_servers:
        return write
    traced = tf.function(write)
    traced.get_concrete_function()
    result: Callable[[], object] = traced
    return result


def _checkpoint_of(trained: TrainingState) -> tf.train.Checkpoint:
    """The weights, their moving averages, and the state of the optimizer with its loss scale."""
    averages = {} if trained.averages is None else {"averages": list(trained.averages.averages)}
    return tf.train.Checkpoint(model=trained.model, optimizer=trained.optimizer, **averages)
