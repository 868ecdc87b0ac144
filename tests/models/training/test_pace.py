"""The steps of a training, with a loop that only counts and a launcher at the other end of the pipes."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.spec import TrainingSpec
from tfdist.models.training import pace
from tfdist.models.training.pace import (
    Schedule,
    saved_warmup,
    saved_windows,
    schedule,
    segments,
    total_steps,
    train_saved,
)
from tfdist.models.training.windows import Reading, WindowLog


def plan(steps: int, size: int = 10, warmup: int = 10, margin: int = 0, per_call: int = 1) -> Schedule:
    spec = TrainingSpec(steps=steps, steps_per_window=size, warmup_steps=warmup, steps_per_call=per_call)
    return schedule(spec, margin)


@given(st.integers(1, 2000), st.integers(1, 50), st.integers(0, 300), st.integers(0, 10))
def test_all_steps_are_trained_and_about_half_are_timed(total, size, warmup, margin):
    result = plan(total, size, warmup, margin)
    assert sum(result.warmup) + sum(result.timed) + 2 * result.margin == total
    assert all(0 < window <= size for window in (*result.warmup, *result.timed))
    assert len(set(result.timed[:-1])) <= 1
    assert sum(result.warmup) == min(warmup, total // 2)
    assert 4 * sum(result.timed) >= total


@given(st.integers(4, 2000), st.integers(1, 50))
def test_at_least_two_windows_are_timed(total, size):
    assert len(plan(total, size).timed) >= 2


def test_the_first_step_is_a_window_of_its_own():
    assert plan(100).warmup == (1, 9)
    assert plan(100, warmup=1).warmup == (1,)


def test_no_warm_up_on_request():
    assert plan(30, warmup=0) == Schedule((), 0, (10, 10, 10))


def test_steps_before_and_after_the_timed_ones():
    assert plan(40, size=8, margin=4) == Schedule((1, 8, 1), 4, (8, 8, 6))
    assert plan(20, size=5, margin=4) == Schedule((1, 5, 4), 0, (5, 5)), "too few steps to spare any"


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 60))
def test_all_windows_but_the_last_are_whole_calls(total, size, per_call):
    result = plan(total, size, per_call=per_call)
    assert sum(result.warmup) + sum(result.timed) == total
    assert all(window % per_call == 0 for window in result.timed[:-1])


@dataclass
class SlowLoop:
    """Each step takes `step_s`."""

    step_s: float = 0.1
    overlaps: bool = False
    concurrent: int = 1
    now: float = 0.0
    trained: int = 0

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        log.open()
        for size in sizes:
            self.now += size * self.step_s
            self.trained += size
            log.first_step()
            log.close(size, 8 * size, 1.0)


@dataclass
class SlowSaves:
    """A save every `every` steps takes 100 s."""

    loop: SlowLoop
    every: int
    step_s: float | None = None
    edges: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)

    def at_edge(self, step: int) -> bool:
        self.edges.append(step)
        self.step_s = self.loop.step_s
        if step % self.every:
            return False
        self.saved.append(step)
        self.loop.now += 100
        return True


def run(loop, steps=100, step=0, every=25, **spec):
    saves = SlowSaves(loop, every)
    log = WindowLog(clock=lambda: loop.now, read=lambda: Reading(0, 0, 0, 0))
    windows = train_saved(loop, log, TrainingSpec(steps=steps, **spec), step, every, saves)
    return windows, saves, log


@pytest.mark.parametrize("overlaps", [False, True])
def test_each_multiple_is_an_edge_and_saving_is_outside_of_the_windows(overlaps):
    windows, saves, log = run(SlowLoop(overlaps=overlaps))
    assert saves.saved == [25, 50, 75, 100]
    assert sum(window.steps for window in (*windows.warmup, *windows.timed)) == 100
    for window in (*windows.warmup, *windows.timed):
        assert window.elapsed_s == pytest.approx(0.1 * window.steps)
    assert log.steps == 100


def test_the_last_step_is_reported_even_if_its_window_was_dropped(tmp_path, monkeypatch):
    class Dropping(SlowLoop):
        """Its windows were all counted before, so that none is closed."""

        def windows(self, sizes, log, before=0, after=0):
            log.open()
            log.first_step()

    reports, stream = os.pipe()
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(stream))
    run(Dropping(overlaps=True))
    os.close(stream)
    with os.fdopen(reports) as lines:
        emitted = list(map(json.loads, lines))
    assert [each["step"] for each in emitted if each["event"] == "step"][-1] == 100


def test_a_resumed_training_takes_the_steps_that_are_left():
    loop = SlowLoop()
    windows, saves, log = run(loop, step=60)
    assert loop.trained == 40
    assert saves.saved == [75, 100]
    assert saves.edges[0] == 61
    assert (log.steps, log.total) == (100, 100)
    assert windows.warmup


def test_windows_are_shorter_if_steps_are_slow():
    windows, _, _ = run(SlowLoop(step_s=0.5))
    assert max(window.steps for window in windows.timed) == 2


def test_asynchronous_windows_are_grouped():
    _, saves, _ = run(SlowLoop(overlaps=True, step_s=0.01), steps=1000, every=500)
    assert len(saves.edges) < 20


def test_nothing_is_trained_after_the_last_step():
    windows, saves, log = run(SlowLoop(), step=100)
    assert (windows.warmup, windows.timed, saves.edges) == ((), (), [])
    assert log.opened_at == log.first_step_at


def edges(sizes, step):
    result = []
    for size in sizes:
        step += size
        result.append(step)
    return result


@given(st.integers(1, 500), st.integers(0, 499), st.integers(1, 80), st.integers(1, 30), st.integers(1, 5))
def test_no_multiple_is_missed(steps, step, every, size, per_call):
    step = min(step, steps)
    spec = TrainingSpec(steps=steps, steps_per_window=size, steps_per_call=per_call)
    warm = saved_warmup(spec, step, every)
    sizes = (*warm, *saved_windows(spec, step + sum(warm), every, 0.01))
    reached = edges(sizes, step)
    assert step + sum(sizes) == steps
    assert set(range(step - step % every + every, steps + 1, every)) <= set(reached)
    assert min(sizes, default=1) > 0
    groups = segments(sizes, step, every, 7)
    assert tuple(size for group in groups for size in group) == sizes
    assert set(range(step - step % every + every, steps + 1, every)) <= set(edges(map(sum, groups), step))


def test_a_training_beyond_its_last_step_trains_no_more():
    spec = TrainingSpec(steps=100)
    assert (saved_warmup(spec, 200, 50), saved_windows(spec, 200, 50, 0.01)) == ((), ())


def test_windows_are_of_equal_size_where_the_interval_allows():
    spec = TrainingSpec(steps=100, steps_per_window=10)
    assert set(saved_windows(spec, 0, 25, 0.001)) == {10, 5}
    assert set(saved_windows(spec, 0, 24, 0.001)) == {8, 4}
    assert set(saved_windows(spec, 0, None, 0.001)) == {10}
    assert set(saved_windows(spec, 0, 18, None)) == {9, 1}


@pytest.mark.parametrize(
    ("examples", "step", "trained", "batch", "steps"),
    [(None, 40, 640, 24, 100), (1600, 0, 0, 16, 100), (1600, 40, 640, 24, 80), (1600, 40, 640, 961, 41),
     (1600, 100, 1600, 16, 100), (1600, 70, 1680, 24, 70)],
)  # fmt: skip
def test_the_remaining_examples_decide_the_number_of_steps(examples, step, trained, batch, steps):
    assert total_steps(TrainingSpec(steps=100, examples=examples), step, trained, batch) == steps


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


@dataclass
class LateLoop(CountingLoop):
    """Windows of fewer than ten steps are over before the clock is read."""

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        super().windows(sizes, log, before, after)
        if sizes[0] < 10 and len(self.calls) > 1:
            log.windows.clear()


def test_a_turn_whose_steps_were_over_too_early_is_longer(train):
    run = train([{"windows": 1, "steps": 3}, END], LateLoop(concurrent=2))
    assert run.calls == [((1, 8), 0, 0), ((6,), 2, 2), ((12,), 2, 2)]
    (turn,) = [event for event in run.events if event["event"] == "turn"]
    assert [window["steps"] for window in turn["windows"]] == [12]


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
