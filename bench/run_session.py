"""Runs a bench start by start: after each one it drops what is decided, adds a start that is needed, or ends."""

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from tfdist.bench.adaptive import Decision, decide
from tfdist.bench.against import base_version
from tfdist.bench.collectives.results import copy_collectives
from tfdist.bench.folder import BenchFile, BenchPaths, only_writer
from tfdist.bench.group import FAILURES
from tfdist.bench.noise import FEWEST_SURE
from tfdist.bench.plan import PlannedRun, incarnations, seconds_left
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.summary import statistics_of, summarize
from tfdist.bench.runner import RunnerHooks, run_bench
from tfdist.bench.session import Session, interval_error
from tfdist.bench.statistics import Pair
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.text import duration, shortened
from tfdist.models.record import RecordStatus


def run_session(session: Session, hooks: RunnerHooks) -> int:
    """Execute the runs that are left and return the exit code.

    0: no arm failed; 1: an arm failed; 130 or 143: interrupted. Every record is saved in each case.
    """
    until = None if session.budget_s is None else time.monotonic() + session.budget_s
    hooks = replace(hooks, traces=session.traces)
    with only_writer(session.root), base_version(session.bench.suite.against) as version:
        try:
            save_json(BenchPaths(session.root).bench, session.bench.to_json())
            session.keep_copy()
            if session.collectives is not None:
                copy_collectives(session.collectives, BenchPaths(session.root).collectives)
        except OSError as error:
            raise TfdistError(f"cannot write to {session.root} ({error.strerror}): choose another --out") from None
        if version is not None:
            bases = [base for _, base in session.bench.suite.version_pairs]
            if session.bench.copy is not None:
                from tfdist.launch.packing import pack  # other benches need not import it

                version = replace(version, copy=pack(str(version.folder)))
            session = replace(session, arms=session.arms.with_version(version, bases))
        signal = run_bench(session.bench, session.arms, session.root, hooks, _Starts(session, hooks, until).left, until)
    if signal is not None:
        return 128 + signal
    failed = any(record.status in FAILURES for record in read_folder(session.root, "").records)
    return ExitCode.FAILED if failed else ExitCode.SUCCESS


@dataclass
class _Starts:
    """The starts of a session that are left, decided anew after each of them."""

    session: Session
    hooks: RunnerHooks
    until: float | None
    """Monotonic time after which nothing starts; None: no limit."""
    planned: list[Sequence[PlannedRun]] = field(init=False)
    begun: bool = False

    def __post_init__(self) -> None:
        self.planned = list(self.session.incarnations)

    def left(self, failed: Set[str]) -> tuple[BenchFile, Sequence[Sequence[PlannedRun]]]:
        """The bench, and the turns that are left by start, of which the first is measured next.

        Args:
            failed: arms that are not started again.
        """
        if self.until is not None and time.monotonic() >= self.until:
            return self.session.bench, ()
        if self.begun:
            self.planned = self.planned[1:]
            if self.planned:
                self._look()
        self.begun = True
        if not self.planned and (longer := _more(self.session, self.hooks, self.until, failed)):
            self._save(longer.bench)
            self.planned = list(self.session.incarnations[-1:])
        return self.session.bench, self.planned

    def _look(self) -> None:
        bench = self.session.bench
        starts = len(bench.ends) - len(self.planned)
        if starts >= bench.looks:  # their share of the error is used up
            return
        decision = decide(summarize([read_folder(self.session.root, "")]), bench, starts, self.session.arms.specs)
        if decision is None:
            return
        bench = bench.without(decision.dropped, starts).with_arms(decision.joining, starts)
        bench = replace(bench, slower=(*bench.slower, *decision.look.slower))
        if decision.ends:
            bench = bench.with_rounds(bench.ends[starts - 1])
        if bench != self.session.bench:
            self._save(bench)
            before = {run for runs in self.planned for run in runs}
            now, end = decision.joining, bench.ends[starts - 1]
            left = [run for run in bench.plan if run in before or (run.arm in now and run.round > end)]
            self.planned = list(incarnations(left, bench.ends))
        left_s = seconds_left(self.planned, self.session.arms.specs, bench.suite, self.session.costs)
        self.hooks.progress.note(f"after start {starts} of {bench.looks}: {'; '.join(_news(decision, left_s))}")

    def _save(self, bench: BenchFile) -> None:
        self.session = Session(self.session.root, bench, self.session.arms, costs=self.session.costs)
        save_json(BenchPaths(self.session.root).bench, bench.to_json())


def _news(decision: Decision, left_s: float) -> Iterator[str]:
    """What was decided, what is left to decide, and about how long that takes."""
    found = decision.look
    if slower := [arm for arm in decision.dropped if arm in found.slower]:
        yield f"not started again, as slower than {found.best} for sure: {shortened(slower)}"
    if others := [arm for arm in decision.dropped if arm not in {*found.slower, *decision.waiting}]:
        yield f"not needed now: {shortened(others)}"
    if decision.joining:
        yield f"measured from now on: {shortened(decision.joining)}"
    if decision.waiting:
        yield f"waiting, as those are predicted to be faster: {shortened(decision.waiting)}"
    apart = f"{found.best} and {shortened(found.open)}"
    if decision.ends and found.open:
        yield f"the starts that are left would hardly tell {apart} apart: the bench ends"
    elif decision.ends:
        yield "all is decided: the bench ends"
    elif decision.waiting:
        yield f"about {duration(left_s)} left"
    elif found.open:
        yield f"about {duration(left_s)} left to tell {apart} apart"
    else:
        yield f"the others are decided, and about {duration(left_s)} are left for their figures"


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
    error = interval_error(pairs, versions)
    return {arm: statistics.ratio(arm, baseline).half_width(error) for arm, baseline in pairs}


def _more(session: Session, hooks: RunnerHooks, until: float | None, failed: Set[str]) -> Session | None:
    """The bench with one more start; None: its ratios are sure enough, or no start fits before `until`.

    Args:
        failed: arms that are not started again.
    """
    precision, suite = session.bench.precision, session.bench.suite
    if precision is None or suite.incarnations >= session.bench.most_starts:
        return None
    over = {*failed, *session.bench.dropped}
    pairs = [pair for pair in session.pairs if over.isdisjoint(pair)]
    widths = half_widths(session.root, pairs, bool(suite.version_pairs))
    if not widths:
        return None
    widest = max(widths, key=widths.__getitem__)
    if widths[widest] <= precision and suite.incarnations >= FEWEST_SURE:
        return None
    bench = session.bench.with_rounds(suite.rounds + session.bench.ends[0])
    longer = Session(session.root, bench, session.arms, costs=session.costs)
    start_s = seconds_left(longer.incarnations[-1:], longer.arms.specs, bench.suite, longer.costs)
    if until is not None and time.monotonic() + start_s > until:
        return None
    known = f"is known to within {widths[widest]:.1%}" if isfinite(widths[widest]) else "is not known yet"
    hooks.progress.note(f"the ratio of {widest} {known}: one more start")
    return longer
