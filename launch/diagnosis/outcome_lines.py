"""How a job ended, line by line: the terminal and the termination log of a pod each show some of these lines. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfdist.launch.diagnosis.history import Attempt, Outcome
from tfdist.launch.diagnosis.straggler import StragglerReport
from tfdist.launch.errors import ExitCode
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import counted, duration, listed

SHOWN_ATTEMPTS = 10
"""Attempts shown at the start and at the end of a long list."""


SHOWN_CASUALTIES = 10
"""Different ends of other tasks that are shown; on each host the name of the host is different."""


class Label(StrEnum):
    """How a line starts."""

    LOG = "|"
    """A line of the culprit's traceback, or of its last output."""
    HINT = "hint:"
    CASUALTIES = "then"
    WARNING = "warning:"
    ATTEMPT = "attempt"
    LEFT_OUT = "..."
    STRAGGLER = "for"
    NOT_RESTARTED = "not restarted:"
    STACKS = "stacks:"
    LOGS = "logs:"
    AGAIN = "again:"
    RESUME = "resume:"


class OutcomeLine(NamedTuple):
    """One line below the sentence that says why the job failed."""

    label: Label
    text: str

    def __str__(self) -> str:
        return f"{self.label} {self.text}"


def lines_of(outcome: Outcome) -> Iterator[OutcomeLine]:
    """All that an outcome says below its reason, from the traceback and what to do to where the logs are."""
    yield from (OutcomeLine(Label.LOG, line) for line in outcome.log)
    yield from (OutcomeLine(Label.HINT, hint) for hint in outcome.hints)
    alike: dict[str, list[str]] = {}
    for task, ending in outcome.casualties.items():
        alike.setdefault(ending, []).append(task)
    for ending, tasks in list(alike.items())[:SHOWN_CASUALTIES]:
        yield OutcomeLine(Label.CASUALTIES, f"{listed(tasks)} {ending}")
    if more := sum(map(len, list(alike.values())[SHOWN_CASUALTIES:])):
        yield OutcomeLine(Label.LEFT_OUT, f"{counted(more, 'more task')} in outcome.json")
    yield from (OutcomeLine(Label.WARNING, warning) for warning in outcome.warnings)
    yield from _attempt_lines(outcome.attempts)
    yield from straggler_lines(outcome.stragglers)
    if outcome.not_restarted:
        yield OutcomeLine(Label.NOT_RESTARTED, outcome.not_restarted)
    if outcome.exit_code == ExitCode.STALL:
        # of any attempt: a task that was not restarted has its logs in the first one
        yield OutcomeLine(Label.STACKS, f"{outcome.run_dir}/attempt-*/*/stacks.txt")
    yield OutcomeLine(Label.LOGS, outcome.run_dir)


def straggler_lines(stragglers: Sequence[StragglerReport]) -> Iterator[OutcomeLine]:
    """A line for each worker that held the others up, and for how long; of many, those of the longest times."""
    for each in sorted(stragglers, key=lambda each: each.since - each.until)[:SHOWN_ATTEMPTS]:
        yield OutcomeLine(Label.STRAGGLER, f"{duration(each.until - each.since)} {each.sentence}")


def _attempt_lines(attempts: Sequence[Attempt]) -> list[OutcomeLine]:
    """A line for each attempt: how long it ran, from which step to which, and what ended it; none for only one.

    Of very many attempts, those in the middle are left out.
    """
    lines = [OutcomeLine(Label.ATTEMPT, _attempt_text(attempt)) for attempt in attempts] if len(attempts) > 1 else []
    more = len(lines) - 2 * SHOWN_ATTEMPTS
    if more <= 1:
        return lines
    left_out = OutcomeLine(Label.LEFT_OUT, f"{more} more attempts in outcome.json")
    return [*lines[:SHOWN_ATTEMPTS], left_out, *lines[-SHOWN_ATTEMPTS:]]


def _attempt_text(attempt: Attempt) -> str:
    seconds = "" if attempt.ended is None else duration(max(0.0, attempt.ended - attempt.started))
    first = "" if attempt.resumed_from is None else f"from step {attempt.resumed_from}"
    last = "" if attempt.last_step is None else f"to step {attempt.last_step}"
    note = attempt.note and f"({attempt.note})"
    return f"{attempt.number}: {' '.join(filter(None, (seconds, first, last, note)))}: {attempt.reason}"
