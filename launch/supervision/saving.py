"""A checkpoint when a scheduler is about to end the job, so that the next job continues from it: exit code 42."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfdist.launch.agents.inbox import Interrupted
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.errors import ExitCode
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.task_group import TaskGroup
from tfdist.launch.text import signal_name

SCHEDULER_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""What a scheduler sends some time before it ends a job."""


@dataclass
class Saving:
    """Sends SIGTERM to one leading task, as TensorFlow's PreemptionCheckpointHandler needs it: that task tells the
    others at which step all save. They exit then, and the rest of the job is stopped.
    """

    tasks: TaskGroup
    active: bool = False

    def wanted(self, interrupted: Interrupted) -> bool:
        """Whether the job saves a checkpoint on this signal, and has a task that can."""
        saves = self.tasks.policy.saves_on_signal and interrupted.signal in SCHEDULER_SIGNALS
        return saves and not self.tasks.stopped and any(map(self.tasks.has_started, self.tasks.leaders[:1]))

    def start(self, number: int, reason: str, now: float) -> None:
        """Make the tasks save after the signal `number`. All count as stopped now: how they exit is not a failure."""
        grace_s = self.tasks.policy.save_grace_s(number)
        self.active = True
        self.tasks.note_stop(self.tasks.running, grace_s, f"{reason}, saving a checkpoint")
        self.tasks.stop(self.tasks.leaders[:1], grace_s, keeps_barrier=True)
        self.tasks.deadlines[self.end] = now + grace_s

    def note_exit(self, code: int, now: float) -> None:
        """Stop the rest if the last leading task has exited, or if one has exited without saving."""
        if not self.tasks.leaders or code not in (ExitCode.SUCCESS, ExitCode.PREEMPTED):
            self.end(now)

    def end(self, _: float) -> None:
        """Stop the tasks that still run."""
        self.active = False
        self.tasks.deadlines.cancel(self.end)
        self.tasks.stop(self.tasks.running, min(self.tasks.policy.grace_s, self.tasks.policy.lost_grace_s))


def with_earlier_checkpoint(
    outcome: Outcome, policy: Policy, saved_step: int, received: Sequence[Interrupted]
) -> Outcome:
    """The outcome, with exit code 42 if a signal came when no task could save, but a checkpoint exists. Pure.

    Args:
        outcome: of the last attempt.
        policy: of the run.
        saved_step: of the last checkpoint that a task saved or continued from; 0 without one.
        received: the signals during the last attempt; after a second one the exit code stays.
    """
    saves = outcome.status is Status.INTERRUPTED and policy.saves_on_signal and outcome.signal in SCHEDULER_SIGNALS
    # a scheduler's signal may come from an agent first, and then to the launcher
    by_agent = len(received) == 2 and received[0].of_agent
    repeated = received[0].signal != received[1].signal if by_agent else len(received) > 1
    if not saves or not saved_step or outcome.exit_code == ExitCode.PREEMPTED or repeated:
        return outcome
    reason = outcome.reason
    if outcome.not_restarted:  # it is that of the failure before
        reason = f"{reason}; interrupted by {signal_name(outcome.signal)}"
    return replace(outcome, exit_code=ExitCode.PREEMPTED, reason=f"{reason}: step {saved_step} was saved before")
