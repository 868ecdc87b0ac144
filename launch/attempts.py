"""The attempts of a run: what each restarted, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tfdist.launch.agents.messages import Event

FIRST = 0
"""Number of the first attempt. A restart counts one up, whichever tasks it restarts, and is the attempt of these."""


@dataclass(frozen=True)
class Attempt:
    """One attempt, as saved in outcome.json. Times are seconds since 1970."""

    number: int
    tasks: tuple[str, ...]
    """Those that it started; the others continued."""
    started: float
    ended: float | None = None
    """When the failure that ended it was detected, or the job ended; None while it runs."""
    first_step: float | None = None
    """Time of the first `step` event of a task that it started; None without one."""
    reason: str = ""
    """Why it ended; empty if it succeeded, or runs."""
    culprit: str | None = None
    exit_code: int = 0
    resumed_from: int | None = None
    """The step of the checkpoint that it continued from; None: from the start."""
    last_step: int | None = None
    """The highest step that any task reported."""
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


@dataclass(frozen=True)
class SavedState:
    """What the last checkpoint has; zeros without one."""

    step: int = 0
    examples: int = 0


@dataclass
class AttemptLog:
    """Keeps the attempts of a run, from its messages. The last attempt is the one that runs."""

    attempts: list[Attempt] = field(default_factory=list)
    saved_step: int | None = None
    """The step of the newest checkpoint that a task has reported."""
    saved_examples: int = 0
    """The examples that were trained until then."""

    def open(self, tasks: Iterable[str], time: float, note: str = "") -> int:
        """Add an attempt that starts these tasks; returns its number."""
        self.attempts.append(Attempt(len(self.attempts), tuple(tasks), time, note=note))
        return self.attempts[-1].number

    def update(self, message: Event) -> None:
        """Note a step, or the checkpoint that was saved or restored."""
        last, step = self.attempts[-1], message.event.get("step")
        if not isinstance(step, int):
            return
        match message.event.get("event"):
            case "step":
                first = message.time if last.first_step is None and message.task in last.tasks else last.first_step
                self.attempts[-1] = replace(last, first_step=first, last_step=max(step, last.last_step or 0))
            case "checkpoint":
                self._note_saved(step, message)
            case "resumed":
                self._note_saved(step, message)
                self.attempts[-1] = replace(last, resumed_from=step)

    def _note_saved(self, step: int, message: Event) -> None:
        examples = message.event.get("examples")
        self.saved_step, self.saved_examples = step, examples if isinstance(examples, int) else 0

    def closed(self, time: float, reason: str, culprit: str | None, exit_code: int) -> list[Attempt]:
        """The attempts, if the last one has ended at that time (in seconds since 1970), for that reason."""
        last = replace(self.attempts[-1], ended=time, reason=reason, culprit=culprit, exit_code=int(exit_code))
        return [*self.attempts[:-1], last]
