"""The attempts of a run, from its messages."""

from tfdist.launch.agents.messages import Event
from tfdist.launch.supervision.attempts import AttemptLog


def event(time, name, step, task="worker-0"):
    return Event(task, time, {"event": name, "step": step, "examples": 32 * step})


def test_an_attempt_keeps_its_first_and_last_step():
    log = AttemptLog()
    assert log.open(["worker-0"], 1.0) == 0
    for message in (event(2.0, "step", 10), event(3.0, "step", 20), event(3.1, "step", 19, "worker-1")):
        log.update(message)
    (attempt,) = log.closed(4.0, "worker-0 failed", "worker-0", 1)
    assert (attempt.first_step, attempt.last_step, attempt.ended, attempt.exit_code) == (2.0, 20, 4.0, 1)
    assert log.attempts[0].ended is None


def test_the_next_attempt_continues_from_the_last_checkpoint():
    log = AttemptLog()
    log.open(["worker-0"], 1.0)
    log.update(event(2.0, "checkpoint", 50))
    assert log.saved.step == 50
    log.attempts = log.closed(3.0, "worker-0 failed", "worker-0", 1)
    assert log.open(["worker-0"], 4.0, "2 workers instead of 3") == 1
    log.update(event(5.0, "resumed", 50))
    assert (log.attempts[1].resumed_from, log.attempts[1].note) == (50, "2 workers instead of 3")


def test_steps_of_tasks_that_continue_are_not_the_first_step_of_a_restart():
    log = AttemptLog()
    log.open(["chief-0", "worker-0"], 1.0)
    log.open(["worker-0"], 2.0)
    log.update(event(3.0, "step", 30, "chief-0"))
    assert (log.attempts[1].first_step, log.attempts[1].last_step) == (None, 30)


def test_events_without_a_number_are_ignored():
    log = AttemptLog()
    log.open(["worker-0"], 1.0)
    log.update(event(3.0, "step", "many"))
    assert log.attempts[0].last_step is None
