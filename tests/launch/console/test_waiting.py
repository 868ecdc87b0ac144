"""What a job waits for, from replayed messages."""

import pytest

from tfdist.launch.agents.launcher_messages import AgentLost, Stopped
from tfdist.launch.agents.messages import Started
from tfdist.launch.console.job_state import state_of
from tfdist.launch.console.waiting import waits_for

from .test_job_state import event, exited, job_of, replayed

W0, W1 = Started("worker-0", 1, 0.0), Started("worker-1", 2, 0.0)
CONNECTS = event("worker-0", "phase", phase="connecting")
BARRIER = event("worker-0", "barrier")
STEPS = [event(task, "step", step=5, steps=20) for task in ("worker-0", "worker-1")]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "waiting for worker-0, worker-1 to start"),
        ([W0], "waiting for worker-1 to start"),
        ([W0, W1], ""),
        ([W0, W1, CONNECTS], "waiting for worker-1 to connect"),
        ([W0, W1, CONNECTS, event("worker-1", "phase", phase="connecting")], ""),
        ([W0, W1, STEPS[0]], ""),
        ([W0, W1, *STEPS], "all 2 tasks train"),
        ([W0, W1, *STEPS, BARRIER], "waiting for worker-1 to reach the start barrier"),
        ([W0, W1, *STEPS, BARRIER, event("worker-1", "barrier")], "all 2 tasks train"),
        ([W0, W1, exited("worker-1", 0)], "worker-1 done; waiting for worker-0"),
        ([W0, W1, exited("worker-1", 0), exited("worker-0", 0)], ""),
        ([W0, W1, exited("worker-1", 1)], "worker-1 has failed; waiting for worker-0, 7 s"),
        ([W0, W1, exited("worker-1", 1), Stopped(("worker-0",))], "stopping worker-0, 6 s"),
        ([W0, W1, exited("worker-1", 1), Stopped(("worker-0",)), exited("worker-0", -15)], ""),
        ([W0, W1, Stopped(("worker-0", "worker-1"))], "stopping worker-0, worker-1, 7 s"),
    ],
)
def test_workers(messages, text):
    assert waits_for(replayed(state_of(job_of(worker=2)), *messages), 10.0) == text


def test_an_evaluator_does_not_connect_and_the_job_waits_for_its_end():
    state = replayed(state_of(job_of(worker=2, evaluator=1)), W0, W1, Started("evaluator-0", 3, 0.0), CONNECTS)
    assert waits_for(state, 5.0) == "waiting for worker-1 to connect"
    replayed(state, exited("worker-0", 0), exited("worker-1", 0))
    assert waits_for(state, 9.0) == "waiting for evaluator-0 to end"


def test_a_lost_host_is_named():
    state = replayed(state_of(job_of(worker=2)), W0, W1)
    state.tasks["worker-1"].host = "h2"
    assert waits_for(replayed(state, AgentLost("h2", "cut")), 4.0) == "h2 has failed; waiting for worker-0, 3 s"


def test_a_chief_waits_for_its_servers_which_are_stopped_after_it():
    state = state_of(job_of(chief=1, worker=3, ps=1))
    replayed(state, *(Started(task, 1, 0.0) for task in state.tasks), event("chief-0", "phase", phase="connecting"))
    assert waits_for(state, 9.0) == "waiting for worker-0, worker-1 and 2 more to connect"
    replayed(state, *(event(task, "ready") for task in list(state.tasks)[1:]))
    assert waits_for(state, 9.0) == ""
    replayed(state, event("chief-0", "step", step=1))
    assert waits_for(state, 9.0) == "chief-0 trains"
    replayed(state, exited("chief-0", 0))
    assert waits_for(state, 9.0) == "waiting for worker-0, worker-1 and 2 more to end"
