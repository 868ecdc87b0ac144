"""The attempts of a run: what each restarted, and how it ended."""

from dataclasses import dataclass

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
