"""One `tfdist bench` from its options to its exit code: a new one or one that is resumed, checked first, then run."""

import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from math import ceil, isfinite, log1p
from pathlib import Path

from tfdist.bench.against import MOST_STARTS, PRECISION, base_version, check_base
from tfdist.bench.collectives.results import Sweep, copy_collectives, holds_collectives, read_collectives
from tfdist.bench.compare.gate import LONGEST, NOISY, gate_needs
from tfdist.bench.folder import BenchFile, BenchPaths, check_new, check_writable, only_writer, read_bench, slug
from tfdist.bench.group import FAILURES, NO_TRACES, Traces, plan_traces
from tfdist.bench.noise import FEWEST_SURE
from tfdist.bench.options import BenchOptions, changed_suite, requested_suite
from tfdist.bench.plan import PlannedRun, beside, fitting_rounds, fitting_starts, incarnations, interleave, seconds_left
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.summary import statistics_of
from tfdist.bench.runner import RunnerHooks, run_bench
from tfdist.bench.same_arms import floor_on, machine_name
from tfdist.bench.statistics import ERROR, Pair
from tfdist.bench.suites.arms import Arms, resolve_arms
from tfdist.bench.suites.command import check_complete, check_measures
from tfdist.bench.suites.explain import explained
from tfdist.bench.suites.suite import QUICK, Suite, adjust, load_suite
from tfdist.bench.until import accuracy_of, completed, done_runs
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import program_of
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machines, combined
from tfdist.launch.text import counted, duration, percent
from tfdist.models.record import Record, RecordStatus


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
    notes: tuple[str, ...] = ()
    """What the options change in the suite."""
    budget_s: float | None = None
    """No turn begins later than this after the start; None: no limit."""
    collectives: Path | None = None
    """A folder of `tfdist collectives`, for the ceiling of the network."""
    traces: Traces = NO_TRACES
    quick_s: float | None = None
    """Wall seconds of the suite QUICK here; None: the user chose a suite or a length, or it would compare nothing."""

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
        return seconds_left(self.incarnations, self.arms.specs, self.bench.suite)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works but may surprise."""
        if self.budget_s is None or not self.incarnations:
            return self.arms.warnings
        first = tuple(run for run in self.to_run if run.round == self.to_run[0].round)
        first_s = seconds_left([first], self.arms.specs, self.bench.suite)
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
        program_of(options.program, {}, machines)
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


def _new(options: BenchOptions, machines: Machines) -> Session:
    suite, notes = requested_suite(options, default_suite(machines), len(machines))
    for command in dict.fromkeys(arm.command for arm in suite.arms if arm.command):
        check_measures(program_of(command, {}, machines))
    check_base(suite, machines)
    _check_gate(suite, options.fail_slower)
    now = datetime.now(timezone.utc)
    root = options.out or Path("bench_results") / f"{now:%Y%m%dT%H%M%SZ}-{slug(suite.name)}"
    check_new(root, f"choose a new folder, or continue its bench with --resume {root}")
    arms = resolve_arms(suite.arms, machines, suite.preset, suite.baseline)
    if suite.explain:
        suite, added = explained(suite, arms.specs)
        if added:
            notes += (f"added to explain lost time: {', '.join(added)}",)
        arms = resolve_arms(suite.arms, machines, suite.preset, suite.baseline)
    name = machine_name(machines)
    started = now.isoformat(timespec="seconds")
    floor = floor_on(name)
    suite = _within(_with_gate(suite, arms, options, floor), arms, options)
    notes += _gate_notes(suite, arms, options.fail_slower, floor)
    plan = interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed, suite.version_pairs)
    hosts = tuple(host.name for host in machines)
    bench = BenchFile(suite, options.command, started, plan, hosts, floor=floor, machine=name)
    bench = replace(bench, fail_slower=options.fail_slower)
    session = Session(root, bench, arms, notes=notes, budget_s=options.budget_s, collectives=options.collectives)
    return replace(session, quick_s=_quick_s(options, machines))


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


def _within(suite: Suite, arms: Arms, options: BenchOptions) -> Suite:
    """The suite with as many starts and rounds as fit into --budget, unless options say how many."""
    if options.budget_s is None or options.rounds is not None:
        return suite
    if options.incarnations is None and not suite.isolated:
        starts = fitting_starts(suite, arms.specs, options.budget_s)
        limited = options.fail_slower is not None or options.precision is not None
        if limited and fitting_rounds(suite, arms.specs, options.budget_s) >= suite.rounds:  # more come later
            return suite
        suite = replace(suite, incarnations=starts)
    number = None if suite.isolated else suite.incarnations
    rounds = fitting_rounds(suite, arms.specs, options.budget_s)
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
    check_base(bench.suite, machines)
    _check_gate(bench.suite, options.fail_slower)
    bench = replace(bench, fail_slower=options.fail_slower or bench.fail_slower)
    records = read_folder(root, "").records
    done = completed(records)
    bench = resumed_bench(bench, options, root, done)
    arms = resolve_arms(bench.suite.arms, machines, bench.suite.preset, bench.suite.baseline)
    lost = next((run.arm for run in sorted(done) if run.arm in arms.refused), None)
    if lost is not None:
        raise TfdistError(f"--resume {root}: {lost} was measured before and can no longer run: {arms.refused[lost]}")
    return Session(root, bench, arms, records, budget_s=options.budget_s, collectives=options.collectives)


def _check_precision(precision: float, session: Session) -> None:
    """Refuse a precision that no number of starts reaches, or for which there is nothing to compare."""
    from scipy.special import ndtri  # slow to import, and not needed by a launch

    option = f"--precision {percent(precision)}"
    if not session.pairs:
        raise TfdistError(f"{option}: only one arm can run here, and has no ratio; add arms, or omit it")
    least = float(ndtri(1 - _error(session.pairs, bool(session.bench.suite.version_pairs)) / 2)) * session.bench.floor
    if log1p(precision) <= least:
        what = f"ratios of equal arms differ by up to {100 * least:.2g}%, however long they are measured"
        raise TfdistError(f"{option}: {what}; give at least {ceil(100 * least) + 1}%")


def half_widths(root: Path, pairs: Sequence[Pair], versions: bool) -> Mapping[str, float]:
    """Half of the 95 % interval of each ratio, as a share of the ratio, by arm; infinite without an interval.

    Each interval is that of its ratio alone: unlike in a report, none is wider because there are several. Those of
    `versions` are as wide as a report on equal versions shows them. Arms that failed, which get no more turns, and
    those without a turn are missing.
    """
    folder = read_folder(root, "")
    arms = [arm for arm in arms_of([folder]) if arm.rates]
    alive = {arm.arm for arm in arms if {record.status for record in arm.records} == {RecordStatus.OK}}
    statistics = statistics_of(arms, [folder])
    pairs = [pair for pair in pairs if alive.issuperset(pair)]
    error = _error(pairs, versions)
    return {arm: statistics.ratio(arm, baseline).half_width(error) for arm, baseline in pairs}


def _error(pairs: Sequence[Pair], versions: bool) -> float:
    return ERROR / max(len(pairs), 1) if versions else ERROR


def _more(session: Session, hooks: RunnerHooks, until: float | None, failed: Set[str]) -> Session | None:
    """The bench with one more start; None: its ratios are sure enough, or no start fits before `until`.

    Args:
        failed: arms that are not started again.
    """
    precision, suite = session.bench.precision, session.bench.suite
    if precision is None or suite.incarnations >= session.bench.most_starts:
        return None
    pairs = [pair for pair in session.pairs if failed.isdisjoint(pair)]
    widths = half_widths(session.root, pairs, bool(suite.version_pairs))
    if not widths:
        return None
    widest = max(widths, key=widths.__getitem__)
    if widths[widest] <= precision and suite.incarnations >= FEWEST_SURE:
        return None
    bench = session.bench.with_rounds(suite.rounds + session.bench.ends[0])
    longer = Session(session.root, bench, session.arms)
    start_s = seconds_left(longer.incarnations[-1:], longer.arms.specs, bench.suite)
    if until is not None and time.monotonic() + start_s > until:
        return None
    known = f"is known to within {widths[widest]:.1%}" if isfinite(widths[widest]) else "is not known yet"
    hooks.progress.note(f"the ratio of {widest} {known}: one more start")
    return longer


def run_session(session: Session, hooks: RunnerHooks) -> int:
    """Execute the runs that are left and return the exit code.

    0: no arm failed; 1: an arm failed; 130 or 143: interrupted. Every record is saved in each case.
    """
    until = None if session.budget_s is None else time.monotonic() + session.budget_s
    hooks = replace(hooks, traces=session.traces)
    with only_writer(session.root), base_version(session.bench.suite.against) as version:
        try:
            save_json(BenchPaths(session.root).bench, session.bench.to_json())
            if session.collectives is not None:
                copy_collectives(session.collectives, BenchPaths(session.root).collectives)
        except OSError as error:
            raise TfdistError(f"cannot write to {session.root} ({error.strerror}): choose another --out") from None
        if version is not None:
            bases = [base for _, base in session.bench.suite.version_pairs]
            session = replace(session, arms=session.arms.with_version(version, bases))

        def more(failed: Set[str]) -> tuple[BenchFile, Sequence[Sequence[PlannedRun]]] | None:
            nonlocal session
            longer = _more(session, hooks, until, failed)
            if longer is None:
                return None
            session = longer
            save_json(BenchPaths(session.root).bench, session.bench.to_json())
            return session.bench, session.incarnations[-1:]

        signal = run_bench(session.bench, session.arms, session.root, hooks, session.incarnations, until, more)
    if signal is not None:
        return 128 + signal
    failed = any(record.status in FAILURES for record in read_folder(session.root, "").records)
    return ExitCode.FAILED if failed else ExitCode.SUCCESS
