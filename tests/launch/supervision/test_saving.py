"""What a checkpoint that was saved before a signal changes in the outcome."""

import signal

import pytest

from tfdist.launch.agents.inbox import Interrupted
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.saving import with_earlier_checkpoint

SAVES = Policy(saves_on_signal=True)
FROM_AGENT = Interrupted(signal.SIGTERM, of_agent=True)


def interrupted(number, **values):
    """A job that this signal has ended."""
    reason = f"interrupted by {signal.Signals(number).name}"
    return Outcome(Status.INTERRUPTED, 128 + number, reason, **{"signal": number, **values})


def changed(outcome, policy=SAVES, saved_step=7, received=()):
    """Exit code and reason of the outcome."""
    after = with_earlier_checkpoint(outcome, policy, saved_step, received)
    return after.exit_code, after.reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_preemption_without_a_save_asks_for_a_restart_from_the_checkpoint_before(number):
    outcome = interrupted(number)
    for received in ([], [Interrupted(number)]):
        assert changed(outcome, received=received) == (42, f"{outcome.reason}: step 7 was saved before")


def test_a_signal_before_a_restart_is_in_the_reason_behind_the_failure():
    failed = Outcome(
        Status.INTERRUPTED,
        138,
        "worker-1 exited with code 3",
        signal=10,
        not_restarted="interrupted before the restart",
    )
    assert changed(failed) == (
        42,
        "worker-1 exited with code 3; interrupted by SIGUSR1: step 7 was saved before",
    )


@pytest.mark.parametrize(
    ("outcome", "values"),
    [
        (interrupted(signal.SIGTERM), {"saved_step": 0}),
        (interrupted(signal.SIGTERM), {"policy": Policy()}),
        (interrupted(signal.SIGINT), {}),
        (interrupted(signal.SIGHUP), {}),
        (interrupted(signal.SIGTERM), {"received": [Interrupted(signal.SIGTERM), Interrupted(signal.SIGTERM)]}),
        (interrupted(signal.SIGTERM), {"received": [FROM_AGENT, Interrupted(signal.SIGINT)]}),
        (interrupted(signal.SIGTERM), {"received": [FROM_AGENT, *[Interrupted(signal.SIGTERM)] * 2]}),
        (Outcome(Status.INTERRUPTED, 42, "interrupted by SIGTERM: saved step 9", signal=signal.SIGTERM), {}),
        (Outcome(Status.FAILED, 3, "worker-1 exited with code 3"), {}),
        (Outcome(Status.OK, 0, ""), {}),
    ],
)
def test_any_other_end_is_unchanged(outcome, values):
    assert changed(outcome, **values) == (outcome.exit_code, outcome.reason)


def test_a_schedulers_signal_that_an_agent_receives_first_counts_once():
    outcome = interrupted(signal.SIGTERM)
    received = [FROM_AGENT, Interrupted(signal.SIGTERM)]
    assert changed(outcome, received=received) == (42, "interrupted by SIGTERM: step 7 was saved before")
