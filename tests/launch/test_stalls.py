"""Histories replayed to a StallWatch. Times are seconds; the watch's clock starts at 0."""

import math
from dataclasses import replace

import pytest

from tfdist.launch.agents.messages import Event, Exited, Output, Started
from tfdist.launch.diagnosis.history import History, ProcessState, Stall
from tfdist.launch.stalls import EVIDENCE_S, SecondLook, StallWatch, Suspicion

from .jobs import python_job

TASKS = ("worker-0", "worker-1")
TIME = 1_800_000_000.0


class Watch:
    """A watch, and the time."""

    def __init__(self, timeout_s=300.0, reports_steps=False, led_elsewhere=False, **counts):
        job = python_job("", counts or {"worker": 2})
        plans = (replace(plan, program=replace(plan.program, reports_steps=reports_steps)) for plan in job.plans)
        job = replace(job, plans=tuple(plans), led_elsewhere=led_elsewhere)
        self.watch = StallWatch(job, History(), timeout_s, _last_sign=0.0)
        self.now = 0.0

    def note(self, message, at):
        self.until(at)
        self.watch.history.add(message, TIME + at)
        return self.watch.note(message, at)

    def step(self, task, step, at):
        return self.note(Event(task, TIME + at, {"event": "step", "step": step}), at)

    def until(self, at, running=TASKS):
        """What the checks up to this time say; one each second, as the supervisor has heartbeats."""
        said = []
        while self.now < at:
            self.now = min(at, self.now + 1.0)
            said.append(self.watch.check(running, self.now, TIME + self.now))
        return [each for each in said if each is not None]

    def look(self, **cpu_s):
        """The processes, as an agent reports them now."""
        for task, used in cpu_s.items():
            self.watch.history.states[task.replace("_", "-")] = ProcessState("S", "", used, self.now)


def test_the_warning_has_each_tasks_last_step():
    watch = Watch()
    watch.step("worker-0", 45, 10.0)
    watch.step("worker-1", 40, 9.0)
    assert watch.until(309.0) == []
    (suspicion,) = watch.until(310.0)
    assert suspicion.warning == (
        "no step for 300 s (worker-0 at step 45, worker-1 at step 40); "
        "the stacks of all tasks are saved in stacks.txt, beside their logs"
    )


def test_the_job_has_stalled_when_the_evidence_is_complete():
    watch = Watch()
    watch.step("worker-0", 45, 10.0)
    assert len(watch.until(310.0)) == 1
    watch.watch.missing_stacks = {"worker-1"}
    watch.look(worker_0=1.0, worker_1=1.0)
    assert watch.until(312.0) == [SecondLook()]
    watch.look(worker_0=1.0, worker_1=3.0)
    assert watch.until(315.0) == []
    watch.watch.missing_stacks.clear()
    assert watch.until(316.0) == [Stall(300.0, TIME + 316.0, {"worker-0": 0.0, "worker-1": 1.0})]
    assert watch.watch.deadline == math.inf
    assert watch.until(1000.0) == []


def test_evidence_is_waited_for_only_a_while():
    watch = Watch()
    watch.step("worker-0", 45, 10.0)
    watch.until(310.0)
    watch.watch.missing_stacks = {"worker-1"}
    assert watch.until(310.0 + EVIDENCE_S - 1) == [SecondLook()]
    assert watch.until(310.0 + EVIDENCE_S) == [Stall(300.0, TIME + 310.0 + EVIDENCE_S, {})]


def test_a_step_after_the_warning_ends_the_suspicion():
    watch = Watch()
    watch.step("worker-0", 45, 10.0)
    assert len(watch.until(310.0)) == 1
    assert watch.step("worker-0", 46, 311.0) == "the job continues after 301 s without a step"
    assert watch.until(610.0) == []
    assert isinstance(watch.until(611.0)[0], Suspicion)


@pytest.mark.parametrize(
    ("message", "is_sign"),
    [
        (Event("worker-1", 1.0, {"event": "phase", "phase": "evaluating"}), True),
        (Started("worker-1", 1, 1.0), True),
        (Exited("worker-1", 0, 1.0, 1, 0.1), True),
        (Output("worker-1", "stdout", "still here\n"), False),
        (Output("worker-1", "stacks", "Thread 0x1\n"), False),
    ],
)
def test_what_is_a_sign_of_life_after_the_first_step(message, is_sign):
    watch = Watch()
    watch.step("worker-0", 1, 10.0)
    watch.note(message, 200.0)
    assert (watch.until(450.0) == []) is is_sign


def test_events_of_servers_are_no_sign():
    watch = Watch(chief=1, worker=1, ps=1)
    watch.step("chief-0", 1, 10.0)
    watch.note(Event("worker-0", 1.0, {"event": "phase", "phase": "x"}), 200.0)
    assert len(watch.until(311.0, ("chief-0", "worker-0", "ps-0"))) == 1


def test_a_training_that_reports_steps_is_watched_before_its_first_step():
    watch = Watch(reports_steps=True)
    assert watch.note(Output("worker-0", "stderr", "downloading\n"), 290.0) == ""
    (suspicion,) = watch.until(590.0)
    assert suspicion.warning.startswith("no step for 300 s (worker-0 before its first step, worker-1 before its")
    assert [type(each) for each in watch.until(640.0)] == [SecondLook, Stall]


def test_a_program_that_took_steps_in_an_earlier_attempt_is_watched_from_its_start():
    watch = Watch()
    watch.watch.took_steps = True
    assert len(watch.until(300.0)) == 1
    assert [type(each) for each in watch.until(330.0)] == [SecondLook, Stall]


def test_a_program_without_steps_gets_one_warning():
    watch = Watch()
    watch.note(Output("worker-0", "stdout", "epoch 1\n"), 200.0)
    (suspicion,) = watch.until(500.0)
    assert suspicion.warning.startswith("no output or event for 300 s; the stacks of all tasks are saved")
    assert suspicion.warning.endswith("the job is not stopped, because it reports no steps")
    watch.note(Output("worker-0", "stdout", "epoch 2\n"), 1000.0)
    assert watch.until(3000.0) == []
    watch.step("worker-0", 1, 3001.0)
    assert len(watch.until(3301.0)) == 1


def test_a_task_that_is_led_elsewhere_is_watched_once_it_reports_steps():
    watch = Watch(led_elsewhere=True, worker=1)
    watch.note(Output("worker-0", "stderr", "serving\n"), 10.0)
    assert watch.until(5000.0) == []
    assert watch.watch.deadline == math.inf
    watch.step("worker-0", 1, 5001.0)
    assert [type(each) for each in watch.until(5330.0, ("worker-0",))] == [Suspicion, SecondLook, Stall]


def test_after_a_pause_of_the_launcher_the_time_starts_again():
    watch = Watch()
    watch.step("worker-0", 1, 10.0)
    assert watch.until(200.0) == []
    assert watch.watch.check(TASKS, 5000.0, TIME) is None
    watch.now = 5000.0
    assert watch.until(5299.0) == []
    assert len(watch.until(5301.0)) == 1


def test_without_a_limit_nothing_is_watched():
    watch = Watch(timeout_s=None)
    watch.step("worker-0", 1, 10.0)
    assert watch.until(2000.0) == []
    assert watch.watch.deadline == math.inf
