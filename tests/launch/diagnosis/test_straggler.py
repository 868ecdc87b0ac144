"""Who holds the others up, from step events that are made up: healthy jobs with noise, and planted slow workers."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.diagnosis.straggler import Straggler, WorkerSteps, cause, rates_between, report_of
from tfdist.models.training.windows import SAMPLES, sampled

WORKERS = tuple(f"worker-{index}" for index in range(4))


def trained(seconds, own_ms, input_ms=None, tasks=WORKERS, exchange_ms=10.0, window_s=1.0, seed=0, sd=0.05):
    """The steps of `seconds` of training; `own_ms` and `input_ms`: means by task."""
    steps, random_ = WorkerSteps(tasks), random.Random(seed)
    step_ms = max(own_ms[task] for task in tasks) + exchange_ms
    count = max(1, round(1000 * window_s / step_ms))
    for window in range(1, int(1000 * seconds / step_ms / count) + 1):
        every, numbers = sampled(window * count, count)
        for task in tasks:
            event = {"step": window * count, "every": every, "step_ms": step_ms}
            event["own_ms"] = [own_ms[task] * random_.gauss(1, sd) for _ in numbers]
            if input_ms is not None:
                event["input_ms"] = [input_ms[task] for _ in numbers]
            steps.note(task, event, window * count * step_ms / 1000)
    return steps


def times(slow=0.0, which="worker-3", base=40.0):
    return {task: base + (slow if task == which else 0.0) for task in WORKERS}


def test_a_worker_with_30_ms_more_is_named_with_what_the_others_wait():
    slow = trained(60, times(30.0)).slow()
    assert slow is not None
    assert slow.task == "worker-3"
    assert slow.last > 0.95
    assert slow.waits == pytest.approx(30 / 80, rel=0.1)
    assert slow.sentence == f"is last in {slow.last:.0%} of the steps: the others wait {slow.waits:.0%} of their time"


def test_it_is_named_within_a_minute_and_not_before_it_is_sure():
    assert trained(15, times(30.0)).slow() is None
    assert trained(30, times(30.0)).slow() is not None


@pytest.mark.parametrize("step_ms", [5.0, 40.0, 700.0])
@pytest.mark.parametrize("sd", [0.05, 0.3])
def test_nobody_is_named_among_equal_workers(step_ms, sd):
    """0.3: as on a busy machine."""
    for seed in range(8):
        assert trained(120, times(base=step_ms), seed=seed, sd=sd).slow() is None


def test_nobody_is_named_who_is_always_last_by_little():
    assert trained(60, times(6.0), sd=0.001).slow() is None


def test_nobody_is_named_for_one_long_pause():
    steps = trained(40, times())
    for task in WORKERS:
        own = 20_000.0 if task == "worker-3" else 40.0
        steps.note(task, {"step": 10_000, "every": 1, "step_ms": 20_010.0, "own_ms": [own]}, 60.0)
    assert steps.slow() is None


def test_who_was_named_stays_so_while_it_is_a_little_better():
    steps = trained(60, times(7.5), sd=0.03)
    assert steps.slow() is None
    assert steps.slow("worker-3") is not None
    assert steps.slow("worker-2") is None


def test_slow_steps_are_judged_over_a_longer_time():
    assert trained(100, times(1000.0, base=2000.0)).slow() is not None


def test_an_event_about_many_steps_takes_little_time():
    steps, started = WorkerSteps(WORKERS[:2]), time.process_time()
    for second in (1.0, 15.0, 30.0):
        for task, own_ms in (("worker-0", 10.0), ("worker-1", 40.0)):
            event = {"step": int(second) * 40_000, "every": 1, "step_ms": 48.0, "own_ms": [own_ms] * 40_000}
            steps.note(task, event, second)
    slow = steps.slow()
    assert slow is not None
    assert slow.task == "worker-1"
    assert time.process_time() - started < 5


def test_programs_report_their_input_alone():
    steps = WorkerSteps(WORKERS[:2])
    for step in range(1, 61):
        for task, waited in (("worker-0", 0.1), ("worker-1", 31.0)):
            steps.note(task, {"step": step, "every": 1, "step_ms": 48.0, "input_ms": [waited]}, float(step))
    slow = steps.slow()
    assert slow is not None
    assert cause(slow, {}) == ("input", "its input takes 31 of 48 ms")
    assert steps.waits()["worker-0"] == pytest.approx(30.9 / 48)
    assert steps.waits()["worker-1"] == 0.0


def test_input_is_the_cause_only_if_it_is_most_of_the_difference():
    of_input, of_work = (dict(zip(WORKERS, (1, 1, 1, last), strict=True)) for last in (31, 2))
    slow = trained(60, times(30.0), of_input).slow()
    assert slow is not None
    assert cause(slow, {})[0] == "input"
    slow = trained(60, times(30.0), of_work).slow()
    assert slow is not None
    assert cause(slow, {}) == (
        "compute",
        f"it computes for {slow.own_ms:.0f} ms, the others for {slow.others_ms:.0f} ms",
    )


def asynchronous(updates, seconds=60):
    steps = WorkerSteps(("chief-0",), WORKERS[: len(updates)])
    for second in range(1, seconds):
        steps.note("chief-0", {"step": second, "updates": updates, "staleness": [2.0] * len(updates)}, float(second))
    return steps


def test_an_asynchronous_worker_that_makes_few_updates_is_named():
    slow = asynchronous([20, 20, 8]).slow()
    assert slow is not None
    assert (slow.task, slow.updates) == ("worker-2", 0.4)
    assert slow.sentence == "makes 40% as many updates as the others; each is 2.0 updates stale"
    assert asynchronous([20, 19, 16]).slow() is None
    assert asynchronous([20, 8], seconds=10).slow() is None


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_workers_report_the_same_steps_however_their_windows_are_cut(one, other):
    """Those of the larger power of two are among those of the smaller one."""
    last = min(sum(one), sum(other))

    def reported(sizes):
        step, found = 0, {}
        for size in sizes:
            step += size
            every, numbers = sampled(step, size)
            assert len(numbers) <= SAMPLES
            assert all(step - size < number <= step and number % every == 0 for number in numbers)
            assert numbers == range(step - step % every - every * (len(numbers) - 1), step + 1, every)
            found |= dict.fromkeys(numbers, every)
        return found

    first, second = reported(one), reported(other)
    coarse = max([*first.values(), *second.values()], default=1)
    common = {number for number in range(1, last + 1) if number % coarse == 0}
    assert common <= first.keys()
    assert common <= second.keys()


json = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("step", "every", "own_ms", "input_ms", "step_ms", "updates", "staleness"), json),
        )
    )
)
def test_events_may_hold_anything(events):
    steps = WorkerSteps(WORKERS[:2], WORKERS[:2])
    for at, event in enumerate(events):
        steps.note(WORKERS[at % 2], event, float(at))
    steps.slow()
    steps.waits()


@pytest.mark.parametrize(("waited", "named"), [(20.0, False), (70.0, True)])
def test_on_gpus_only_a_long_wait_for_input_counts(waited, named):
    steps = WorkerSteps(WORKERS[:2])
    for step in range(60):
        for task, ms in zip(WORKERS, (5.0, waited), strict=False):
            event = {"step": step, "every": 1, "step_ms": 100.0, "input_ms": [ms], "gpus": [{"index": 0}]}
            steps.note(task, event, float(step))
    assert (steps.slow() is not None) == named


SLOW = Straggler("worker-1", 0.9, 0.2, 48.0, 40.0, 20.0)
QUIET = {"time_s": 0.0, "cores": 1.0, "clock_share": 1.0, "disk_free_share": 0.5, "steal_s": 0.0, "throttled_s": 0.0, "other_busy_s": 0.0, "major_faults": 0.0, "sent": 0.0, "resent": 0.0}  # fmt: skip


@pytest.mark.parametrize(
    ("counted", "kind", "text"),
    [
        ({"throttled_s": 4.3}, "throttled", "its cgroup is throttled 43% of the time"),
        ({"steal_s": 1.2}, "steal", "12% of the time of its cores is stolen by other virtual machines"),
        ({"other_busy_s": 4.5}, "busy", "other programs take 45% of its core"),
        ({"cores": 4.0, "other_busy_s": 20.0}, "busy", "other programs take 50% of its 4 cores"),
        ({"clock_share": 0.4}, "clock", "its cores run at 40% of their highest frequency"),
        ({"major_faults": 2400.0}, "swap", "it reads 240 pages a second back from the disk (swapping)"),
        ({"disk_free_share": 0.001}, "disk", "the disk of its folder is full"),
        ({"sent": 9_850.0, "resent": 150.0}, "network", "its host sends 1.5% of its TCP segments again"),
        ({}, "compute", "it computes for 40 ms, the others for 20 ms"),
    ],
)
def test_the_cause_is_what_the_counters_of_this_worker_say(counted, kind, text):
    after = {**QUIET, "time_s": 10.0}
    same = rates_between(QUIET, {**after, **counted})
    assert cause(SLOW, {"worker-0": rates_between(QUIET, after), "worker-1": same}) == (kind, text)
    if kind != "compute":  # what hits all alike slows nobody in particular
        assert cause(SLOW, {"worker-0": same, "worker-1": same})[0] == "compute"


def test_a_gpu_that_is_slowed_down_is_named_first():
    assert cause(SLOW, {}, "heat (hardware)") == ("gpu", "its GPU is slowed down: heat (hardware)")


def test_what_is_kept_has_the_sentence_and_the_known_figures():
    kept = report_of(SLOW, "h2", "its input takes 31 of 48 ms", 0.0, 60.0)
    assert kept.sentence == f"worker-1 on h2 {SLOW.sentence}; its input takes 31 of 48 ms"
    assert kept.figures == {"last": 0.9, "waits": 0.2, "step_ms": 48.0, "own_ms": 40.0, "others_ms": 20.0}
