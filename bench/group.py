"""Arms whose processes run at the same time: started, warmed up, released for one turn after the other, ended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIGTERM

from tfdist.bench.arm_process import HINT, ArmProcess, ArmStart, Ended, News, Progressed, StartArm
from tfdist.bench.folder import slug
from tfdist.bench.progress import Progress
from tfdist.bench.reading import of_turn
from tfdist.bench.suites.arms import Arms
from tfdist.bench.turns import END, Memory, Parked, plan_warmup
from tfdist.jobs.plan import why_not_traced
from tfdist.jobs.tasks import task_count
from tfdist.launch.agents.inbox import Interrupted, Message, Note
from tfdist.launch.agents.messages import Event
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Turn
from tfdist.models.record import Record, RecordStatus, TurnRecord
from tfdist.models.run import NO_STEP
from tfdist.models.strategy_check import StrategyCheck
from tfdist.models.throughput import throughput
from tfdist.strategies.catalog import CATALOG

STEPS = 5
"""Steps of a trace: each has thousands of operations."""
END_S = 20.0
"""Time for a program to end after its last turn; then it is stopped."""
STOPPED_BY = "tfdist bench"
FAILURES = (RecordStatus.FAILED, RecordStatus.TIMEOUT)
"""Statuses of arms that make a bench fail; a refused arm does not."""


class InterruptedBenchError(Exception):
    """The bench received a signal."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


@dataclass
class _Member:
    """An arm of the group whose processes run."""

    start: ArmStart
    process: ArmProcess
    parked: Parked | None = None
    """When it was parked last; None: it starts."""
    ready_servers: set[str] = field(default_factory=set)
    """Its tasks that only serve, and wait for the others."""
    ending: bool = False
    traced: bool = False
    """All its turns are measured, and it runs under the profiler."""

    @property
    def busy(self) -> int:
        """Processes that use a core while the arm starts."""
        return task_count(self.start.spec) - len(self.ready_servers)

    def note(self, message: Message) -> None:
        """Note a message of a task while the arm starts."""
        leader = CATALOG[self.start.spec.strategy].leader
        if isinstance(message, Event) and message.event.get("event") == "ready" and leader is not None:
            self.ready_servers |= {message.task} - {f"{leader}-0"}


@dataclass
class Group:
    """The processes of several arms. One thread calls it; the arms' threads and signals put into `news`."""

    number: int
    news: "SimpleQueue[News]"
    start_arm: StartArm
    progress: Progress
    save: Callable[[Record, Path], None]
    """Saves the record of an arm with its folder, again whenever it changes."""
    memory: Memory
    members: dict[str, _Member] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Arms that ended too early, with the reason."""
    stopping: bool = False
    """All tasks are being stopped."""

    def start(self, starts: Sequence[ArmStart], slots: int, partners: Mapping[str, str]) -> list[ArmStart]:
        """Start arms until all tasks wait at the barrier; returns those that do not fit into memory.

        Args:
            starts: in the order in which they are started; one that fits is not held up by one that does not.
            slots: one more arm is started while fewer processes than this are busy starting.
            partners: arm -> the one for which room is kept while it waits.
        """
        waiting = list(starts)
        while waiting or self._starting():
            while (fitting := next(self._fitting(waiting, slots, partners), None)) is not None:
                waiting.remove(fitting)
                self.progress.starting(fitting.arm, fitting.incarnation)
                self.members[fitting.arm] = _Member(fitting, self.start_arm(fitting, self.news.put))
            if not self._starting():
                break  # none of the others fits
            self._take_news()
        return waiting

    def _starting(self) -> list[_Member]:
        return [member for member in self.members.values() if member.parked is None]

    def _fitting(self, waiting: Sequence[ArmStart], slots: int, partners: Mapping[str, str]) -> Iterator[ArmStart]:
        """Those of `waiting` that can start now, in order."""
        starting = self._starting()
        if not self.members:  # the smallest shows first how large a process is
            yield from waiting if self.memory.available else sorted(waiting, key=lambda start: task_count(start.spec))
        elif sum(member.busy for member in starting) < slots:
            reserved = [start for start in waiting if start.arm in map(partners.get, self.members)]
            # until an arm has shown how large a process is, nothing takes the room of a partner, nor overtakes
            unknown = not self.memory.available and len(starting) == len(self.members)
            for start in waiting[:1] if unknown else waiting:
                others = [each for each in reserved if each is not start]
                processes = [task_count(each.spec) for each in (*(member.start for member in starting), *others)]
                fits = self.memory.fits(task_count(start.spec), processes, len(start.machines))
                if fits and not (unknown and others):
                    yield start

    def warm_up(self, seconds: float) -> None:
        """Let one arm after the other train for this time, so that its first turn is like the others."""
        for arm in list(self.members):
            self.release(arm, partial(plan_warmup, seconds))

    def turn(
        self, arm: str, round: int, order: int, turn_of: Callable[[float], Turn], repeated: bool = False
    ) -> TurnRecord | None:
        """Release an arm for a turn, as `release`, and return its measurements; None if it has ended."""
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        parked = self.release(arm, turn_of)
        if parked is None:
            return None
        incarnation, group = self.members[arm].start.incarnation, self.number
        turn = TurnRecord(
            arm, round, incarnation, group, order, started, parked.windows, parked.hosts, repeated, parked.observed
        )
        try:
            rate = throughput(of_turn(parked.record, turn))
        except (ValueError, KeyError) as error:
            self.failed[arm] = f"its tasks sent no complete windows for a turn ({error})"
            self.members[arm].process.interrupt(SIGTERM, STOPPED_BY)
            while arm in self.members:
                self._take_news()
            return None
        self.progress.done(turn, rate)
        return turn

    def release(self, arm: str, turn_of: Callable[[float], Turn]) -> Parked | None:
        """Release the tasks of an arm; returns when they are parked again, or None if they have ended.

        Args:
            arm: its name.
            turn_of: the turn, from the seconds that a step takes.
        """
        member = self.members.get(arm)
        if member is None or member.parked is None:
            return None
        before = member.parked
        member.process.release(turn_of(before.step_s))
        while self.members.get(arm) is member and member.parked is before:
            self._take_news()
        return member.parked if member.parked is not before else None

    def trace(self, arm: str, turn: Turn) -> None:
        """Release an arm for a turn under the profiler. If that ends it, the turns before count all the same."""
        if (member := self.members.get(arm)) is not None:
            member.traced = True
            self.release(arm, lambda _: turn)
            member.traced = False

    def end(self) -> None:
        """Let all tasks end; stop those that do not."""
        for member in self.members.values():
            member.ending = True
            member.process.release(END)
        until = time.monotonic() + END_S
        while self.members and time.monotonic() < until:
            self._take_news(until)
        interruption = self.stop(SIGTERM, STOPPED_BY)
        if interruption is not None:
            raise interruption

    def stop(self, signal: int, by: str = "") -> InterruptedBenchError | None:
        """Stop all tasks, and return when none runs any more. A signal meanwhile is passed on to them and returned."""
        interruption, self.stopping = None, True
        for member in self.members.values():
            member.process.interrupt(signal, by)
        while self.members:
            try:
                self._take_news()
            except InterruptedBenchError as again:
                interruption = again
                for member in self.members.values():
                    member.process.interrupt(again.signal)
            except OSError:  # its record cannot be saved; the others have to be stopped all the same
                continue
        return interruption

    def _take_news(self, until: float | None = None) -> None:
        """Handle the next message.

        Raises:
            InterruptedBenchError: a signal was received; the tasks still run.
        """
        try:
            news = self.news.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except Empty:
            return
        match news:
            case Interrupted(signal):
                raise InterruptedBenchError(signal)
            case Progressed(arm, message):
                self.progress.listen(arm, message)
                if isinstance(message, Note) and message.host == "tfdist":  # those about hosts would come with each arm
                    self.progress.note(f"{arm}: {message.text}")
                if arm in self.members:
                    self.members[arm].note(message)
            case Parked(arm) if arm in self.members:
                member = self.members[arm]
                self.memory.update(news)
                if member.parked is None:
                    self.progress.parked(arm)
                    if news.record.strategy_check is StrategyCheck.REFUTED:
                        self.progress.note(f"{arm} is not ranked: {news.record.strategy_note}")
                    self.save(news.record, member.start.run_dir)
                member.parked = news
            case Ended(arm, record) if arm in self.members:
                self._end(self.members.pop(arm), record)

    def _end(self, member: _Member, record: Record) -> None:
        """Save how an arm has ended. One that we ended has succeeded; one that ended before has not."""
        arm = member.start.arm
        if member.ending and record.ranks and record.status is not RecordStatus.OK:
            if record.status is RecordStatus.FAILED:
                self.progress.note(f"{arm} is measured; then its program failed: {record.reason}")
            record = replace(record, status=RecordStatus.OK, reason="", exit_code=0)
        elif member.traced and record.status in FAILURES:
            self.progress.note(f"{arm}: no trace: {record.reason} (logs: {member.start.run_dir})")
            record = replace(record, status=RecordStatus.OK, reason="", exit_code=0)
        elif arm in self.failed:
            record = replace(record, status=RecordStatus.FAILED, reason=self.failed[arm], exit_code=1)
        elif record.status == RecordStatus.OK and not member.ending:
            reason = "it ended before its last turn: let the program train longer"
            record = replace(record, status=RecordStatus.FAILED, reason=reason, exit_code=1)
        elif record.status == RecordStatus.TIMEOUT:
            what = "its start" if member.parked is None else "a turn"
            hint = "".join(record.reason.partition(HINT)[1:])
            reason = f"{what} took longer than {member.start.policy.timeout_s:g} s, the timeout of the suite{hint}"
            record = replace(record, reason=reason)
        self.save(record, member.start.run_dir)
        hopeless = record.status == RecordStatus.TIMEOUT or record.reason.endswith(NO_STEP) or self.failed
        if hopeless and member.start.command and not self.memory.available and not self.stopping:
            ending = f"no arm has measured a step yet, so the bench stops (logs: {member.start.run_dir})"
            raise TfdistError(f"{arm}: {record.reason}; {ending}", ExitCode.FAILED)
        stopped = record.status == RecordStatus.INTERRUPTED and not self.stopping  # with 'tfdist stop'
        if stopped or record.status in FAILURES:
            self.failed[arm] = record.reason
            self.progress.note(f"{arm}: {record.status}: {record.reason} (logs: {member.start.run_dir})")


@dataclass(frozen=True)
class Traces:
    """The folder of each arm's traces, with a folder below it for each task; and why an arm has none."""

    folders: Mapping[str, Path]
    notes: tuple[str, ...] = ()


NO_TRACES = Traces({})


def plan_traces(root: Path, arms: Arms) -> Traces:
    """The traces of a bench in `root`.

    Raises:
        TfdistError: no arm can be traced.
    """
    found = {arm: why_not_traced(own=arm in arms.commands, hosts=arms.machines[arm]) for arm in arms.specs}
    reasons = {arm: reason for arm, reason in found.items() if reason}
    if len(reasons) == len(arms.specs):
        reason = next(iter(reasons.values()), "no arm can run here")
        raise TfdistError(f"--trace: {reason}; omit --trace")
    traces = root.absolute() / "traces"
    numbered = enumerate(arms.specs, start=1)  # names may differ only in what a folder cannot have
    folders = {arm: traces / f"{number:02d}-{slug(arm)}" for number, arm in numbered if arm not in reasons}
    return Traces(folders, tuple(f"{arm}: no trace: {reason}" for arm, reason in reasons.items()))


def trace(group: Group, traces: Traces) -> None:
    """Let each arm of the group train a few steps under tf.profiler, unless it has a trace."""
    for arm in list(group.members):
        folder = traces.folders.get(arm)
        if folder is None or folder.exists():
            continue
        group.progress.note(f"tracing {arm}")
        group.trace(arm, Turn(1, STEPS, str(folder)))
        if arm in group.members and not any(folder.rglob("*.xplane.pb")):
            group.progress.note(f"{arm}: tf.profiler wrote no trace; see the arm's logs in runs/")
