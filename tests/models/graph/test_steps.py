"""The loops of chiefs, with a simulated session."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfdist.models.graph.steps import AsyncSteps, InGraphSteps, SyncSteps
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.windows import Reading, WindowLog
from tfdist.strategies.options import StrategyName

SPEC = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=1, batch_size=8)
SYNC = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=1, batch_size=8, sync=True)
TICKETS: Any = SimpleNamespace(issue="issue", count="count", receive="receive", received="received")


@dataclass
class Workers:
    """Simulates the session of a chief: workers take a step per second in turn, as soon as there is a ticket.

    Asynchronous ones read the variables when the other one has read them, too: their updates have staleness 1.
    """

    together: int = 0
    """Number of workers that step together; 0: none do."""
    hasty: int = 0
    """How many of them have sent the loss of the next step when an update is done."""
    dealt: list[int] = field(default_factory=list)
    applied: int = 0
    results: list[tuple[int, int, int, float]] = field(default_factory=list)
    now: float = 0.0

    def run(self, fetches: Any, feed: Any = None) -> Any:
        if fetches == "issue":
            self.dealt.append(feed["count"])
        elif fetches == "receive":
            return self._receive(feed["count"])
        elif fetches == "received":
            return len(self.results)
        elif fetches == "update":
            self._update()
        else:
            raise AssertionError(fetches)
        return None

    def _receive(self, steps: int) -> list[np.ndarray]:
        while len(self.results) < steps:
            assert self.applied < sum(self.dealt), "the chief waits for a step that no worker may take"
            self.results.append((self.applied % 2, max(0, self.applied - 1), self.applied, float(self.applied)))
            self.applied, self.now = self.applied + 1, self.now + 1
        rows, self.results = self.results[:steps], self.results[steps:]
        return [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.array([], int)] * 4

    def _update(self) -> None:
        assert self.applied < sum(self.dealt) / self.together, (
            "the chief waits for gradients that no worker may compute"
        )
        sent = self.hasty if self.applied else 0
        rows = [(worker, self.applied, 0, self.applied + worker / 2) for worker in range(sent, self.together)]
        self.applied, self.now = self.applied + 1, self.now + 1
        early = [(worker, self.applied, 0, self.applied + worker / 2) for worker in range(self.hasty)]
        self.results += rows + early


def log_of(workers: Workers) -> WindowLog:
    return WindowLog(clock=lambda: workers.now, read=lambda: Reading(0.0, 0.0, 0.0, 0), quiet=True)


def test_a_window_of_asynchronous_workers_ends_with_its_last_step():
    workers = Workers()
    steps = AsyncSteps(workers, SPEC, TICKETS, 4)
    log = log_of(workers)
    steps.windows((3, 2), log, before=2, after=2)
    assert workers.dealt == [9]
    assert [(window.steps, window.examples, window.elapsed_s, window.loss) for window in log.take()] == [
        (3, 24, 3.0, 4.0), (2, 16, 2.0, 6.0),
    ]  # fmt: skip
    assert steps.steps == 4 + 9
    assert workers.applied == 9
    assert log.observed == {}


def test_a_window_that_is_displayed_has_the_updates_of_each_worker(monkeypatch):
    sent = []
    monkeypatch.setattr(
        "tfdist.models.training.windows.events.emit",
        lambda name, **event: sent.append(event) if name == "step" else None,
    )
    workers = Workers()
    log = log_of(workers)
    log.quiet = False
    AsyncSteps(workers, SPEC, TICKETS).windows((3, 2), log)
    assert [(event["updates"], event["staleness"]) for event in sent] == [([2, 1], [0.5, 1.0]), ([1, 1], [1.0, 1.0])]


def test_updates_of_the_windows_are_counted_by_worker_and_staleness():
    workers = Workers()
    spec = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=2, ps=1, batch_size=8, count_updates=True)
    log = log_of(workers)
    AsyncSteps(workers, spec, TICKETS).windows((4,), log, before=2)
    assert log.observed == {"updates": [[0, 2], [0, 2]]}


@pytest.mark.parametrize("hasty", [0, 1, 2])
def test_the_loss_of_a_synchronous_window_is_the_mean_of_its_last_step(hasty):
    workers = Workers(together=2, hasty=hasty)
    steps = SyncSteps(workers, SYNC, TICKETS, "update", 0)
    log = log_of(workers)
    steps.windows((2, 1), log, before=1)
    assert workers.dealt == [4 * 2]
    assert [(window.steps, window.examples, window.loss) for window in log.take()] == [(2, 32, 2.25), (1, 16, 3.25)]
    assert steps.steps == 4


def test_no_worker_computes_beyond_a_window_at_whose_end_a_checkpoint_may_be_due():
    workers = Workers(together=2)
    steps = SyncSteps(workers, SYNC, TICKETS, "update", 6)
    workers.applied, log = 6, log_of(workers)
    workers.dealt.append(6 * 2)
    dealt = []
    log.at_edge = lambda step: bool(dealt.append(sum(workers.dealt)))
    steps.windows((2, 3), log)
    assert dealt == [8 * 2, 11 * 2]


def test_gradients_that_come_too_late_are_waited_for_before_the_next_turn(monkeypatch):
    monkeypatch.setenv("TFDIST_TURNS", "1")
    workers = Workers(together=3)
    spec = TrainingSpec(strategy=StrategyName.BETWEEN_GRAPH, workers=3, ps=1, batch_size=8, sync=True, backup_workers=1)
    steps = SyncSteps(workers, spec, TICKETS, "update", 0)
    steps.windows((2,), log := log_of(workers))
    assert log.take()[0].examples == 2 * 2 * 8
    assert (steps.dealt, workers.results) == (0, [])


def test_in_graph_trains_each_step_with_a_call():
    calls = []

    def run(fetches: Any, feed: Any = None) -> Any:
        calls.append(fetches)
        return (None, 0.5) if isinstance(fetches, list) else None

    steps = InGraphSteps(SimpleNamespace(run=run), 16, "step", "loss", 3)
    steps.windows((2,), log := log_of(Workers()), before=1)
    assert [window.loss for window in log.take()] == [0.5]
    assert calls == [["step", "loss"], "step", ["step", "loss"]]
    assert steps.steps == 6


@pytest.mark.parametrize("loop", [AsyncSteps, SyncSteps, InGraphSteps])
def test_pace_knows_whether_steps_overlap(loop):
    assert loop.overlaps is (loop is AsyncSteps)
