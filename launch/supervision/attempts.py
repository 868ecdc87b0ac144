"""The attempts of a run: the only place where one is added, and where one ends."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.inbox import Restarting
from tfdist.launch.agents.messages import Event, Exited
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import Attempt, Outcome, ReportedError
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.redact import safe_text
from tfdist.launch.supervision.restarts import Restart, SavedState, announcement, decide
from tfdist.launch.supervision.task_group import TaskGroup


@dataclass
class AttemptLog:
    """Keeps the attempts of a run, from its messages. The last attempt is the one that runs."""

    attempts: list[Attempt] = field(default_factory=list)
    saved: SavedState = field(default_factory=SavedState)
    """The newest checkpoint that a task has reported."""

    def open(self, tasks: Iterable[str], time: float, note: str = "") -> int:
        """Add an attempt that starts these tasks; returns its number."""
        self.attempts.append(Attempt(len(self.attempts), tuple(tasks), time, note=note))
        return self.attempts[-1].number

    def update(self, message: Event) -> None:
        """Note a step, or the checkpoint that was saved or restored."""
        last = self.attempts[-1]
        step = message.event.get("step")
        if not isinstance(step, int):
            return
        match message.event.get("event"):
            case "step":
                first = message.time if last.first_step is None and message.task in last.tasks else last.first_step
                self.attempts[-1] = replace(last, first_step=first, last_step=max(step, last.last_step or 0))
            case "checkpoint" | "resumed" as event:
                examples = message.event.get("examples")
                self.saved = SavedState(step, examples if isinstance(examples, int) else 0)
                if event == "resumed":
                    self.attempts[-1] = replace(last, resumed_from=step)

    def closed(self, time: float, reason: str, culprit: str | None, exit_code: int) -> list[Attempt]:
        """The attempts, if the last one has ended at that time (in seconds since 1970), for that reason."""
        last = replace(self.attempts[-1], ended=time, reason=reason, culprit=culprit, exit_code=int(exit_code))
        return [*self.attempts[:-1], last]

    def judge(self, tasks: TaskGroup, time: float, whole: bool) -> tuple[Outcome, Restart | None]:
        """Diagnose the present attempt and decide whether another one follows. Changes nothing.

        Args:
            tasks: of the attempt.
            time: when it ended, in seconds since 1970.
            whole: no other task would continue.

        Returns:
            How it ended, without secrets, with all attempts and why no other one follows; and the restart, if one does.
        """
        outcome = diagnose(tasks.history, tasks.job)
        outcome = replace(
            outcome,
            reason=safe_text(outcome.reason),
            log=tuple(map(safe_text, outcome.log)),
            casualties={task: safe_text(ending) for task, ending in outcome.casualties.items()},
            warnings=tuple(map(safe_text, outcome.warnings)),
        )
        attempts = self.closed(time, outcome.reason, outcome.culprit, outcome.exit_code)
        decision = decide(outcome, tasks.job, tasks.policy, attempts, () if whole else failed_tasks(tasks))
        why, restart = (decision, None) if isinstance(decision, str) else ("", decision)
        return replace(outcome, attempts=tuple(attempts), not_restarted=why), restart

    def follow(self, outcome: Outcome, restart: Restart, job: Job, policy: Policy, note: str = "") -> Restarting:
        """Add the attempt after one that has ended like this; returns its announcement.

        Args:
            outcome: from `judge`.
            restart: of all tasks of `job`, or of some while the others continue.
            job: of the new attempt.
            policy: of the run.
            note: what is different from the attempt before; empty: nothing.
        """
        now = event_time()
        self.attempts = list(outcome.attempts)
        number = self.open(restart.tasks, now, note)
        reason = announcement(outcome, restart, job, policy, self.saved.step)
        text = "; ".join(filter(None, (reason, note)))
        hosts = tuple(plan.host.name for plan in job.plans) if restart.whole else ()
        return Restarting(number, restart.tasks, restart.whole, text, restart.delay_s, now, hosts)


def failed_tasks(tasks: TaskGroup) -> set[str]:
    """The tasks that have failed, whoever caused it."""
    exits = tasks.history.select(Exited)
    failed = {exit.task for exit in exits if exit.code != 0 or exit.task in tasks.job.serving}
    return failed | {report.task for report in tasks.history.select(ReportedError)}
