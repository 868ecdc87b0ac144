"""The timed loop of synchronous strategies and of independent tasks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdist.models.training import feed, optimizers, step
from tfdist.models.training.context import TrainingContext, TrainingResult
from tfdist.models.training.schedule import schedule
from tfdist.models.training.sync import mean_over_ranks, wait_for_devices
from tfdist.models.training.windows import WindowLog


def train(job: TrainingContext) -> TrainingResult:
    """Train `job.spec.steps` steps, window by window."""
    spec, strategy = job.spec, job.strategy
    model, optimizer, replica_step = step.build(job)
    batches = feed.synchronous(spec, strategy, feed.share(spec, job.task, job.replicas))
    all_replicas = tf.function(lambda source: strategy.run(replica_step, batches.draw(source)))
    total = tf.function(lambda losses: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None))
    log = WindowLog(schedule(spec), 1 / job.workers, mean_over_ranks(job))
    for steps in log.schedule.windows:
        log.open()
        loss = _window(lambda: all_replicas(batches.source), lambda losses: float(total(losses)), steps, log)
        wait_for_devices(strategy)
        log.close(steps, steps * spec.batch_size * job.replicas, loss)
    return TrainingResult(model, log, optimizers.updates(optimizer), batches)


def _window(run_step: Callable[[], Any], fetch: Callable[[Any], float], steps: int, log: WindowLog) -> float:
    """Run `steps` steps and return the loss of the last one; fetching it waits for the device."""
    losses = run_step()
    if not log.first_step_at:
        fetch(losses)
        log.first_step()
    for _ in range(steps - 1):
        losses = run_step()
    return fetch(losses)
