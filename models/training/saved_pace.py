"""The windows of a training that is saved: edges come often, and checkpoints are outside of them. No TensorFlow."""

from collections.abc import Sequence
from typing import Protocol

from tfdist.launch import events
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.pace import Loop, Windows
from tfdist.models.training.schedule import saved_warmup, saved_windows, segments
from tfdist.models.training.windows import WindowLog

SEGMENT_S = 2.0
"""Seconds between two moments at which an asynchronous job waits for all scheduled steps, so that it can be saved."""


class Edges(Protocol):
    """Saves at the edges of windows."""

    @property
    def step_s(self) -> float | None:
        """Seconds of a step lately, the same on all ranks; None: unknown."""

    def at_edge(self, step: int) -> bool:
        """Save if it is time to; returns whether it took time."""


def train_saved(
    loop: Loop, log: WindowLog, spec: TrainingSpec, step: int, every_steps: int | None, edges: Edges
) -> Windows:
    """Train from `step` to `spec.steps`, without turns.

    Args:
        loop: the steps.
        log: a fresh one.
        spec: of the training.
        step: trained before.
        every_steps: the steps after which `edges` must be called, at multiples of it; None: at any.
        edges: called at the edges of windows.
    """
    log.total, log.steps = spec.steps, step
    warmup = saved_warmup(spec, step, every_steps)
    _windows(loop, log, warmup, every_steps, edges)
    warm = log.take()
    events.wait_at_barrier()
    _windows(loop, log, saved_windows(spec, step + sum(warmup), every_steps, edges.step_s), every_steps, edges)
    if not log.opened_at:  # the checkpoint is the last one
        log.open()
        log.first_step()
    return Windows(warm, log.take())


def _windows(loop: Loop, log: WindowLog, sizes: Sequence[int], every: int | None, edges: Edges) -> None:
    if not loop.overlaps:
        log.at_edge = edges.at_edge
        if sizes:
            loop.windows(sizes, log)
        return
    least = max(1, int(SEGMENT_S / edges.step_s)) if edges.step_s else 1
    step = log.steps
    for segment in segments(sizes, step, every, least):
        loop.windows(segment, log)
        step += sum(segment)
        if log.steps < step:  # windows whose steps were counted before are dropped
            events.emit("step", step=step, steps=log.total)
        log.steps = step
        edges.at_edge(step)
