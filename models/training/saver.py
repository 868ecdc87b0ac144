"""When a training is saved: at window edges, at which all ranks decide the same."""

import os
import signal
import time
from collections.abc import Callable
from threading import Thread
from types import FrameType

import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.checkpoints import Checkpointing, Manifest
from tfdist.models.training.agreement import make_sum, wait_before_exit
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.ending import leave, warn
from tfdist.models.training.restore import io_options, saves
from tfdist.models.training.store import MEMORY, drop_snapshot, mark_final, store
from tfdist.strategies.catalog import CATALOG

CHECK_S = 1.0
"""Minimum interval, seconds, at which the ranks agree on whether to save."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class SaveRequests:
    """Catches the signals until `release`. A task that has trained nothing just ends: it makes none of these."""

    def __init__(self) -> None:
        """Note the signals from now on. Only for the main thread."""
        self.arrived = False
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def release(self) -> None:
        """Handle the signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.arrived = True


class Saver:
    """Saves one training. All ranks must call it at the same steps."""

    def __init__(self, job: TrainingContext, options: Checkpointing, trained: Callable[[], TrainingState]) -> None:
        """Save what `trained` returns, from now on also when a signal requests it."""
        self._job, self._options, self._trained = job, options, trained
        self._sum = make_sum(job.strategy, job.workers)
        self._storing: Thread | None = None
        """Stores one checkpoint at a time, while the training continues."""
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

    def at_edge(self, step: int) -> bool:
        """Save after this step if it is time to. Returns whether that, or asking the others, took time.

        If a signal requested it, the task ends with code 42.
        """
        due = self._options.every_steps is not None and step % self._options.every_steps == 0
        if step >= self._job.spec.steps or not (due or step - self._checked_step >= self._spacing):
            return False
        late, leaves = self._ask(step)
        if due or late or leaves:
            self._save(step)
        if leaves:
            self._wait()
            wait_before_exit(self._job)
            if self._failure and self._last_step is None:
                raise TfdistError(f"{self._options.folder} has no checkpoint to resume", ExitCode.FAILED)
            leave(ExitCode.PREEMPTED)
        self._checked_at = time.monotonic()
        return True

    def finish(self) -> None:
        """Save the trained model and wait until it is stored. From now on, signals end the task."""
        if self._job.start.step < self._job.spec.steps:
            self._save(self._job.spec.steps, final=True)
            self._wait()
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
        arrived = float(self._requests.arrived)
        lates, requests, seconds = self._sum([float(late), arrived, now - self._checked_at])
        if self._checked_step > self._job.start.step:  # the first steps took the time of their trace
            self.step_s = max(1e-6, seconds / self._job.workers / max(1, step - self._checked_step))
            self._spacing = max(1, int(CHECK_S / self.step_s))
        self._checked_step = step
        return lates > 0.5, requests > 0.5

    def _save(self, step: int, final: bool = False) -> None:
        """Take a snapshot, and start to store it. Every worker takes part, because averages need all of them."""
        self._wait()
        self._failure = ""
        started_at = time.perf_counter()
        self._write()
        self._saved_at = time.monotonic()
        if not saves(self._job):
            drop_snapshot()
            return
        attempt = int(os.environ.get("TFDIST_ATTEMPT", "0"))
        manifest = Manifest(step, self._job.examples_at(step), self._job.spec.to_json(), {}, attempt, final)
        self._storing = Thread(target=self._store, args=(manifest, started_at), daemon=True)
        self._storing.start()

    def _wait(self) -> None:
        """Return when the last checkpoint has been stored and reported."""
        if self._storing is not None:
            self._storing.join()

    def _store(self, manifest: Manifest, started_at: float) -> None:
        """Store the snapshot and report it. `started_at`: its start by time.perf_counter()."""
        folder, step = self._options.folder, manifest.step
        try:
            store(folder, manifest, self._options.keep)
        except OSError as error:
            self._failure = str(error)
            last = "there is none yet" if self._last_step is None else f"the last one is of step {self._last_step}"
            warn(f"the checkpoint of step {step} could not be saved in {folder} ({error}); {last}")
        else:
            self._last_step = step
            path = f"{folder}/{manifest.name}"
            seconds = round(time.perf_counter() - started_at, 3)
            saved = {"step": step, "examples": manifest.examples, "path": path}
            events.emit("checkpoint", **saved, seconds=seconds, final=manifest.final)
        drop_snapshot()


def _write_function(job: TrainingContext, trained: Callable[[], TrainingState]) -> Callable[[], object]:
    """A function that writes weights, their moving averages, and the state of the optimizer with its loss scale into
    memory. What a session has trained is copied before.

    Under parameter-server it is traced once: TensorFlow builds a graph of all variables for each save, which takes
    seconds there. Elsewhere that graph would lack the loss scale of tf_keras.
    """
    state = trained()
    options = io_options(job)
    averages = {} if state.averages is None else {"averages": list(state.averages.averages)}
    checkpoint = tf.train.Checkpoint(model=state.model, optimizer=state.optimizer, **averages)

    def write() -> object:
        return checkpoint.write(MEMORY, options)

    if CATALOG[job.spec.strategy].graph:
        return lambda: (trained(), write())
    if not job.variables_on_servers:
        return write
    traced: Callable[[], object] = tf.function(write).get_concrete_function()
    return traced
