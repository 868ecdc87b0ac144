"""The same training through Model.fit: an epoch is a window, and the clock is read between epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.training import feed, moving_averages, optimizers, restore
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.step import create
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.devices import wait_for_devices
from tfdist.strategies.options import Keras


@dataclass
class FitLoop:
    """A call of fit for each row of windows of equal size.

    Differences from the other loops: the loss of a window is the mean over its steps, as fit reports it. Under
    parameter-server fit waits for all steps of an epoch itself.
    """

    job: TrainingContext
    model: tf.keras.Model
    data: Callable[[int], Any]
    """The data of fit, from the example with this number on."""
    steps: int
    """Trained so far, before the checkpoint too."""
    overlaps: ClassVar[bool] = False
    keep_alive: list[Any] = field(default_factory=list)

    @property
    def concurrent(self) -> int:
        """`pace.Loop.concurrent`."""
        return 1 if self.job.spec.synchronous else self.job.spec.workers

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`, but with a whole window instead of `before` steps: in the same call of fit."""
        for size, equal in groupby(sizes):
            self._fit(size, len(list(equal)) + bool(before), log, int(bool(before)))
            before = 0
        if after:
            self._fit(after, 1, log, 1)

    def _fit(self, steps: int, epochs: int, log: WindowLog, first: int) -> None:
        """Opens the log at epoch `first`, and closes a window at its end and that of each later one."""

        def begin(epoch: int, logs: Any) -> None:
            if epoch == first:
                log.open()

        def end(epoch: int, logs: Mapping[str, Any]) -> None:
            self.steps += steps
            if epoch < first:
                return
            loss = float(logs["loss"])
            if self.job.spec.synchronous:
                wait_for_devices(self.job.strategy)
            log.first_step()
            log.close(steps, steps * self.job.task_batch, loss)

        clock = tf.keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
        self.keep_alive.append(self.data(self.job.examples_at(self.steps)))
        data = self.keep_alive[-1]
        self.model.fit(data, epochs=epochs, steps_per_epoch=steps, callbacks=[clock], verbose=0)


def prepare(job: TrainingContext) -> tuple[FitLoop, Callable[[], TrainingState]]:
    """The loop of this task, and what it has trained so far."""
    model, optimizer, averages = create(job)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with job.strategy.scope():
        model.compile(optimizer, loss, jit_compile=job.spec.xla, steps_per_execution=job.spec.steps_per_call)
    optimizer = model.optimizer
    restore.restore(job, model, optimizer, averages)
    if averages is not None:
        moving_averages.after_each_step(model, averages.update)
    loop = FitLoop(job, model, _data(job, optimizer), job.start.step)

    def trained() -> TrainingState:
        own = job.examples_at(loop.steps) // job.workers
        return TrainingState(model, optimizer, own, optimizers.updates(optimizer), loop.keep_alive, averages)

    return loop, trained


def _data(job: TrainingContext, optimizer: Any) -> Callable[[int], Any]:
    """A function from the index of the first example to the data argument of fit: a creator of each worker's dataset
    (tf_keras only), or the dataset itself."""
    spec = job.spec
    part = feed.share(job)
    if spec.keras is not Keras.TWO:
        return lambda first: feed.worker_batches(spec, part, first)
    creator = tf.keras.utils.experimental.DatasetCreator
    if spec.synchronous:
        return lambda first: creator(lambda context: feed.batches(spec, part, first))
    # a worker that is restarted during the call starts at the examples of that moment
    shares = feed.worker_dataset_fn(job, lambda: optimizer.iterations.read_value() * job.batch)
    return lambda first: creator(shares)
