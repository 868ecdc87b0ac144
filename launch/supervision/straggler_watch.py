"""Names a worker that holds the others up, while the job runs: one line when it changes, at most one a minute."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Event, Inspected, Listening, Reply, Started
from tfdist.launch.console.job_state import state_of
from tfdist.launch.diagnosis.straggler import Straggler, StragglerReport, cause, gpus_of, rates_between, report_of
from tfdist.launch.supervision.task_group import TaskGroup

NAME = "straggler watch"
"""Name in the line about its failure."""
JUDGE_S = 2.5
"""Seconds between two looks at the steps; while a worker is slow, its host counts what may slow it down as often."""
EVIDENCE_S = 5.0
"""Minimum seconds over which the counters are compared."""
NO_EVIDENCE_S = 15.0
"""Seconds without counters after which the worker is named all the same."""
LINE_S = 60.0
"""Minimum seconds between two lines, and maximum over which the counters are compared."""


@dataclass
class StragglerWatch:
    """Watches the steps of a job whose tasks wait for each other, or whose chief counts the updates of each worker."""

    tasks: TaskGroup
    reports: list[StragglerReport] = field(default_factory=list)
    """What was said so far, for the outcome."""
    printed_at: float = -math.inf
    """Monotonic time of the last line."""
    _reported: tuple[str, ...] = ("",)
    """Task, host and kind of cause of the last line; without a task if it does not hold any more."""
    _reported_since: float = 0.0
    _suspect: str = ""
    _suspected_at: float = 0.0
    _before: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Counters of each task, from which its rates are computed."""
    _rates: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Rates of each task since the suspicion, or lately."""
    _throttles: dict[str, str] = field(default_factory=dict)
    """Why the GPUs of each task were slowed down in its last window."""

    def __post_init__(self) -> None:
        self.steps = state_of(self.tasks.job).steps

    def start(self, now: float) -> None:
        """Watch from now on, if there are several workers."""
        if max(len(self.steps.tasks), len(self.steps.workers)) > 1:
            self.tasks.deadlines[self._judge] = now + JUDGE_S

    def follow(self, earlier: "StragglerWatch") -> None:
        """Continue what was said in the attempt before."""
        self.reports, self.printed_at = earlier.reports, earlier.printed_at
        self._reported, self._reported_since = earlier._reported, earlier._reported_since

    def note(self, message: Message, now: float) -> None:
        """Take note of a message about a present attempt."""
        self.tasks.isolate(NAME, lambda: self._note(message, now))

    def _note(self, message: Message, now: float) -> None:
        match message:
            case Started() | Listening():  # again: a worker that starts makes no updates, and is not slow
                self.steps.forget()
            case Event(task, event={"event": "step"} as event):
                self.steps.note(task, event, now)
                reasons = (gpu.get("throttle") for gpu in gpus_of(event))
                self._throttles[task] = next((each for each in reasons if isinstance(each, str) and each), "")

    def _judge(self, now: float) -> float | None:
        if self.tasks.stopped:
            return None
        self.tasks.isolate(NAME, lambda: self._look(now))
        return now + JUDGE_S

    def _look(self, now: float) -> None:
        known = self.steps.known(now)
        slow = self.steps.slow(self._reported[0]) if known else None
        if slow is None or slow.task != self._suspect:
            self._suspect = "" if slow is None else slow.task
            self._suspected_at = now
            self._before, self._rates = {}, {}
        if slow is not None:
            self.tasks.count(lambda reply: self.tasks.isolate(NAME, lambda: self._keep(reply)))
            self._name(slow, now)
        elif known and self._reported[0] and now - self.printed_at >= LINE_S:
            self.tasks.note(f"{self._reported[0]} no longer holds the others up")
            self._reported = ("",)
            self.printed_at = now

    def _keep(self, reply: Reply) -> None:
        if isinstance(reply, Inspected):
            for task, values in reply.counters.items():
                before = self._before.setdefault(task, values)
                seconds = values.get("time_s", 0.0) - before.get("time_s", 0.0)
                if seconds >= EVIDENCE_S:
                    self._rates[task] = rates_between(before, values)
                if seconds > LINE_S:
                    self._before[task] = values

    def _name(self, slow: Straggler, now: float) -> None:
        """Say what holds the others up and why, unless that was said, and keep it for the outcome."""
        if not self._rates.keys() >= self.tasks.running and now - self._suspected_at < NO_EVIDENCE_S:
            return
        own = self._throttles.get(slow.task, "")
        others = {reason for task, reason in self._throttles.items() if task != slow.task}
        kind, text = cause(slow, self._rates, "" if own in (*others, "unknown") else own)
        host = self.tasks.channels[slow.task].host.name
        time = event_time()
        is_new = (slow.task, host, kind) != self._reported
        if is_new and (now - self.printed_at < LINE_S or not self.steps.still(slow)):
            return
        if is_new:
            self._reported = (slow.task, host, kind)
            self._reported_since = self._suspected_at
            self.printed_at = now
        current = report_of(slow, host, text, time - (now - self._reported_since), time)
        if is_new:
            self.reports.append(current)
            self.tasks.note(current.sentence)
        else:
            self.reports[-1] = current
