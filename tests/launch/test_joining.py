import math

import pytest

from tfdist.launch.diagnosis.history import ProcessState
from tfdist.launch.joining import FREEZE_CHECK_S, FrozenWatch
from tfdist.launch.task_group import Deadlines

from .supervisors import supervisor_of


def failed_after(states, *, ports=True):
    """When and which tasks have failed if worker-1 is in these states, one per check."""
    supervisor, _ = supervisor_of({"worker": 3}, ports=ports)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append((now, frozen.tasks)))
    supervisor.deadlines.times.clear()
    watch.start(0.0)
    for check, state in enumerate(states, 1):
        now = check * FREEZE_CHECK_S
        if state:
            supervisor.tasks.history.states["worker-1"] = ProcessState(state, time=now - 0.1)
        assert not ports or supervisor.deadlines.of(watch.check) == now
        supervisor.deadlines.run_due(now)
    return failures


def test_a_task_that_is_stopped_for_10_s_has_failed_within_15_s():
    ((seconds, tasks), *_) = failed_after("STTTTTT")
    assert tasks == ("worker-1",)
    assert seconds - FREEZE_CHECK_S <= 13.0


def test_the_time_during_which_the_launcher_was_suspended_does_not_count():
    supervisor, _ = supervisor_of({"worker": 2}, ports=True)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append(frozen))
    watch.start(0.0)
    for now in (FREEZE_CHECK_S, 3600.0, 3600.0 + FREEZE_CHECK_S):  # each time just before the task continues, too
        supervisor.tasks.history.states["worker-1"] = ProcessState("T", time=now - 0.1)
        watch.check(now)
    assert failures == []


@pytest.mark.parametrize(
    "states",
    ["S" * 9, "t" * 9, "TTTTSTTTT", ["T", *[""] * 8]],
    ids=["runs", "debugger", "continued", "no answers"],
)
def test_others_have_not_failed(states):
    assert failed_after(states) == []


def test_a_job_without_a_cluster_is_left_alone():
    assert failed_after("T" * 9, ports=False) == []


def test_due_actions_run_once_in_the_order_of_their_times():
    deadlines, done = Deadlines(), []
    actions = {name: (lambda now, name=name: done.append((name, now))) for name in "abc"}
    for name, at in {"a": 3.0, "b": 1.0, "c": 9.0}.items():
        deadlines.set(actions[name], at)
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
        deadlines.set(later, 5.0)

    for action in (first, never, later):
        deadlines.set(action, 1.0)
    deadlines.run_due(1.0)
    assert done == []
    assert (deadlines.of(later), deadlines.of(never)) == (5.0, None)
    deadlines.run_due(5.0)
    assert done == [5.0]
    assert deadlines.next() == math.inf
