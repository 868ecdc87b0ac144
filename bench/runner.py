"""Runs a bench: starts arms in groups, releases one for a turn after the other, and saves each turn at its end."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from signal import SIGTERM

from tfdist.bench.arm_process import ArmStart, News, StartArm, start_arm
from tfdist.bench.disturbance import disturbed
from tfdist.bench.folder import BenchFile, BenchPaths, read_lines
from tfdist.bench.group import NO_TRACES, STOPPED_BY, Group, InterruptedBenchError, Traces, trace
from tfdist.bench.plan import PlannedRun, Spent, start_of, start_order
from tfdist.bench.progress import Progress
from tfdist.bench.reading import last_number
from tfdist.bench.suites.arms import Arms
from tfdist.bench.turns import Memory, plan_turn
from tfdist.bench.until import accuracy_of, has_learned
from tfdist.bench.xla_cache import temporary, with_cache
from tfdist.jobs.plan import Planned, plan
from tfdist.launch.agents.inbox import interruptions
from tfdist.launch.agents.template import Templates
from tfdist.launch.doctor.preflight import Links, slowest
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import append_line, dumps
from tfdist.launch.machine import Machines, combined
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, signal_name
from tfdist.models.record import Record, RecordStatus, TurnRecord
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class RunnerHooks:
    """What the runner needs from outside; tests pass fakes."""

    progress: Progress
    start_arm: StartArm = start_arm
    links: Links = field(default_factory=dict)
    """The measured links between neighbouring hosts."""
    policy: Policy = field(default_factory=Policy)
    """Timeouts besides that of the suite."""
    traces: Traces = NO_TRACES


@dataclass(kw_only=True)
class TurnRunner:
    """Groups of arms that take turns."""

    root: Path
    """The folder of the results."""
    hooks: RunnerHooks
    machines: Mapping[str, Machines]
    """The hosts of each arm."""
    news: "SimpleQueue[News]" = field(default_factory=SimpleQueue)
    memory: Memory = field(default_factory=Memory)
    group: Group | None = None
    """Whose processes run."""
    spent: Spent = field(default_factory=Spent)
    templates: Templates = field(default_factory=Templates)
    """Those of the incarnation."""

    def run(self, measure: Callable[[], None], fix: str) -> int | None:
        """Call `measure`; returns the number of the signal that interrupted it, or None. No process is left.

        Raises:
            TfdistError: a result could not be saved; `fix` says what to do.
        """
        with interruptions(self.news.put):
            try:
                measure()
            except InterruptedBenchError as interruption:
                number = counted(len(self.group.members) if self.group else 0, "arm")
                name = signal_name(interruption.signal)
                self.hooks.progress.note(f"{name}: stopping {number}; a second one kills them. Turns so far are kept")
                self.stop(interruption.signal)
                return interruption.signal
            except OSError as error:
                what = f"cannot write to {self.root} ({error.strerror or error})"
                raise TfdistError(f"{what}: {fix}", ExitCode.FAILED) from None
            finally:
                self.stop(SIGTERM, STOPPED_BY)
                self.templates.close()
        return None

    def renew_templates(self) -> None:
        """Let the tasks of the next incarnation share nothing with those before: not the layout of their memory."""
        self.templates.close()
        self.templates = Templates()

    def stop(self, signal: int, by: str = "") -> None:
        """Stop the processes that still run, and wait for their end."""
        if self.group is not None:
            self.group.stop(signal, by)

    def start_group(
        self,
        number: int,
        starts: Sequence[ArmStart],
        save: Callable[[Record, Path], None],
        partners: Mapping[str, str] = {},
    ) -> tuple[Group, list[str]]:
        """Start the arms that fit into memory together; returns them, and the names of the others."""
        hooks = self.hooks
        self.group = Group(number, self.news, hooks.start_arm, hooks.progress, save, self.memory)
        # as many processes start at the same time as there are cores
        slots = max(2, *(len(combined(self.machines[start.arm]).cores) for start in starts))
        left = [start.arm for start in self.group.start(starts, slots, partners)]
        if left:
            hooks.progress.note(f"not enough memory for all arms at once; later: {', '.join(left)}")
        return self.group, left

    def begin_turn(self, run: PlannedRun, starts_left: int, turns_left: int, turn_s: float) -> None:
        """Show that a turn begins, the first of those that are left."""
        left_s = self.spent.left_s(starts_left, turns_left, turn_s)
        self.hooks.progress.turn(run, self.spent.turns + 1, self.spent.turns + turns_left, left_s)

    def end_group(self) -> None:
        """Let all tasks of the group end."""
        if self.group is not None:
            self.group.end()
        self.group = None


Left = Callable[[Set[str]], tuple[BenchFile, Sequence[Sequence[PlannedRun]]]]
"""The bench, and the turns that are left by start, without those of these arms, which have failed."""


def in_order(bench: BenchFile, incarnations: Sequence[Sequence[PlannedRun]]) -> Left:
    """All of these turns, start after start."""
    left = (incarnations[number:] for number in range(len(incarnations) + 1))
    return lambda failed: (bench, next(left))


def run_bench(
    bench: BenchFile,
    arms: Arms,
    root: Path,
    hooks: RunnerHooks,
    left: Left,
    until: float | None = None,
) -> int | None:
    """Measure start after start until none is left. Every turn is saved when it ends, whatever happens later.

    Args:
        bench: the suite, and the command for the records.
        arms: of the suite, on these machines.
        root: the folder of the bench.
        hooks: from outside.
        left: asked before each start, which is the first one that it returns.
        until: monotonic time after which no round starts.

    Returns:
        The number of the signal that interrupted the bench, or None.

    Raises:
        TfdistError: a turn or a record could not be saved.
    """
    for arm in bench.suite.arms:  # a record of each refused one, so that reports show its reason
        if arm.name in arms.refused:
            command = {"command": redact_command(arm.command)} if arm.command else {}
            reason = arms.refused[arm.name]
            choices = {**arm.choices, **command}
            refused = Record(arm.name, 1, choices, RecordStatus.REFUSED, reason, ExitCode.USAGE, hosts=arm.hosts)
            append_line(BenchPaths(root).records, dumps(refused.to_json()))
    run = _BenchRun(root=root, hooks=hooks, machines=arms.machines, bench=bench, arms=arms, until=until, left=left)
    fix = f"free space, or make it writable, then continue with --resume {root}"
    with temporary(BenchPaths(root).xla_cache):
        return run.run(run.measure, fix)


@dataclass(kw_only=True)
class _BenchRun(TurnRunner):
    bench: BenchFile
    arms: Arms
    until: float | None
    left: Left
    failed: set[str] = field(default_factory=set)
    """Arms that ended too early; they are not started again."""
    pending: list[PlannedRun] = field(default_factory=list)
    """Turns that are still to come, those of arms that have failed included."""
    starts_left: int = 0
    """Number of incarnations that are still to be started."""
    learned: set[str] = field(default_factory=set)
    """Arms of this incarnation that need no more turns."""
    partners: Mapping[str, str] = field(default_factory=dict)
    """Arm -> the one for which room is kept, and beside which its disturbed turns are repeated; empty: none are."""

    def __post_init__(self) -> None:
        self.paths = BenchPaths(self.root)
        self.number = last_number(self.root)
        turns, _ = read_lines(BenchPaths(self.root).turns, TurnRecord.from_json)
        self.incarnation = max((turn.incarnation for turn in turns), default=0)
        self.order = max((turn.order for turn in turns), default=0)
        # the last group that measured each turn; trainings that are evaluated start from the beginning
        lasting = [turn for turn in turns if accuracy_of(turn.observed) is None]
        self.groups = {PlannedRun(turn.round, turn.arm): turn.group for turn in lasting}

    def measure(self) -> None:
        while (asked := self.left(self.failed))[1]:
            self.bench, incarnations = asked
            self.pending = [run for runs in incarnations for run in runs]
            self.starts_left = len(self.pending) if self.bench.suite.isolated else len(incarnations)
            if self.bench.suite.isolated:
                self._measure_isolated(incarnations[0])
            else:
                self.renew_templates()
                self._measure_incarnation(incarnations[0])

    def _measure_isolated(self, runs: Sequence[PlannedRun]) -> None:
        """Restart the processes of an arm for each turn."""
        for run in runs:
            if run.arm not in self.failed and not self._is_over():
                self.incarnation = run.round  # the arms of a round have equal numbers
                self._measure_group([run.arm], [run], number=1)

    def _measure_incarnation(self, runs: Sequence[PlannedRun]) -> None:
        """Measure these turns, in as many groups as memory requires, each with what its arms are compared with.

        Only if no arm fits beside the baseline, the next group is without it. The numbers of the groups continue those
        that have measured some of these turns before, which stay.
        """
        needed = {run.arm for run in runs} - self.failed
        waiting = [arm.name for arm in self.bench.suite.arms if arm.name in needed]
        baseline = self.arms.baseline(waiting)
        self.partners = self.bench.suite.partners(waiting, baseline)
        again: list[str] = []
        before = max((self.groups.get(run, 0) for run in runs), default=0)
        number = before
        while waiting and not self._is_over():
            number, self.incarnation = number + 1, self.incarnation + 1
            order = start_order([*again, *waiting], self.incarnation, self.bench.suite.seed)
            left = self._measure_group(order, runs, number, again, is_first=number == before + 1)
            shared = set(waiting) - {*left, baseline}
            waiting = [arm for arm in left if arm not in again]
            partners = dict.fromkeys(self.partners[arm] for arm in waiting if shared)
            again = [arm for arm in partners if arm not in {*waiting, *self.failed}]

    def _measure_group(
        self,
        arms: Sequence[str],
        runs: Sequence[PlannedRun],
        number: int,
        again: Sequence[str] = (),
        is_first: bool = True,
    ) -> list[str]:
        """Measure those of `runs` whose arms fit into memory together; returns the arms that do not.

        Args:
            arms: in the order in which they are started.
            runs: of the incarnation.
            number: of the group.
            again: arms that another group of the incarnation has measured.
            is_first: whether it is the incarnation's first group.
        """
        self.learned = set()
        started = time.monotonic()
        starts = [self._start_of(arm, start_of(runs[0].round, self.bench.ends)) for arm in arms]
        group, left = self.start_group(number, starts, self._save, self.partners)
        self.pending += [run for run in runs if run.arm in again and run.arm in group.members]
        group.warm_up(self.bench.suite.warmup_s)
        self.spent.add_start(time.monotonic() - started, again=not is_first)
        self.starts_left -= is_first
        self._repeat(group, runs, self._measure_rounds(group, runs))
        trace(group, self.hooks.traces)
        self.end_group()
        self.failed |= group.failed.keys()
        return [arm for arm in left if arm not in self.failed]

    def _start_of(self, arm: str, number: int) -> ArmStart:
        """What to start in the incarnation with this number, counted from 0: each one learns with a seed of its own."""
        self.number += 1
        run_dir = self.paths.run(self.number, arm, self.incarnation)
        policy = replace(self.hooks.policy, timeout_s=self.bench.suite.timeout_s)
        templates = None if self.bench.suite.isolated else self.templates
        version = self.arms.versions.get(arm)
        words = version.words if version else ""
        # not shared by arms: the two of an A/A pair are to differ as any two compilations do
        programs = self.paths.xla_cache / str(list(self.arms.plans).index(arm))
        planned = with_cache(self._planned(arm, number), programs)
        return ArmStart(arm, self.incarnation, planned, run_dir, policy, templates, words)

    def _planned(self, arm: str, number: int) -> Planned:
        """The job in the incarnation with this number; a training that is evaluated has a seed of its own."""
        planned, spec = self.arms.plans[arm], self.arms.specs[arm]
        if isinstance(spec, TrainingSpec) and spec.evaluate_turns:
            return plan(planned.request.choosing(seed=spec.seed + number), planned.machines)
        return planned

    def _measure_rounds(self, group: Group, runs: Sequence[PlannedRun]) -> list[TurnRecord]:
        done: list[TurnRecord] = []
        for _, of_round in groupby(runs, key=lambda run: run.round):
            if self._is_over():
                break
            for turn in self._measure_runs(group, [run for run in of_round if run.arm not in self.learned]):
                done.append(turn)
                if has_learned(turn.observed, self.bench.suite):  # its later turns are not needed
                    self.learned.add(turn.arm)
                    later = [run for run in runs if run.arm == turn.arm and run.round > turn.round]
                    self.pending = [run for run in self.pending if run not in later]
        return done

    def _repeat(self, group: Group, runs: Sequence[PlannedRun], done: Sequence[TurnRecord]) -> None:
        """Measure the disturbed turns of a round again, beside their partners; all if the baseline's was disturbed.

        At most as many turns as the group has arms; none without the partner, or if most turns were disturbed, as
        repeats would be, too. A turn that was evaluated is a part of a training, which cannot be repeated.
        """
        learning = {turn.arm for turn in done if accuracy_of(turn.observed) is not None}
        able = group.members.keys() - learning
        bad = {PlannedRun(turn.round, turn.arm) for turn in done if disturbed(turn)}
        pairs = [pair for pair in self.partners.items() if able.issuperset(pair)]
        repeats: list[PlannedRun] = []
        for number, of_round in groupby(runs, key=lambda run: run.round):
            arms = {run.arm for run in bad if run.round == number}
            both = {arm for pair in pairs if arms.intersection(pair) for arm in pair}
            if len(repeats) + len(both) <= len(group.members):
                repeats += [run for run in of_round if run.arm in both]
        if repeats and len(bad) <= len(done) / 2 and not self._is_over():
            turns = counted(sum(run in bad for run in repeats), "disturbed turn")
            self.hooks.progress.note(f"repeating {turns}, with the arms that they are compared with")
            self.pending += repeats
            list(self._measure_runs(group, repeats, repeated=True))

    def _measure_runs(self, group: Group, runs: Sequence[PlannedRun], repeated: bool = False) -> Iterator[TurnRecord]:
        suite = self.bench.suite
        turn_of = partial(plan_turn, suite.turn_s, window_s=suite.window_s)
        for run in runs:
            if run.arm not in group.members:
                continue
            started = time.monotonic()
            left = sum(each.arm not in self.failed | group.failed.keys() for each in self.pending)
            self.begin_turn(run, self.starts_left, left, suite.turn_s)
            self.pending.remove(run)
            self.order += 1
            turn = group.turn(run.arm, run.round, self.order, turn_of, repeated)
            if turn is not None:
                append_line(self.paths.turns, dumps(turn.to_json()))
                self.spent.add_turn(time.monotonic() - started)
                yield turn

    def _is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def _save(self, record: Record, run_dir: Path) -> None:
        machines = list(self.arms.machines[record.arm])
        order = int(run_dir.name.partition("-")[0])
        record = replace(record, order=order, command=self.bench.command, run_dir=str(run_dir.relative_to(self.root)))
        record = replace(record, hosts=len(machines), link=slowest(self.hooks.links, machines))
        append_line(self.paths.records, dumps(record.to_json()))
