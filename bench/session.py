"""One `tfdist bench` from its options to its exit code: a new one or one that is resumed, checked first, then run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from math import ceil, log1p
from pathlib import Path

from tfdist.bench.against import MOST_STARTS, PRECISION, check_base
from tfdist.bench.collectives.results import Sweep, holds_collectives, read_collectives
from tfdist.bench.compare.gate import LONGEST, NOISY, gate_needs
from tfdist.bench.durations import costs_on
from tfdist.bench.factors import screen
from tfdist.bench.folder import BenchFile, BenchPaths, check_new, check_writable, full_plan, read_bench, slug
from tfdist.bench.group import NO_TRACES, Traces, plan_traces
from tfdist.bench.options import BenchOptions, changed_suite, requested_suite
from tfdist.bench.plan import (
    BY_TABLE,
    Costs,
    PlannedRun,
    beside,
    fitting_rounds,
    fitting_starts,
    incarnations,
    seconds_left,
)
from tfdist.bench.reading import read_folder
from tfdist.bench.same_arms import floor_on, machine_name
from tfdist.bench.statistics import ERROR, Pair
from tfdist.bench.suites.arms import Arms, resolve_arms
from tfdist.bench.suites.command import check_complete, check_measures
from tfdist.bench.suites.explain import explained
from tfdist.bench.suites.suite import QUICK, Suite, adjust, load_suite
from tfdist.bench.until import accuracy_of, completed, done_runs
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import program_of
from tfdist.launch.json_files import replace_file
from tfdist.launch.machine import Machines, combined
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.text import counted, duration, percent
from tfdist.models.record import Record


def read_resumable(root: Path, hosts: tuple[str, ...]) -> BenchFile:
    """The bench in `root`, which can continue on these hosts.

    Raises:
        TfdistError: it is no bench, or ran on other hosts.
    """
    bench = read_bench(root)
    if bench is None:
        raise TfdistError(f"--resume {root}: no bench.json in it; give the folder of an interrupted bench")
    if hosts != bench.hosts:
        fix = "omit --hosts" if bench.hosts == (LOCAL.name,) else f"resume with --hosts {','.join(bench.hosts)}"
        what = f"it was started on {', '.join(bench.hosts)} but would resume on {', '.join(hosts)}"
        raise TfdistError(f"--resume {root}: {what}: {fix}")
    return bench


def resumed_bench(bench: BenchFile, options: BenchOptions, root: Path, done: Collection[PlannedRun]) -> BenchFile:
    """The bench with the number of rounds that --rounds gives.

    Raises:
        TfdistError: fewer rounds than were measured, or options that change what is measured.
    """
    suite = _same_suite(bench.suite, options, root)
    total = suite.rounds if options.rounds is None else options.rounds
    measured = max((run.round for run in done), default=0)
    if total < max(1, measured):
        raise TfdistError(f"--rounds {total}: {measured} rounds of {root} are measured; give at least that many")
    return replace(bench, suite=suite).with_rounds(total)


def _same_suite(old: Suite, options: BenchOptions, root: Path) -> Suite:
    """The suite with its commands as the options give them; it must otherwise be the one that was measured."""
    suite = old if options.suite is None else load_suite(options.suite)
    # the number of rounds may change, and with it that of incarnations
    incarnations = options.incarnations or old.incarnations
    suite, _ = changed_suite(replace(suite, rounds=old.rounds), replace(options, rounds=None, incarnations=None))
    suite = replace(suite, incarnations=incarnations)
    before = old.to_json()
    now = suite.to_json()
    differing = [key for key in before if before[key] != now[key] and key != "description"]
    if differing:
        fix = "give --resume alone, or start a new bench with --out"
        raise TfdistError(f"--resume {root}: it was started with another {', '.join(differing)}; {fix}")
    check_complete(suite, f"--resume {root}")
    return suite


@dataclass(frozen=True)
class Session:
    """A bench that is ready to run."""

    root: Path
    bench: BenchFile
    arms: Arms
    before: tuple[Record, ...] = ()
    """The records of a resumed bench."""
    copy: ProgramCopy | None = None
    """The folder in whose copy programs of the user run, of a new bench: it is kept in the bench's folder."""
    notes: tuple[str, ...] = ()
    """What the options change in the suite."""
    budget_s: float | None = None
    """No turn begins later than this after the start; None: no limit."""
    collectives: Path | None = None
    """A folder of `tfdist collectives`, for the ceiling of the network."""
    traces: Traces = NO_TRACES
    costs: Costs = BY_TABLE
    """Those of this machine."""
    quick_s: float | None = None
    """Wall seconds of the suite QUICK here; None: the user chose a suite or a length, or it would compare nothing."""

    def keep_copy(self) -> None:
        """Write the copy into the folder, for `--resume`.

        Raises:
            OSError: that failed.
        """
        if self.copy is not None:
            replace_file(BenchPaths(self.root).copy, self.copy.archive)

    @property
    def sweep(self) -> Sweep | None:
        """The measurements in `collectives`, else those that a resumed bench has kept."""
        root = self.collectives or BenchPaths(self.root).collectives
        return read_collectives(root) if holds_collectives(root) else None

    @cached_property
    def done(self) -> set[PlannedRun]:
        """The runs that were measured before, or that are not needed."""
        return done_runs(self.bench, self.before)

    @cached_property
    def incarnations(self) -> tuple[tuple[PlannedRun, ...], ...]:
        """The runs to measure, by the start of processes that they share."""
        return tuple(incarnations(self.to_run, self.bench.ends))

    @property
    def planned(self) -> tuple[PlannedRun, ...]:
        """All runs, those that were measured before included, without refused arms."""
        return tuple(run for run in self.bench.plan if run.arm not in self.arms.refused)

    @cached_property
    def to_run(self) -> tuple[PlannedRun, ...]:
        """Turns to measure, in order: missing ones, and again those that they are compared with, if turns alternate."""
        left = tuple(run for run in self.planned if run not in self.done)
        learns = any(one.arm == self.baseline and accuracy_of(one.observed) is not None for one in self.before)
        partners = self.bench.suite.partners(self.arms.specs, self.baseline)
        return left if learns or self.bench.suite.isolated else beside(left, self.bench.plan, partners)

    @property
    def unit(self) -> str:
        """Unit of the throughput; examples/s for programs of the user."""
        return "examples/s" if self.arms.commands else "images/s"

    @property
    def baseline(self) -> str:
        """The arm beside which all others are measured."""
        return self.arms.baseline(self.arms.specs)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The arms that can run, each with its earlier version or the baseline."""
        pairs = self.bench.suite.version_pairs or tuple((arm, self.baseline) for arm in self.arms.specs)
        return tuple(pair for pair in pairs if pair[0] != pair[1] and self.arms.specs.keys() >= {*pair})

    @property
    def estimate_s(self) -> float:
        """Wall seconds that `to_run` will take, as `plan.seconds_left`."""
        return seconds_left(self.incarnations, self.arms.specs, self.bench.suite, self.costs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works but may surprise."""
        if self.budget_s is None or not self.incarnations:
            return self.arms.warnings
        first = tuple(run for run in self.to_run if run.round == self.to_run[0].round)
        first_s = seconds_left([first], self.arms.specs, self.bench.suite, self.costs)
        if first_s <= self.budget_s:
            return self.arms.warnings
        short = f"--budget {duration(self.budget_s)}: the first round takes about {duration(first_s)}"
        return (*self.arms.warnings, f"{short}; arms without a turn have no figure")

    def count_left(self) -> int:
        """The number of planned runs that are not measured in the folder now."""
        folder = read_folder(self.root, "")
        bench = folder.bench or self.bench  # with the starts that were added
        done = done_runs(bench, folder.records)
        return sum(run not in done for run in bench.plan if run.arm not in self.arms.refused)


def prepare(options: BenchOptions, machines: Machines) -> Session:
    """Check everything that can be checked before a start; writes nothing and starts no process.

    Raises:
        TfdistError: an error in the suite, its arms or the folder.
    """
    if options.program:
        program_of(options.program, {}, machines, options.copy)
    if options.collectives is not None:
        read_collectives(options.collectives)
    session = _new(options, machines) if options.resume is None else _resumed(options, options.resume, machines)
    if options.precision is not None:
        _check_precision(options.precision, session)
    bench = _with_stop(session, options)
    if bench.precision is not None:
        end = "" if options.budget_s is None else f" or {duration(options.budget_s)} are over"
        sure = f"until each ratio is known to within {100 * bench.precision:.2g}%{end}"
        note = f"more starts follow, up to {bench.most_starts} of each arm, {sure}"
        session = replace(session, notes=(*session.notes, note))
    if options.equal is not None and not _adapts(bench.suite):
        what = f"--equal {percent(options.equal)}: every arm of this bench is measured to the end"
        raise TfdistError(f"{what}; omit it, or --all, --isolated or --against")
    if _adapts(bench.suite) and options.resume is None:
        bench = replace(bench, looks=bench.suite.incarnations)
        bench, omitted = _screened(bench, session.arms)
        session = replace(session, notes=(*session.notes, *omitted))
    session = replace(session, bench=bench)
    if options.trace:
        traces = plan_traces(session.root, session.arms)
        session = replace(session, traces=traces, notes=(*session.notes, *traces.notes))
    return session


def _with_stop(session: Session, options: BenchOptions) -> BenchFile:
    """The bench with what ends it: for versions as many starts as their noise asks for, unless options say how many.

    A resumed bench keeps the limits that it was started with.
    """
    bench, suite = session.bench, session.bench.suite
    if options.precision is not None:
        return replace(bench, precision=options.precision, most_starts=BenchFile.most_starts)
    if options.rounds is not None or options.incarnations is not None:
        return replace(bench, precision=None)
    few = suite.isolated or suite.incarnations < Suite.incarnations
    if options.resume is not None or not suite.version_pairs or few:
        return bench
    if bench.fail_slower is not None:
        starts, precision = _needed(suite, session.arms, bench.fail_slower, bench.floor)
        return replace(bench, precision=precision, most_starts=NOISY * starts)
    return replace(bench, precision=None if options.budget_s else PRECISION, most_starts=MOST_STARTS)


def _adapts(suite: Suite) -> bool:
    """Whether arms are dropped between its starts, whose figures are compared by turns of equal length."""
    return not (suite.all or suite.isolated or suite.version_pairs or suite.until_accuracy)


def _screened(bench: BenchFile, arms: Arms) -> tuple[BenchFile, tuple[str, ...]]:
    """The bench without the combinations of a matrix that others predict, and a note about them."""
    able = [arm for arm in bench.suite.arms if arm.name in arms.specs]
    later = {arm.name for arm in able}.difference(screen(able)) if bench.looks > 1 else set()
    if not later:
        return bench, ()
    what = f"{len(later)} of {counted(len(able), 'arm')} are combinations that the others predict"
    return bench.without(later, 0), (f"{what}: only those that may be the fastest, and a few as a check, are measured",)


def _new(options: BenchOptions, machines: Machines) -> Session:
    suite, notes = requested_suite(options, default_suite(machines), len(machines))
    for command in dict.fromkeys(arm.command for arm in suite.arms if arm.command):
        check_measures(program_of(command, {}, machines, options.copy))
    if options.copy is not None:
        if not any(arm.command for arm in suite.arms):
            raise TfdistError(f"--copy: suite {suite.name} runs the built-in training, which needs no copy; omit it")
        notes += (str(options.copy),)
    check_base(suite, machines, options.copy)
    _check_gate(suite, options.fail_slower)
    now = datetime.now(timezone.utc)
    root = options.out or Path("bench_results") / f"{now:%Y%m%dT%H%M%SZ}-{slug(suite.name)}"
    check_new(root, f"choose a new folder, or continue its bench with --resume {root}")
    arms = resolve_arms(suite.arms, machines, suite.preset, suite.baseline, options.copy)
    if suite.explain:
        suite, added = explained(suite, arms.specs)
        if added:
            notes += (f"added to explain lost time: {', '.join(added)}",)
        arms = resolve_arms(suite.arms, machines, suite.preset, suite.baseline, options.copy)
    name = machine_name(machines)
    started = now.isoformat(timespec="seconds")
    floor = floor_on(name)
    costs = costs_on(name, suite)
    suite = _within(_with_gate(suite, arms, options, floor), arms, options, costs)
    notes += _gate_notes(suite, arms, options.fail_slower, floor)
    plan = full_plan(suite)
    hosts = tuple(host.name for host in machines)
    bench = BenchFile(suite, options.command, started, plan, hosts, floor=floor, machine=name)
    bench = replace(bench, fail_slower=options.fail_slower, copy=None if options.copy is None else options.copy.origin)
    session = Session(root, bench, arms, copy=options.copy, notes=notes, budget_s=options.budget_s, costs=costs)
    session = replace(session, collectives=options.collectives, quick_s=_quick_s(options, machines))
    return session


def _quick_s(options: BenchOptions, machines: Machines) -> float | None:
    """`Session.quick_s`."""
    if not options.is_default or len(machines) > 1:  # the suite of several hosts answers another question
        return None
    quick = _new(replace(options, suite=QUICK), machines)
    return quick.estimate_s if quick.pairs else None


def _check_gate(suite: Suite, bound: float | None) -> None:
    if bound == 0:
        raise TfdistError("--fail-slower 0: must be above 0; a gate needs room for the noise, as 5%")
    if bound is not None and suite.against is None:
        fix = "name the version to compare with, too, as --against HEAD~1"
        raise TfdistError(f"--fail-slower {percent(bound)}: {fix}")


def _with_gate(suite: Suite, arms: Arms, options: BenchOptions, floor: float) -> Suite:
    """The suite with the starts that --fail-slower needs, unless options say how many."""
    chosen = options.rounds is not None or options.incarnations is not None or suite.isolated
    if options.fail_slower is None or chosen:
        return suite
    starts, _ = _needed(suite, arms, options.fail_slower, floor)
    if starts > LONGEST:
        what = f"{LONGEST} starts would be too few to find a slow-down of {percent(2 * options.fail_slower)}"
        raise TfdistError(f"--fail-slower {percent(options.fail_slower)}: {what}; give more, as 5%, or --incarnations")
    return adjust(suite, {"rounds": starts * ceil(suite.rounds / suite.incarnations), "incarnations": starts})


def _needed(suite: Suite, arms: Arms, bound: float, floor: float) -> tuple[int, float]:
    return gate_needs(max(_pairs(suite, arms), 1), bound, ceil(suite.rounds / suite.incarnations), floor)


def _gate_notes(suite: Suite, arms: Arms, bound: float | None, floor: float) -> tuple[str, ...]:
    if bound is None or not _pairs(suite, arms):
        return ()
    needed, _ = _needed(suite, arms, bound, floor)
    enough = "to find" if suite.incarnations >= needed else f"but at least {needed} are needed to find"
    starts = f"--fail-slower {percent(bound)}: {counted(suite.incarnations, 'start')} of each arm"
    return (f"{starts}, {enough} a slow-down of {percent(2 * bound)} in 9 of 10 benches",)


def _pairs(suite: Suite, arms: Arms) -> int:
    """The number of arms that can run in two versions."""
    return sum(arm in arms.specs for arm, _ in suite.version_pairs)


def _within(suite: Suite, arms: Arms, options: BenchOptions, costs: Costs) -> Suite:
    """The suite with as many starts and rounds as fit into --budget, unless options say how many."""
    if options.budget_s is None or options.rounds is not None:
        return suite
    if options.incarnations is None and not suite.isolated:
        starts = fitting_starts(suite, arms.specs, options.budget_s, costs)
        limited = options.fail_slower is not None or options.precision is not None
        if limited and fitting_rounds(suite, arms.specs, options.budget_s, costs) >= suite.rounds:  # more come later
            return suite
        suite = replace(suite, incarnations=starts)
    number = None if suite.isolated else suite.incarnations
    rounds = fitting_rounds(suite, arms.specs, options.budget_s, costs)
    return adjust(suite, {"rounds": max(rounds, number or 1), "incarnations": number})


def default_suite(machines: Machines) -> str:
    """The name of the built-in suite for these machines."""
    if len(machines) > 1:
        return "hosts"
    return "gpu" if combined(machines).gpus else "cpu"


def _resumed(options: BenchOptions, root: Path, machines: Machines) -> Session:
    if options.out is not None and options.out.resolve() != root.resolve():
        raise TfdistError(f"--out {options.out} and --resume {root}: a resumed bench stays in its folder; omit --out")
    if options.sweep is not None:
        raise TfdistError(f"--resume {root}: it continues with the arms that it has; omit --strategy")
    bench = read_resumable(root, tuple(host.name for host in machines))
    check_writable(root, "--resume")
    copy = _kept_copy(bench, options.copy, root)
    check_base(bench.suite, machines, copy)
    _check_gate(bench.suite, options.fail_slower)
    bench = replace(bench, fail_slower=options.fail_slower or bench.fail_slower)
    records = read_folder(root, "").records
    done = completed(records)
    bench = resumed_bench(bench, options, root, done)
    arms = resolve_arms(bench.suite.arms, machines, bench.suite.preset, bench.suite.baseline, copy)
    lost = next((run.arm for run in sorted(done) if run.arm in arms.refused), None)
    if lost is not None:
        raise TfdistError(f"--resume {root}: {lost} was measured before and can no longer run: {arms.refused[lost]}")
    costs = costs_on(machine_name(machines), bench.suite)
    session = Session(root, bench, arms, records, budget_s=options.budget_s, costs=costs)
    return replace(session, collectives=options.collectives)


def _kept_copy(bench: BenchFile, given: ProgramCopy | None, root: Path) -> ProgramCopy | None:
    """The copy in which a bench was begun; all its turns run the same program."""
    origin = bench.copy
    if given is not None and (origin is None or given.origin.digest != origin.digest):
        what = "in the folder itself" if origin is None else "in a copy of other files"
        raise TfdistError(f"--resume {root}: the turns so far ran {what}; omit --copy, or start a new bench")
    if origin is None:
        return None
    from tfdist.launch.packing import read_copy  # other benches need not import it

    path = BenchPaths(root).copy
    try:
        return read_copy(path, origin)
    except (OSError, ValueError) as error:
        raise TfdistError(f"--resume {root}: {path} cannot be read ({error}); start a new bench") from None


def _check_precision(precision: float, session: Session) -> None:
    """Refuse a precision that no number of starts reaches, or for which there is nothing to compare."""
    from scipy.special import ndtri  # slow to import, and not needed by a launch

    option = f"--precision {percent(precision)}"
    if not session.pairs:
        raise TfdistError(f"{option}: only one arm can run here, and has no ratio; add arms, or omit it")
    least = (
        float(ndtri(1 - interval_error(session.pairs, bool(session.bench.suite.version_pairs)) / 2))
        * session.bench.floor
    )
    if log1p(precision) <= least:
        what = f"ratios of equal arms differ by up to {100 * least:.2g}%, however long they are measured"
        raise TfdistError(f"{option}: {what}; give at least {ceil(100 * least) + 1}%")


def interval_error(pairs: Sequence[Pair], versions: bool) -> float:
    """The error of the interval of each of these ratios, which --precision is about."""
    return ERROR / max(len(pairs), 1) if versions else ERROR
