"""`tfdist.measure.Callback`. Imports TensorFlow."""

import math
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import tensorflow as tf

from tfdist.launch.errors import TfdistError
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart, job_part
from tfdist.models.custom.stepper import Stepper, make_stepper
from tfdist.strategies.use import report


class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow comes without types
    """Measures `Model.fit`. A step is one call of the training function: `steps_per_execution` batches.

    Pass it behind BackupAndRestore, whose restored steps it then counts.

    Without a launcher it does nothing, and tf_keras does not call it for each step.
    """

    def __init__(self, examples: int | None = None) -> None:
        """Measure.

        Args:
            examples: of a step of all replicas in sync; under ParameterServerStrategy, of one worker's step. None: as
                many as Keras counts in the first step, for its mean loss.

        Raises:
            TfdistError: `examples` is too small.
        """
        super().__init__()
        self._supports_tf_logs = True  # tf_keras: no step waits for its metrics; allowed under ParameterServerStrategy
        self._launched = "TFDIST_EVENTS_FD" in os.environ
        self._examples = examples
        self._stepper: Stepper | None = None
        if self._launched and examples is not None:
            job_part().check(examples)

    def _implements_train_batch_hooks(self) -> bool:
        return self._launched

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Start the first window."""
        if self._launched:
            report(getattr(self.model, "distribute_strategy", None), trains=True)
            self._stepper = shared_stepper(job_part())
            self._stepper.loop.examples_per_step = 0  # those of an earlier fit may be others
            self._batches = _batches_of_step(self.model)
            self._stepper.continue_from(_steps_before(self.model))
            self.model.stop_training = not self._stepper.start()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start a step: Keras may make an iterator just before the first one of an epoch.

        The last step of an epoch that has fewer batches than the others is neither counted nor timed.
        """
        if self._stepper is None:
            return
        steps = self.params.get("steps") or math.inf
        self._short = steps - batch < min(self._batches, steps)
        if self._short:
            self._stepper.end_epoch()
        else:
            self._stepper.log.resume()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step; after the last turn, end the training."""
        if self._stepper is None or self._short:
            return
        if not self._stepper.loop.examples_per_step:
            examples = self._examples or _counted(self.model, logs)
            job_part().check(examples)
            self._stepper.loop.examples_per_step = job_part().share(examples)
        if not self._stepper.done(logs):
            self.model.stop_training = True
        if batch + 1 == self.params.get("steps"):  # other callbacks come before ours at the end of the epoch
            self._stepper.end_epoch()

    def on_test_begin(self, logs: Any = None) -> None:
        """End the steps of an epoch whose number of steps is unknown: its validation starts."""
        if self._stepper is not None:
            self._stepper.end_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the steps of an epoch, without validation."""
        self.on_test_begin()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Check that there are no more turns."""
        if self._stepper is not None and self._stepper.unfinished:
            fix = "repeat() the data" if job_part().workers else "omit steps_per_epoch, or repeat() the data"
            raise TfdistError(
                f"tfdist.measure: fit ended after {self._stepper.trained} steps, before the bench did: use "
                f"epochs=tfdist.measure.epochs(N); {fix}; and use no callback that ends fit, as EarlyStopping does"
            )


@cache
def shared_stepper(part: JobPart) -> Stepper:
    """One for all calls of fit."""
    coordinator = devices.find_coordinator() if part.workers else None
    # the mean since the start of the epoch; between steps, tf_keras gives its sum over all workers
    return make_stepper(part, coordinator, lambda logs: float(logs["loss"]) / part.ranks if "loss" in logs else None)


def _steps_before(model: Any) -> int:
    """Steps of a model that was restored from a checkpoint; 0 if its optimizer does not count them."""
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    return 0 if iterations is None else int(tf.convert_to_tensor(iterations)) // _batches_of_step(model)


def _batches_of_step(model: Any) -> int:
    per_step = getattr(model, "_steps_per_execution", None) or getattr(model, "steps_per_execution", 1)
    return int(tf.convert_to_tensor(per_step))


def _counted(model: Any, logs: Any) -> int:
    """Examples of the first step of all replicas, which Keras counts as the weight of the mean loss."""
    if hasattr(logs, "fetch"):
        logs.fetch()  # scheduled on a worker
    counts = [metric.count for metric in model.metrics if metric.name == "loss" and hasattr(metric, "count")]
    examples = int(tf.convert_to_tensor(counts[0])) if counts else 0
    if examples < 1:
        raise TfdistError(
            "tfdist.measure.Callback: this model does not count its examples; pass examples=N, the number in one step "
            "of all replicas together"
        )
    return examples
