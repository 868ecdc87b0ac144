"""Processes that a signal has stopped, from replayed answers of agents."""

import pytest

from tfdist.launch.diagnosis.history import ProcessState
from tfdist.launch.frozen import CHECK_S, FrozenWatch

from .supervisors import supervisor_of


def failed_after(states, *, ports=True):
    """When and which tasks have failed if worker-1 is in these states, one per check."""
    supervisor, _ = supervisor_of({"worker": 3}, ports=ports)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append((now, frozen.tasks)))
    supervisor.deadlines.times.clear()
    watch.start(0.0)
    for check, state in enumerate(states, 1):
        now = check * CHECK_S
        if state:
            supervisor.tasks.history.states["worker-1"] = ProcessState(state, time=now - 0.1)
        assert not ports or supervisor.deadlines.of(watch.check) == now
        supervisor.deadlines.run_due(now)
    return failures


def test_a_task_that_is_stopped_for_10_s_has_failed_within_15_s():
    ((seconds, tasks), *_) = failed_after("STTTTTT")
    assert tasks == ("worker-1",)
    assert seconds - CHECK_S <= 13.0


def test_the_time_during_which_the_launcher_was_suspended_does_not_count():
    supervisor, _ = supervisor_of({"worker": 2}, ports=True)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append(frozen))
    watch.start(0.0)
    for now in (CHECK_S, 3600.0, 3600.0 + CHECK_S):  # each time just before the task continues, too
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
