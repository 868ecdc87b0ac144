"""Runs one scenario: launch, wait for the moment, cause the fault, measure."""

import signal
import time
import uuid
from pathlib import Path

from lab.faults.jobs import PARAMETER_SERVER, arguments
from lab.faults.leftovers import kill_left, left_over
from lab.faults.live import Live, launched
from lab.faults.measure import FaultResult, measure
from lab.faults.sandbox import sandbox
from lab.faults.scenario import MIDDLE_STEP, Moment, Scenario
from tests.integration.namespaces import Network

START_S = 120.0
"""Time limit for a moment to come."""
END_S = 150.0
"""Time limit for the run to end after the fault."""
ORDERED = {
    Moment.START: "start",
    Moment.MIDDLE: f"step-{MIDDLE_STEP}",
    Moment.SAVE: f"save-{MIDDLE_STEP}",
    Moment.END: "last",
}
"""The moments of orders, see `programs/sitecustomize.py`."""


def run(scenario: Scenario, folder: Path, net: Network | None) -> FaultResult:
    """Run a scenario in an empty folder."""
    with sandbox(folder, net, uuid.uuid4().hex) as box:
        prepared = scenario.fault.prepare(box, scenario) if scenario.fault.prepare else ()
        if obeys(scenario):
            box.order(scenario.task, ORDERED[scenario.moment], scenario.fault.by_itself or "sleep")
        error, code = "", None
        words = arguments(scenario, box, prepared)
        with launched(box, words, not scenario.fault.unread, scenario.job.caller) as live:
            try:
                cause(scenario, live)
                code = live.end(END_S)
            except Exception as problem:  # of this scenario; the others can still be measured
                error = f"{type(problem).__name__}: {problem}"
                code = live.process.poll()
            ended_at = time.monotonic()
        box.others.close()
        (folder / "console.txt").write_text(live.text)
        orphans = left_over(box, code == -signal.SIGKILL)
        kill_left(box)
        return measure(live, code, ended_at, tuple(orphans), error)


def obeys(scenario: Scenario) -> bool:
    """Whether the order is given before the launch: the task reaches the moment in its training loop."""
    trains = scenario.job is not PARAMETER_SERVER or scenario.task.startswith("chief")
    return trains and (bool(scenario.fault.by_itself) or scenario.moment in (Moment.SAVE, Moment.END))


def cause(scenario: Scenario, live: Live) -> None:
    """Wait for the scenario's moment, and cause the fault.

    Raises:
        TooLateError: the moment did not come.
    """
    fault, task = scenario.fault, scenario.task
    live.injected_at = live.started_at
    if obeys(scenario):
        live.wait(_has_obeyed, START_S, f"{task} {scenario.moment.value}")
    elif scenario.moment is Moment.IMPORT:
        live.wait(lambda live: bool(live.templates()), START_S, "a template")
    elif scenario.moment is Moment.START:
        live.wait(lambda live: _has_started(live, task), START_S, f"an event of {task}")
    elif scenario.moment is Moment.MIDDLE:
        live.wait(lambda live: live.last_step() >= MIDDLE_STEP, START_S, f"step {MIDDLE_STEP}")
    live.injected_at = time.monotonic()
    if fault.inject is not None:
        fault.inject(live, scenario)
    elif fault.by_itself and not obeys(scenario):
        live.box.order(task, "now", fault.by_itself)


def _has_obeyed(live: Live) -> bool:
    return any(seen.event == "fault" for seen in live.seen)


def _has_started(live: Live, task: str) -> bool:
    return any(seen.kind == "Event" and task in ("", seen.task) for seen in live.seen)
