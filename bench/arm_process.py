"""One incarnation of an arm: its job runs in a thread, and its tasks train a turn whenever they are released."""

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tfdist.bench.turns import HostReading, Parked
from tfdist.jobs.plan import Planned
from tfdist.launch.agent_program.folders import make_folder
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Inbox, Interrupted, Message, NextTurn, Note
from tfdist.launch.agents.messages import Event, Heartbeat, Inspected
from tfdist.launch.agents.template import Templates
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Turn
from tfdist.launch.job import Job
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.threads import NO_PROCESSES, is_limit, start_thread
from tfdist.models.record import Observed, Record, RecordStatus, Window, from_event
from tfdist.models.run import checked, hardware, ranks_of, run_training
from tfdist.models.strategy_check import StrategyFacts
from tfdist.strategies.choice import StrategyChoice

HINT = "; hint: "
"""Separator of the reason of a failure and what to do."""


@dataclass(frozen=True)
class ArmStart:
    """What to start."""

    arm: str
    incarnation: int
    planned: Planned
    run_dir: Path
    policy: Policy
    """Its time limit is that of the start and of each turn."""
    templates: Templates | None = None
    """Those of the incarnation, from which tasks on this machine are forked; None: they are executed."""
    words: str = ""
    """How a shell gets to this version of the user's program, for records; empty: it is in the current folder."""

    @property
    def spec(self) -> StrategyChoice:
        """A TrainingSpec or a CollectiveSpec, unless there is a command."""
        return self.planned.spec

    @property
    def command(self) -> tuple[str, ...]:
        """The user's own program; empty: the built-in training."""
        return self.planned.request.command

    @property
    def machines(self) -> Machines:
        """Where its tasks run."""
        return self.planned.machines


@dataclass(frozen=True)
class Progressed:
    """A message of the arm's job while it starts; a display counts seconds from heartbeat to heartbeat."""

    arm: str
    message: Message


@dataclass(frozen=True)
class Ended:
    """No process of the arm runs any more."""

    arm: str
    record: Record


News = Parked | Progressed | Ended | Interrupted
Post = Callable[[News], None]
"""Called in another thread."""


class ArmProcess(Protocol):
    """A started arm. It posts `Parked` each time all its tasks wait at the barrier, and `Ended` once, at the end."""

    def release(self, turn: Turn) -> None:
        """Let the parked tasks train a turn; one without windows ends them."""

    def interrupt(self, signal: int, by: str = "") -> None:
        """Stop the tasks, as this signal to `tfdist launch` would; a second call stops them at once."""


StartArm = Callable[[ArmStart, Post], ArmProcess]
"""Starts the processes of an arm, and returns at once. As `start_arm`."""


def start_arm(start: ArmStart, post: Post) -> ArmProcess:
    """Start the job of an arm in a thread of its own, with agents of its own."""
    arm = _ArmThread(start, post)
    start_thread(arm.run, f"arm {start.arm}")
    return arm


@dataclass
class _ArmThread:
    start: ArmStart
    post: Post
    inbox: Inbox = field(default_factory=Inbox)
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    turn: "TurnState" = field(init=False)
    starting: bool = True
    """Its tasks have not waited at the barrier yet."""

    def release(self, turn: Turn) -> None:
        trace = {"trace": turn.trace} if turn.trace else {}
        self.inbox.put(None, NextTurn({"windows": turn.windows, "steps": turn.steps, **trace}))

    def interrupt(self, signal: int, by: str = "") -> None:
        self.inbox.put(None, Interrupted(signal, by))

    def run(self) -> None:
        """Run the job to its end, and post how it ended, whatever happens."""
        try:
            record = self._train()
        except TfdistError as error:
            # above 128: 128 + the signal that tfdist received before any task ran
            status = RecordStatus.INTERRUPTED if error.exit_code > 128 else RecordStatus.FAILED
            record = self._record(status, str(error), error.exit_code)
        except Exception as error:
            reason = NO_PROCESSES
            if not is_limit(error):
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}"
            record = self._record(RecordStatus.FAILED, reason, ExitCode.FAILED)
        self.post(Ended(self.start.arm, replace(record, incarnation=self.start.incarnation)))

    def _train(self) -> Record:
        start = self.start
        make_folder(str(start.run_dir.parent))
        start.run_dir.mkdir(0o700)
        job = start.planned.job
        template = None if start.templates is None else start.templates.of(job)
        with (
            RunWriter(RunDir(start.run_dir)) as writer,
            connect(job.hosts, start.policy, inbox=self.inbox, template=template) as fleet,
        ):
            self.turn = TurnState(job, fleet)
            outcome, record = run_training(
                job, start.spec, writer, start.policy, {"arm": self._listen}, fleet=fleet, arm=start.arm, paced=True
            )
        return _with_command(replace(record, reason=HINT.join((record.reason, *outcome.hints))), start)

    def _listen(self, message: Message) -> None:
        try:
            self._follow(message)
        except TfdistError:
            raise
        except Exception as error:  # no turn would end any more, and the bench would wait for one
            raise TfdistError(f"{type(error).__name__}: {error}", ExitCode.FAILED) from error

    def _follow(self, message: Message) -> None:
        parked = self.turn.update(message)
        if parked is not None:
            self.starting = False
            seconds, windows, readings = parked
            start, turn = self.start, self.turn
            record = replace(  # of the incarnation while it runs
                self._record(RecordStatus.OK, "", ExitCode.SUCCESS),
                ranks=ranks_of(turn.records)[0],
                hardware=hardware(next(iter(turn.fleet.hellos.values()))),
                incarnation=start.incarnation,
            )
            record = checked(record, turn.facts, start.spec, turn.job)
            self.post(Parked(start.arm, seconds, windows, readings, record, dict(turn.observed)))
        elif self.starting and isinstance(message, Heartbeat | Event | Note):
            self.post(Progressed(self.start.arm, message))

    def _record(self, status: RecordStatus, reason: str, exit_code: int) -> Record:
        start = self.start
        started = self.started.isoformat(timespec="seconds")
        record = Record(start.arm, 0, start.spec.to_json(), status, reason, exit_code, started=started)
        return _with_command(record, start)


def _with_command(record: Record, start: ArmStart) -> Record:
    if not start.command:
        return record
    return replace(record, spec={**record.spec, "command": start.words + redact_command(start.command)})


@dataclass(frozen=True)
class _TurnEvent:
    windows: tuple[Window, ...]
    observed: Observed = field(default_factory=dict)


_Figures = tuple[float, Mapping[str, tuple[Window, ...]], tuple[HostReading, ...]]
"""Values of `Parked`: the seconds of a step, the windows and the hosts' readings."""


@dataclass
class TurnState:
    """Collects the messages of one turn after the other."""

    job: Job
    fleet: Fleet
    facts: StrategyFacts = field(default_factory=StrategyFacts)
    records: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """The last record of each task."""
    waiting: dict[str, float] = field(default_factory=dict)
    """The leading tasks at the barrier, with the seconds that a step takes."""
    windows: dict[str, tuple[Window, ...]] = field(default_factory=dict)
    observed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    before: dict[str, Inspected] = field(default_factory=dict)
    """The reading of each host just before the turn, by host."""
    after: dict[str, Inspected] = field(default_factory=dict)

    @cached_property
    def hosts(self) -> dict[str, str]:
        """The host of each task."""
        return {plan.task.name: plan.host.name for plan in self.job.plans}

    def update(self, message: Message) -> _Figures | None:
        """The figures of a turn that has ended with this message; None if none has."""
        self.facts.note(message)
        match message:
            case Event(task, event={"event": "record", "record": Mapping() as record}):
                self.records[task] = record
            case Event(task, event={"event": "turn"} as event):
                try:
                    turn = from_event(event, _TurnEvent)
                except ValueError as error:
                    what = f"{task} sent an incomplete turn ({error})"
                    raise TfdistError(f"{what}: see docs/protocol.md", ExitCode.FAILED) from None
                self.windows[task] = turn.windows
                if turn.observed:
                    self.observed[task] = turn.observed
            case Event(task, event={"event": "barrier"} as event):
                seconds = event.get("step_s")
                if not isinstance(seconds, int | float) or not math.isfinite(seconds):
                    what = f"{task} waits at the barrier with step_s {seconds!r}"
                    fix = "it must be the seconds that a step takes (docs/protocol.md)"
                    raise TfdistError(f"{what}: {fix}", ExitCode.FAILED)
                self.waiting[task] = float(seconds)
            case NextTurn():
                self.before, self.after = {}, {}
                self.waiting, self.windows, self.observed = {}, {}, {}
            case Inspected(states=states) if states:
                parked = set(self.waiting) >= set(self.job.leading)
                (self.after if parked else self.before)[self.hosts[min(states)]] = message
                if parked and len(self.after) == len(self.job.hosts):
                    readings = tuple(HostReading(self.before.get(host), after) for host, after in self.after.items())
                    step_s = max(self.waiting.values())
                    self.waiting, self.after = {}, {}  # a later reading ends no turn
                    return step_s, self.windows, readings
        return None
