"""The same training through Model.fit: an epoch is a window, and the clock is read between epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.training import feed, optimizers
from tfdist.models.training.context import Trained, TrainingContext
from tfdist.models.training.sync import wait_for_devices
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Keras


@dataclass
class FitLoop:
    """A call of fit for each row of windows of equal size.

    Differences from the other loops: each call starts with the first examples again. The loss of a window is the mean
    over its steps, as fit reports it. With Keras 3 the order of examples differs: its fit creates two iterators and
    trains with the second one. Under parameter-server fit waits for all steps of an epoch itself.
    """

    job: TrainingContext
    model: tf.keras.Model
    data: Any
    overlaps: ClassVar[bool] = False
    steps: int = 0
    """Trained so far."""

    @property
    def concurrent(self) -> int:
        """As `pace.Loop`."""
        return 1 if CATALOG[self.job.spec.strategy].synchronous else self.job.spec.workers

    @property
    def examples_per_step(self) -> int:
        """Of this task's replicas, or of one worker's."""
        return self.job.spec.batch_size * self.job.replicas

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`, but with a whole window instead of `before` steps: in the same call of fit."""
        for size, equal in groupby(sizes):
            self._fit(size, len(list(equal)) + bool(before), [self._clock(size, log, int(bool(before)))])
            before = 0
        self._fit(after, 1, [])

    def _fit(self, steps: int, epochs: int, callbacks: list[Any]) -> None:
        if steps:
            self.model.fit(self.data, epochs=epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=0)
            self.steps += steps * epochs

    def _clock(self, steps: int, log: WindowLog, first: int) -> tf.keras.callbacks.Callback:
        """Opens the log at epoch `first`, and closes a window at its end and that of each later one."""

        def begin(epoch: int, logs: Any) -> None:
            if epoch == first:
                log.open()

        def end(epoch: int, logs: Mapping[str, Any]) -> None:
            if epoch < first:
                return
            loss = float(logs["loss"])
            if CATALOG[self.job.spec.strategy].synchronous:
                wait_for_devices(self.job.strategy)
            log.first_step()
            log.close(steps, steps * self.examples_per_step, loss)

        return tf.keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)


def prepare(job: TrainingContext) -> tuple[FitLoop, Callable[[], Trained]]:
    """The loop of this task, and what it has trained so far."""
    loop = FitLoop(job, _compiled(job), _data(job))
    optimizer = loop.model.optimizer

    def trained() -> Trained:
        return Trained(loop.model, loop.steps * loop.examples_per_step, optimizers.updates(optimizer), loop.data)

    return loop, trained


def _compiled(job: TrainingContext) -> tf.keras.Model:
    with job.strategy.scope():
        model = build_model(job.spec)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            optimizers.build(job.spec, model),
            loss,
            jit_compile=job.spec.xla,
            steps_per_execution=job.spec.steps_per_call,
        )
    return model


def _data(job: TrainingContext) -> Any:
    """The data argument of fit: a creator of each worker's dataset (tf_keras only), or the dataset itself."""
    spec, part = job.spec, feed.share(job.spec, job.task, job.replicas)
    if spec.keras is Keras.THREE:
        return feed.worker_batches(spec, part)
    if CATALOG[spec.strategy].synchronous:
        return tf.keras.utils.experimental.DatasetCreator(lambda context: feed.batches(spec, part))
    return tf.keras.utils.experimental.DatasetCreator(feed.worker_dataset_fn(spec, job.strategy, job.replicas))
