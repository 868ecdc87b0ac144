"""What the tasks of a job do, from replayed messages."""

import pytest

from tests.launch.jobs import roles
from tfdist.launch.agents.inbox import AgentLost, Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Heartbeat, Listening, NotStarted, Output, Started, Stuck
from tfdist.launch.console.job_state import JobState, number_text, state_of, step_text, step_values
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines


def test_the_values_of_a_step():
    event = {"event": "step", "step": 3, "steps": 9, "images_per_s": 12, "loss": 0.5}
    assert step_values(event) == (3, 9, 12.0, 0.5)


@pytest.mark.parametrize("value", [None, "x", [], -1, 10**400])
def test_a_value_that_cannot_be_shown_is_left_out(value):
    assert step_values({"step": value, "steps": value})[:2] == (None, None)
    assert step_values({"step": 0, "steps": 0})[:2] == (0, None)
    if value != -1:
        assert step_values({"images_per_s": value, "loss": value})[2:] == (None, None)


def test_the_text_of_values():
    assert [step_text(*values) for values in ((3, 9), (3, None), (None, 9))] == ["3/9", "3", ""]
    assert [number_text(value, ",.1f") for value in (1234.56, None)] == ["1,234.6", ""]


def job_of(**counts: int):
    """The job of these roles on this machine."""
    return plan_job(Shape(roles(**counts), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))


def event(task: str, name: str, **values) -> Event:
    """An event of a task."""
    return Event(task, 0.0, {"event": name, **values})


def replayed(state: JobState, *messages) -> JobState:
    """The state after one message per second, from second 1."""
    for second, message in enumerate(messages, start=1):
        state.update(message, float(second))
    return state


def exited(task: str, code: int) -> Exited:
    return Exited(task, code, 0.0, 0, 0.0)


def activities(state: JobState) -> dict[str, str]:
    return {name: str(task.activity) for name, task in state.tasks.items()}


def test_a_task_shows_its_phases_before_its_first_step():
    state, seen = state_of(job_of(worker=1)), []
    for second, message in enumerate(
        [
            Started("worker-0", 1, 0.0),
            event("worker-0", "phase", phase="importing"),
            event("worker-0", "phase", phase="building"),
            event("worker-0", "ready"),
            event("worker-0", "phase", phase="tracing"),
            event("worker-0", "step", step=5, steps=20, images_per_s=9.0, loss=0.5),
            event("worker-0", "record"),
            exited("worker-0", 0),
        ]
    ):
        assert state.update(message, float(second))
        seen.append((str(state.tasks["worker-0"].activity), state.tasks["worker-0"].since))
    names = ["starting", "importing", "building", "ready", "tracing", "training", "ending", "done"]
    assert seen == list(zip(names, map(float, range(8)), strict=True))


def test_a_phase_that_is_reported_again_continues():
    state = replayed(state_of(job_of(worker=1)), *[event("worker-0", "phase", phase="building")] * 3)
    assert state.tasks["worker-0"].since == 1.0


def test_the_barrier_opens_when_all_leading_tasks_are_there():
    first, second = event("worker-0", "barrier"), event("worker-1", "barrier")
    step = event("worker-0", "step", step=5, steps=20)
    state = replayed(state_of(job_of(worker=2)), step, first)
    assert activities(state) == {"worker-0": "at barrier", "worker-1": "waiting"}
    replayed(state, second)
    assert activities(state) == {"worker-0": "training", "worker-1": "ready"}


@pytest.mark.parametrize(
    ("message", "activity", "failed"),
    [
        (exited("worker-1", 0), "done", False),
        (exited("worker-1", 3), "exit code 3", True),
        (exited("worker-1", -9), "SIGKILL", True),
        (exited("worker-1", -15), "SIGTERM", True),
        (exited("worker-1", -99), "signal 99", True),
        (NotStarted("worker-1", "no such file"), "not started", True),
        (Stuck("worker-1", 0.0, "D", "nfs"), "cannot be killed", True),
        (AgentLost("localhost", "cut"), "host lost", True),
    ],
)
def test_every_end_has_its_text(message, activity, failed):
    state = replayed(state_of(job_of(worker=2)), Started("worker-1", 1, 0.0), message)
    task = state.tasks["worker-1"]
    assert (task.activity, task.ended, task.failed) == (activity, True, failed)
    assert bool(state.failed) is failed


def test_a_task_that_the_launcher_stops_has_not_failed_whatever_its_exit_code():
    state = replayed(
        state_of(job_of(worker=2)),
        Started("worker-0", 1, 0.0),
        Started("worker-1", 1, 0.0),
        exited("worker-1", 1),
        Stopped(("worker-0",)),
        event("worker-0", "step", step=1),
    )
    assert activities(state) == {"worker-0": "stopping", "worker-1": "exit code 1"}
    assert activities(replayed(state, exited("worker-0", 134)))["worker-0"] == "stopped"
    assert state.failed == "worker-1"


def test_servers_serve_and_fail_if_they_end_before_the_leader():
    state = state_of(job_of(chief=1, worker=1, ps=1))
    for task in state.tasks:
        state.update(Started(task, 1, 0.0), 0.0)
    replayed(state, event("ps-0", "ready"), Listening("worker-0", 0.0))
    assert activities(state) == {"chief-0": "starting", "worker-0": "serving", "ps-0": "serving"}
    replayed(state, exited("ps-0", 0))
    assert (activities(state)["ps-0"], state.failed) == ("exit code 0", "ps-0")


def test_a_restarted_task_begins_again_and_its_earlier_attempt_is_silent():
    state = replayed(
        state_of(job_of(worker=1)),
        event("worker-0", "step", step=5, steps=20),
        exited("worker-0", 1),
        Stopped(()),
        Started("worker-0", 2, 0.0, attempt=1),
        event("worker-0", "step", step=6, steps=20),
    )
    task = state.tasks["worker-0"]
    assert (task.activity, task.step, task.failed, task.leads) == ("starting", None, False, True)
    assert (state.failed, state.stopped_at) == ("", None)


def test_tasks_that_will_be_restarted_wait_and_the_others_continue():
    state = replayed(state_of(job_of(chief=1, worker=2)), Started("worker-0", 1, 0.0), exited("worker-1", -9))
    replayed(state, Restarting(1, ("worker-1",), False, "worker-1 was killed"))
    assert activities(state) == {"chief-0": "waiting", "worker-0": "starting", "worker-1": "waiting"}
    assert (state.failed, state.tasks["worker-1"].serves) == ("", True)


def test_a_restart_of_all_tasks_shows_those_of_the_new_plan():
    state = replayed(state_of(job_of(worker=3)), exited("worker-2", -9))
    replayed(state, Restarting(1, ("worker-0", "worker-1"), True, "lost h2"))
    assert activities(state) == {"worker-0": "waiting", "worker-1": "waiting"}


def test_a_restart_shows_new_tasks_and_the_hosts_of_all():
    state = replayed(state_of(job_of(chief=1, worker=1)), exited("chief-0", -9))
    hosts = ("h2", "h2", "h3")
    replayed(state, Restarting(1, ("chief-0", "worker-0", "worker-1"), True, "lost h1", hosts=hosts))
    assert [task.host for task in state.tasks.values()] == list(hosts)
    assert [task.serves for task in state.tasks.values()] == [False, True, True]
    assert [task.name for task in state.leading] == ["chief-0"]


def test_messages_that_change_nothing_are_not_drawn():
    state = state_of(job_of(worker=1))
    assert not state.update(Output("worker-0", "stdout", "x\n"), 0.0)
    assert not state.update(Heartbeat(0.0), 0.0)
    assert not state.update(Listening("worker-0", 0.0), 0.0)


def test_events_without_numbers_and_unknown_events_are_accepted():
    state = replayed(
        state_of(job_of(worker=1)),
        event("worker-0", "step"),
        event("worker-0", "step", step=-1, steps=0, images_per_s="fast", loss=10**400),
        event("worker-0", "step", step=10**400, steps=10**400),
        event("worker-0", "mine"),
        Event("worker-0", 0.0, {}),
    )
    task = state.tasks["worker-0"]
    assert (task.activity, task.step, task.steps, task.images_per_s, task.loss) == ("training", None, None, None, None)


def test_a_phase_is_one_short_printable_line():
    state = replayed(state_of(job_of(worker=1)), event("worker-0", "phase", phase="\x1b[2Jload\ning " + "x" * 99))
    assert state.tasks["worker-0"].activity == "[2Jload ing " + "x" * 17


def steps(state: JobState, *times_and_steps: tuple[float, int], total: int | None = 100) -> JobState:
    for time, step in times_and_steps:
        state.update(event("worker-0", "step", step=step, steps=total), time)
    return state


def test_the_time_left_comes_from_the_recent_steps():
    state = state_of(job_of(worker=1))
    task = state.tasks["worker-0"]
    assert steps(state, (60.0, 10)).left_s(60.0) is None
    steps(state, (62.0, 20))
    assert task.left_s(62.0) == pytest.approx(16.0)
    assert task.left_s(63.0) == pytest.approx(15.0)
    for number in range(3, 10):
        steps(state, (58.0 + 2 * number, 10 * number))
    assert task.left_s(76.0) == pytest.approx(2.0)
    assert steps(state, (78.0, 100)).left_s(78.0) is None


def test_the_time_left_grows_while_a_step_is_overdue_and_is_never_negative():
    state = steps(state_of(job_of(worker=1)), (0.0, 10), (2.0, 20))
    left = [state.left_s(float(now)) for now in range(2, 60)]
    assert min(left) >= 0
    assert left[-1] > left[0]
    nearly = steps(state_of(job_of(worker=1)), (0.0, 10), (2.0, 99))
    assert [nearly.left_s(now) for now in (2.0, 2.01, 2.03, 3.0)] == pytest.approx([0.0225, 0.0125, 0.0, 0.0], abs=1e-2)


def test_no_time_left_without_a_total_at_once_or_after_the_steps_begin_again():
    assert steps(state_of(job_of(worker=1)), (0.0, 1), (1.0, 2), total=None).left_s(1.0) is None
    assert steps(state_of(job_of(worker=1)), (1.0, 1), (1.0, 2)).left_s(1.0) is None
    assert steps(state_of(job_of(worker=1)), (0.0, 50), (1.0, 60), (2.0, 1)).left_s(2.0) is None


def test_a_pause_at_the_barrier_is_not_part_of_the_speed():
    state = steps(state_of(job_of(worker=1)), (0.0, 10), (1.0, 20))
    state.update(event("worker-0", "barrier"), 50.0)
    assert steps(state, (51.0, 30)).left_s(51.0) == pytest.approx(7.0)


def test_leading_tasks_are_judged_together_and_the_workers_of_a_chief_by_their_updates():
    synchronous, asynchronous = state_of(job_of(worker=2)).steps, state_of(job_of(chief=1, worker=2, ps=1)).steps
    assert (list(synchronous.tasks), list(synchronous.workers)) == (["worker-0", "worker-1"], [])
    assert (list(asynchronous.tasks), list(asynchronous.workers)) == (["chief-0"], ["worker-0", "worker-1"])
