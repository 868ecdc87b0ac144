"""The same training through Model.fit: an epoch is a window, and the clock is read between epochs."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.training import feed, optimizers
from tfdist.models.training.context import TrainingContext, TrainingResult
from tfdist.models.training.schedule import schedule
from tfdist.models.training.sync import mean_over_ranks, wait_for_devices
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Keras


def train(job: TrainingContext) -> TrainingResult:
    """Train `job.spec.steps` steps.

    Differences from the timed loop: the loss of a window is the mean over its steps, as fit reports it. The first step
    is the whole first window, because a callback after each step would synchronize each step. With Keras 3 the order of
    examples differs: its fit creates two iterators and trains with the second one. A smaller last window is a second
    call of fit, with a new data iterator.
    """
    spec, model = job.spec, _compiled(job)
    log = WindowLog(schedule(spec), 1 / job.workers, mean_over_ranks(job))
    data, size = _data(job), log.schedule.windows[0]
    for steps, windows in ((size, spec.steps // size), (spec.steps % size, 1)):
        if steps:
            clock = _clock(job, log, steps)
            model.fit(data, epochs=windows, steps_per_epoch=steps, callbacks=[clock], verbose=0)
    return TrainingResult(model, log, optimizers.updates(model.optimizer), data)


def _compiled(job: TrainingContext) -> tf.keras.Model:
    with job.strategy.scope():
        model = build_model(job.spec)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizers.build(job.spec, model), loss, jit_compile=job.spec.xla)
    return model


def _clock(job: TrainingContext, log: WindowLog, steps: int) -> tf.keras.callbacks.Callback:
    """Opens and closes the log's windows. Under parameter-server fit waits for all steps of an epoch itself."""
    examples = steps * job.spec.batch_size * job.replicas

    def end(epoch: int, logs: Mapping[str, Any]) -> None:
        loss = float(logs["loss"])
        if CATALOG[job.spec.strategy].synchronous:
            wait_for_devices(job.strategy)
        log.first_step()
        log.close(steps, examples, loss)

    return tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: log.open(), on_epoch_end=end)


def _data(job: TrainingContext) -> Any:
    """The data argument of fit: a creator of each worker's dataset (tf_keras only), or the dataset itself."""
    spec, part = job.spec, feed.share(job.spec, job.task, job.replicas)
    if spec.keras is Keras.THREE:
        return feed.worker_batches(spec, part)
    if CATALOG[spec.strategy].synchronous:
        return tf.keras.utils.experimental.DatasetCreator(lambda context: feed.batches(spec, part))
    return tf.keras.utils.experimental.DatasetCreator(feed.worker_dataset_fn(spec, job.strategy, job.replicas))
