"""The steps of a training, with a loop that only counts and a launcher at the other end of the pipes."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tfdist.models.spec import TrainingSpec
from tfdist.models.training import pace
from tfdist.models.training.usage import Reading
from tfdist.models.training.windows import WindowLog


@dataclass
class CountingLoop:
    """Each step takes a second."""

    concurrent: int = 1
    overlaps: bool = False
    calls: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    now: float = 0.0

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        self.calls.append((tuple(sizes), before, after))
        self.now += before
        log.open()
        for size in sizes:
            self.now += size
            log.first_step()
            log.close(size, 8 * size, 1.0)
        self.now += after


@dataclass
class Run:
    calls: list[tuple[tuple[int, ...], int, int]]
    reports: list[tuple[pace.Windows, bool]]
    events: list[dict]


@pytest.fixture
def train(monkeypatch):
    def run(lines: list[dict] | None, loop: CountingLoop, after_turn=None, **spec: int) -> Run:
        barrier, release = os.pipe()
        read, write = os.pipe()
        monkeypatch.setenv("TFDIST_BARRIER_FD", str(barrier))
        monkeypatch.setenv("TFDIST_EVENTS_FD", str(write))
        if lines is not None:
            monkeypatch.setenv("TFDIST_TURNS", "1")
        for line in lines or []:
            os.write(release, json.dumps(line).encode() + b"\n")
        os.close(release)
        reports: list[tuple[pace.Windows, bool]] = []
        log = WindowLog(clock=lambda: loop.now, read=lambda: Reading(0, 0, 0, 0))
        report = lambda windows, final: reports.append((windows, final))  # noqa: E731
        pace.train(loop, log, TrainingSpec(**spec), report, after_turn)
        os.close(write)
        with os.fdopen(read) as stream:
            return Run(loop.calls, reports, [json.loads(line) for line in stream])

    return run


END = {"windows": 0, "steps": 0}


def test_turns_until_the_end(train):
    run = train([{"windows": 1, "steps": 12}, {"windows": 5, "steps": 3}, END], CountingLoop())
    assert run.calls == [((1, 4), 0, 0), ((12,), 1, 0), ((3,) * 5, 1, 0)]
    assert [final for _, final in run.reports] == [False, True]
    assert [window.steps for window in run.reports[0][0].warmup] == [1, 4]
    turns = [event for event in run.events if event["event"] == "turn"]
    assert [[window["steps"] for window in turn["windows"]] for turn in turns] == [[12], [3, 3, 3, 3, 3]]
    barriers = [event for event in run.events if event["event"] == "barrier"]
    assert [event["step_s"] for event in barriers] == [1.0, 1.0, 1.0]
    assert not [event for event in run.events if event["event"] == "step"]


def test_what_is_noted_after_a_turn_is_sent_with_its_windows(train):
    def note(log: WindowLog) -> None:
        log.observed["windows"] = len(log.windows)

    run = train([{"windows": 2, "steps": 3}, {"windows": 4, "steps": 3}, END], CountingLoop(), after_turn=note)
    turns = [event for event in run.events if event["event"] == "turn"]
    assert [turn["observed"] for turn in turns] == [{"windows": 2}, {"windows": 4}]


@dataclass
class MergingLoop(CountingLoop):
    """All steps are in the first window: the later ones found nothing new."""

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        super().windows((sum(sizes),), log, before, after)


def test_a_step_takes_time_even_if_all_steps_are_in_the_first_window(train):
    run = train([END], MergingLoop(concurrent=2))
    (barrier,) = [event for event in run.events if event["event"] == "barrier"]
    assert barrier["step_s"] == 2.0


def test_the_end_of_the_pipe_ends_the_turns(train):
    assert train([{"windows": 1, "steps": 2}], CountingLoop()).calls == [((1, 4), 0, 0), ((2,), 1, 0)]


def test_concurrent_workers_have_work_at_both_edges(train):
    run = train([{"windows": 2, "steps": 3}, END], CountingLoop(concurrent=2))
    assert run.calls == [((1, 8), 0, 0), ((6, 6), 2, 2)]
    barriers = [event["step_s"] for event in run.events if event["event"] == "barrier"]
    assert barriers == [2.0, 2.0], "the time in which each worker takes a step"


def test_without_turns_the_steps_of_the_spec_are_trained(train):
    run = train(None, CountingLoop(), steps=20, steps_per_window=5, warmup_steps=6)
    assert run.calls == [((1, 5), 0, 0), ((5, 5, 4), 0, 0)]
    ((windows, final),) = run.reports
    assert final
    assert (len(windows.warmup), len(windows.timed)) == (2, 3)
    assert [event["step"] for event in run.events if event["event"] == "step"] == [1, 6, 11, 16, 20]


def test_turns_have_windows_of_whole_calls(train):
    turns = [{"windows": 5, "steps": 2}, {"windows": 1, "steps": 9}, END]
    assert train(turns, CountingLoop(), steps_per_call=4).calls == [((1, 4), 0, 0), ((4, 4), 1, 0), ((12,), 1, 0)]
    concurrent = train(turns, CountingLoop(concurrent=2), steps_per_call=4).calls
    assert concurrent == [((1, 32), 0, 0), ((8, 8), 8, 8), ((24,), 8, 8)]


def test_a_turn_without_a_window_keeps_the_step_time(train):
    class NoWindow(CountingLoop):
        def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
            super().windows(sizes, log, before, after)
            if before:
                log.take()

    run = train([{"windows": 1, "steps": 2}, END], NoWindow())
    assert [event["step_s"] for event in run.events if event["event"] == "barrier"] == [1.0, 1.0]
