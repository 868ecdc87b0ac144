"""Whether tasks are restarted after a failure, which ones, and when. Pure: tests replay attempts."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tfdist.launch.diagnosis.history import Attempt, Outcome, Status
from tfdist.launch.errors import SIGNALS, ExitCode, TfdistError
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy, RestartOn
from tfdist.launch.redact import safe_text
from tfdist.launch.text import shortened


@dataclass(frozen=True)
class SavedState:
    """What the last checkpoint has; zeros without one."""

    step: int = 0
    examples: int = 0


MOST_ALIKE = 3
"""Failures of one task at the same step before it is not restarted any more."""
ALIKE_S = 60.0
"""The same for a task that emits no steps: failures within this time."""
SAME_FAILURE_S = 0.5
"""Failures of a serving task within this time are one: the chief reports it, too, maybe after the restart."""
MOST_DELAY_S = 60.0
OUT_OF_MEMORY = re.compile(r"out of memory|MemoryError|ResourceExhaustedError|OOM when allocating", re.IGNORECASE)


@dataclass(frozen=True)
class Restart:
    """Start tasks again."""

    tasks: tuple[str, ...]
    """Tasks in the order of the job."""
    whole: bool
    """No other task continues."""
    delay_s: float


def decide(
    outcome: Outcome, job: Job, policy: Policy, attempts: Sequence[Attempt], failed: Collection[str] = ()
) -> Restart | str:
    """The restart after a failure, or why there is none: empty if the policy asks for none.

    Args:
        outcome: of the attempt that has failed.
        job: of the attempt.
        policy: of the run.
        attempts: all so far; the last one has failed.
        failed: tasks that have failed while others still run, as the consequence of the culprits' failure or not.
    """
    attempts = failures(job, attempts)
    ignored = RestartOn.FAILURE if outcome.exit_code == ExitCode.PREEMPTED else RestartOn.PREEMPTION
    if not policy.max_restarts or outcome.status is not Status.FAILED or policy.restart_on is ignored:
        return ""
    if outcome.not_restarted:
        return outcome.not_restarted
    if outcome.exit_code == ExitCode.NOT_STARTED:
        return "its program could not be started"
    if outcome.exit_code == ExitCode.USAGE:
        return "the input is wrong, which a restart does not change"
    if outcome.exit_code == ExitCode.START_TIMEOUT and not outcome.culprits:
        return "its tasks could not be started in time"
    if outcome.warnings:
        return "a process could not be killed"
    steps_known = job.reports_steps or any(attempt.first_step is not None for attempt in attempts)
    since = attempts if outcome.culprit in job.serving else attempts[-1:]  # their chief takes the steps
    if steps_known and all(each.last_step is None for each in since) and OUT_OF_MEMORY.search(outcome.reason):
        return "it was out of memory before its first step"
    if alike := alike_failures(job, attempts):
        return alike
    if len(attempts) > policy.max_restarts:
        return f"--max-restarts {policy.max_restarts} is used up"
    tasks = tasks_to_restart(job, (*outcome.culprits, *failed) if outcome.culprits else ())
    if tasks is None:
        return "a job of this strategy cannot be restarted"
    whole = set(tasks) == {plan.task.name for plan in job.plans}
    return Restart(tasks, whole, delay_s(attempts))


def failures(job: Job, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, without those that ended because the chief reported the failure of the one before, too."""
    found: list[Attempt] = []
    for each in attempts:
        same = found and each.culprit in job.serving and each.culprit == found[-1].culprit
        if not same or (each.ended or 0.0) - (found[-1].ended or 0.0) >= SAME_FAILURE_S:
            found.append(each)
    return found


def tasks_to_restart(job: Job, culprits: Collection[str]) -> tuple[str, ...] | None:
    """The tasks that are restarted after a failure of these; all of them if a host is to blame. None: no restart."""
    culprits = set(culprits)
    roles = {plan.task.name: plan.task.role for plan in job.plans}
    failed = {roles[task] for task in culprits} or set(roles.values())
    if any(job.roles[role].restarts is None for role in failed):
        return None
    if not culprits:
        return tuple(roles)
    together = {role for task in culprits for role in job.roles[roles[task]].restarts or ()}
    tasks = [task for task in roles if task in culprits or roles[task] in together]
    lasting = roles.keys() - set(tasks) - set(job.following)
    return tuple(tasks if lasting else roles)


def delay_s(attempts: Sequence[Attempt]) -> float:
    """Seconds before the next attempt: 0 after an attempt that got further than the one before, else 1, 2, 4, ..."""
    stuck, before, furthest = 0, False, 0
    for attempt in attempts:
        if attempt.ended is None:
            continue
        if attempt.last_step is None:  # without steps, it got further if it lasted for a while
            further = attempt.ended - attempt.started >= ALIKE_S
        else:
            further = attempt.last_step > furthest
        stuck = stuck + 1 if before and not further else 0
        before = True
        furthest = max(furthest, attempt.last_step or 0)
    return min(MOST_DELAY_S, 2.0 ** min(stuck - 1, 10)) if stuck else 0.0


def alike_failures(job: Job, attempts: Sequence[Attempt]) -> str:
    """Why a further attempt would fail as the last ones did; empty if that is not known."""
    last = attempts[-1]
    alike = list(takewhile(lambda each: _culprit(each) == _culprit(last), reversed(attempts)))
    steps_known = last.culprit not in job.serving and (
        job.reports_steps or any(each.last_step is not None for each in attempts)
    )
    who = last.culprit or "it"
    if steps_known:
        same = list(takewhile(lambda each: each.last_step == last.last_step, alike))
        at = "before the first step" if last.last_step is None else f"at step {last.last_step}"
        return f"{who} failed {len(same)} times {at}" if len(same) >= MOST_ALIKE else ""
    recent = len(alike) >= MOST_ALIKE and (last.ended or 0.0) - (alike[MOST_ALIKE - 1].ended or 0.0) <= ALIKE_S
    return f"{who} failed {MOST_ALIKE} times within {ALIKE_S:g} s" if recent else ""


def _culprit(attempt: Attempt) -> str:
    return attempt.culprit or attempt.reason


def announcement(outcome: Outcome, restart: Restart, job: Job, policy: Policy, saved_step: int) -> str:
    """`worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: all tasks, from step 120`."""
    what = "all tasks" if restart.whole and len(restart.tasks) > 1 else shortened(restart.tasks)
    if set(restart.tasks).isdisjoint(job.leading):
        start = ""
    elif saved_step:
        start = f", from step {saved_step}"
    else:
        start = ", from the start: no checkpoint" if job.reports_steps else ""
    wait = f", in {restart.delay_s:g} s" if restart.delay_s else ""
    number = len(failures(job, outcome.attempts))
    return f"{outcome.reason}; restart {number} of {policy.max_restarts}: {what}{start}{wait}"


def not_restarted(outcome: Outcome, error: TfdistError) -> Outcome:
    """The outcome if the next attempt could not be planned: the job was interrupted, or cannot be continued."""
    if error.exit_code <= SIGNALS:
        return replace(outcome, not_restarted=safe_text(str(error)))
    return replace(
        outcome,
        status=Status.INTERRUPTED,
        exit_code=error.exit_code,
        signal=error.exit_code - SIGNALS,
        not_restarted="interrupted before the restart",
    )
