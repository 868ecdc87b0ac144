"""A training that is saved: its windows end where checkpoints are due, with a loop that only counts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.saved_pace import train_saved
from tfdist.models.training.schedule import saved_warmup, saved_windows, segments, total_steps
from tfdist.models.training.usage import Reading
from tfdist.models.training.windows import WindowLog


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

    reports = tmp_path / "events"
    with reports.open("wb") as stream:
        monkeypatch.setenv("TFDIST_EVENTS_FD", str(stream.fileno()))
        run(Dropping(overlaps=True))
    emitted = [json.loads(line) for line in reports.read_text().splitlines()]
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
