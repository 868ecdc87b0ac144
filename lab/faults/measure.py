"""What a launch that has met a fault shows, and what of it is not as expected."""

import re
from dataclasses import dataclass
from typing import Any

from lab.faults.live import Live
from lab.faults.scenario import ANY, Scenario

BLOCK = re.compile(r"^tfdist: (?!cannot write|warning)")
STEP = re.compile(r"^\[[\w-]+\] step (\d+)/", re.MULTILINE)
RESTART = re.compile(r"; restart \d+ of \d+: ")


@dataclass(frozen=True)
class FaultResult:
    """What happened. Times are seconds; None: it did not happen."""

    code: int | None
    """Exit code of the launcher; None: it did not end."""
    culprit: str | None
    """The task that was named in the attempt that the fault ended."""
    sentence: str
    """What was printed about the fault."""
    detected_s: float | None
    """Time from the fault to the first line that names the culprit, or to the launcher's message that stops the job."""
    block_s: float | None
    """Time from the fault to the failure block."""
    ended_s: float
    """Time from the fault to the launcher's end."""
    cold_start_s: float | None
    """Time from the start of the first attempt's tasks to its first step."""
    next_step_s: float | None
    """Time from the detection to the next attempt's first step."""
    steps_lost: int | None
    """Steps between the last one of the first attempt and the one that the next attempt continued from."""
    resumed_from: int | None
    """The step of the checkpoint that the next attempt continued from."""
    should_resume_from: int | None
    """The step of the last good checkpoint, where the fault decides it."""
    restarts: int
    restarted: tuple[str, ...]
    """The tasks of the second attempt."""
    last_step: int
    """The highest that a task reported, in an event or, if events cannot be written, on the console."""
    orphans: tuple[str, ...]
    error: str = ""
    """Why the scenario could not be measured."""


def measure(live: Live, code: int | None, ended_at: float, orphans: tuple[str, ...], error: str) -> FaultResult:
    """What a launch that has ended shows."""
    fault_at = live.injected_at if live.injected_at is not None else live.started_at
    outcome = live.outcome()
    attempts: list[dict[str, Any]] = list(outcome.get("attempts", ()))
    lines = [(at, line) for at, line in live.lines if at >= fault_at]
    blocks = [(at, line) for at, line in lines if BLOCK.match(line)]
    restart = next(((at, line) for at, line in lines if RESTART.search(line)), None) or _restart(live)
    block_at = blocks[0][0] if blocks else None
    named_at = restart[0] if restart else block_at
    stops = [
        seen.at for seen in live.seen if seen.kind == "Stopped" and seen.values.get("reason") and seen.at >= fault_at
    ]
    detected_at = min([at for at in (named_at, *stops[:1]) if at is not None], default=None)
    next_step = live.first("step", attempt=1)
    resumed = live.first("resumed", attempt=1)
    sentence = str(outcome.get("reason", ""))
    if restart:
        sentence = restart[1]
    elif blocks:
        sentence = blocks[0][1]
    return FaultResult(
        code=code,
        culprit=attempts[0]["culprit"] if len(attempts) > 1 else outcome.get("culprit"),
        sentence=sentence.strip().removeprefix("tfdist: "),
        detected_s=_since(fault_at, detected_at),
        block_s=_since(fault_at, block_at),
        ended_s=ended_at - fault_at,
        cold_start_s=_cold_start(live),
        next_step_s=_since(detected_at, next_step.at) if next_step and detected_at else None,
        steps_lost=_steps_lost(live) if len(attempts) > 1 else None,
        resumed_from=resumed.step if resumed else None,
        should_resume_from=live.good_step,
        restarts=max(0, len(attempts) - 1),
        restarted=tuple(attempts[1]["tasks"]) if len(attempts) > 1 else (),
        last_step=max([live.last_step(), *map(int, STEP.findall(live.text))]),
        orphans=orphans,
        error=error,
    )


def _restart(live: Live) -> tuple[float, str] | None:
    """When the launcher decided on the first restart, and what it said, for a console that nobody reads."""
    return next(((seen.at, str(seen.values["reason"])) for seen in live.seen if seen.kind == "Restarting"), None)


def _steps_lost(live: Live) -> int:
    """`FaultResult.steps_lost`; 0 if the tasks that train were not restarted."""
    if live.first("step", attempt=1) is None:
        return 0
    resumed = live.first("resumed", attempt=1)
    last = max((seen.step for seen in live.seen if seen.event == "step" and seen.attempt == 0), default=0)
    return last - (resumed.step if resumed else 0)


def _since(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _cold_start(live: Live) -> float | None:
    started = next((seen.at for seen in live.seen if seen.kind == "Started"), None)
    first = live.first("step")
    return first.at - started if first is not None and started is not None else None


def named_right(scenario: Scenario, measured: FaultResult) -> bool:
    """Whether the culprit is the one that caused the fault, as far as that can be known."""
    return scenario.expected.culprit in (ANY, measured.culprit)


def deviations(scenario: Scenario, measured: FaultResult) -> list[str]:
    """What is not as expected; empty if all is."""
    expected = scenario.expected
    found = [measured.error] if measured.error else []
    if measured.code != expected.code:
        found.append(f"exit code {measured.code}, not {expected.code}")
    if not named_right(scenario, measured):
        found.append(f"named {measured.culprit}, not {expected.culprit}")
    if expected.says not in measured.sentence:
        found.append(f"the sentence lacks {expected.says!r}: {measured.sentence}")
    if expected.restarts is not None and measured.restarts != expected.restarts:
        found.append(f"{measured.restarts} restarts, not {expected.restarts}")
    if expected.restarted is not None and measured.restarted != expected.restarted:
        found.append(f"restarted {', '.join(measured.restarted)}, not {', '.join(expected.restarted)}")
    if measured.should_resume_from is not None and measured.resumed_from != measured.should_resume_from:
        found.append(f"resumed from step {measured.resumed_from}, not {measured.should_resume_from}")
    if expected.code == 0 and measured.last_step < scenario.steps:
        found.append(f"ended at step {measured.last_step} of {scenario.steps}")
    if expected.detected_s is not None and (measured.detected_s or 0.0) > expected.detected_s:
        found.append(f"detected after {measured.detected_s:.1f} s, not {expected.detected_s:g} s")
    return found + [f"left over: {orphan}" for orphan in measured.orphans]
