"""What is due when, and the phases of tasks from one attempt to the next."""

import math

import pytest

from tests.launch.jobs import roles
from tests.launch.supervisors import FakeChannel
from tfdist.launch.agents.messages import Exited
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.task_group import Deadlines, PendingStarts, TaskGroup


def test_due_actions_run_once_in_the_order_of_their_times():
    deadlines, done = Deadlines(), []
    actions = {name: (lambda now, name=name: done.append((name, now))) for name in "abc"}
    for name, at in {"a": 3.0, "b": 1.0, "c": 9.0}.items():
        deadlines[actions[name]] = at
    deadlines.run_due(3.0)
    deadlines.run_due(4.0)
    assert done == [("b", 3.0), ("a", 3.0)]
    assert deadlines.next() == 9.0


def test_an_action_can_cancel_and_postpone_others():
    deadlines, done = Deadlines(), []

    def later(now):
        done.append(now)

    def never(now):
        raise AssertionError

    def first(_):
        deadlines.cancel(never)
        deadlines[later] = 5.0

    for action in (first, never, later):
        deadlines[action] = 1.0
    deadlines.run_due(1.0)
    assert done == []
    assert (deadlines.get(later), deadlines.get(never)) == (5.0, None)
    deadlines.run_due(5.0)
    assert done == [5.0]
    assert deadlines.next() == math.inf


def test_an_action_that_returns_a_time_is_due_again_then():
    deadlines, done = Deadlines(), []

    def twice(now):
        done.append(now)
        return now + 2.0 if len(done) < 2 else None

    deadlines[twice] = 1.0
    for now in (1.0, 2.9, 3.0, 9.0):
        deadlines.run_due(now)
    assert done == [1.0, 3.0]
    assert not deadlines


def group_of(**counts):
    job = plan_job(Shape(roles(**counts), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))
    channel = FakeChannel()
    return TaskGroup(job, dict.fromkeys((plan.task.name for plan in job.plans), channel), Policy()), channel


def test_a_task_runs_from_the_request_to_its_end():
    tasks, _ = group_of(worker=2)
    assert (tasks.running, tasks.any_running, tasks.all_started) == (set(), False, False)
    tasks.start(["worker-0", "worker-1"])
    assert (tasks.running, tasks.starting) == ({"worker-0", "worker-1"},) * 2
    tasks.note_start("worker-0")
    assert (tasks.starting, tasks.all_started, tasks.has_started("worker-0")) == ({"worker-1"}, False, True)
    tasks.note_start("worker-1")
    assert tasks.all_started
    tasks.note_end("worker-0", 0)
    tasks.note_end("worker-1", 3)
    assert (tasks.running, tasks.finished, tasks.succeeded) == (set(), {"worker-0"}, False)


def test_only_leading_tasks_that_exit_with_0_have_finished():
    tasks, _ = group_of(chief=1, ps=1)
    tasks.start(tasks.channels)
    tasks.note_end("ps-0", 0)
    assert (tasks.finished, tasks.succeeded) == (set(), False)
    tasks.note_end("chief-0", 0)
    assert (tasks.finished, tasks.succeeded) == ({"chief-0"}, True)


def test_what_is_said_too_late_about_a_task_changes_nothing():
    tasks, _ = group_of(worker=1)
    tasks.start(["worker-0"])
    tasks.note_end("worker-0", 3)
    tasks.note_start("worker-0")
    tasks.note_end("worker-0", 0)
    assert (tasks.running, tasks.finished) == (set(), set())


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_attempt_of_a_task_starts_once_the_one_before_has_ended(ended):
    tasks, channel = group_of(worker=1)
    tasks.start(["worker-0"])
    if ended:
        tasks.note_end("worker-0", -9)
    starts = PendingStarts(tasks, lambda _: None)
    tasks.renew(["worker-0"], 1)
    starts.add(["worker-0"], 5.0)
    assert tasks.running == (set() if ended else {"worker-0"})
    assert not tasks.starting
    tasks.deadlines.run_due(5.0)
    if not ended:
        assert channel.starts() == [("worker-0", 0)]
        starts.note_end(Exited("worker-0", -15, 0.0, 0, 0.0))
        tasks.deadlines.run_due(5.0)
    assert channel.starts() == [("worker-0", 0), ("worker-0", 1)]


def test_a_task_that_still_ends_is_not_ended_by_a_message_about_its_next_attempt():
    tasks, _ = group_of(worker=1)
    tasks.start(["worker-0"])
    tasks.renew(["worker-0"], 1)
    tasks.note_end("worker-0", 0)
    assert (tasks.running, tasks.finished) == ({"worker-0"}, set())
    tasks.note_end_before("worker-0")
    assert tasks.running == set()


def test_the_group_of_the_next_attempt_knows_nothing_about_the_one_before():
    tasks, _ = group_of(worker=1)
    tasks.start(["worker-0"])
    tasks.note_stop(["worker-0"], 5.0, "worker-0 failed")
    tasks.deadlines[lambda _: None] = 1.0
    after = tasks.again(tasks.job, tasks.channels)
    assert (after.running, after.stopped, after.history.entries, dict(after.deadlines)) == (set(), False, [], {})
    assert (after.requests, after.policy) == (tasks.requests, tasks.policy)
