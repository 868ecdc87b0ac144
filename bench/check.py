"""A short run of a user's program under each strategy: which work, and what to change."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from signal import SIGTERM

from tfdist.bench.arm_process import HINT, ArmProcess, ArmStart, Ended, News, Progressed, StartArm, start_arm
from tfdist.bench.folder import slug
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import Arms, resolve_arms
from tfdist.bench.suites.command import check_measures
from tfdist.bench.turns import Parked
from tfdist.jobs.plan import plan
from tfdist.launch.agents.inbox import Interrupted, interruptions
from tfdist.launch.agents.messages import Event
from tfdist.launch.doctor.checks import CheckResult, Verdict
from tfdist.launch.errors import Problem, TfdistError
from tfdist.launch.job import program_of
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.text import counted
from tfdist.models.record import Record, RecordStatus
from tfdist.models.run import NO_STEP
from tfdist.models.strategy_check import StrategyCheck
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

CHECKED = tuple(name for name, row in CATALOG.items() if row.check_size is not None)
"""The strategies that programs are checked under."""
TRAINED_S = 10.0
"""Seconds after its first step that a program runs which does not say what a step is."""
STOPPED_BY = "tfdist check"


@dataclass(frozen=True)
class CheckPlan:
    """The runs of a program, one for each strategy that it is checked under."""

    arms: Arms
    problem: str
    """Why a bench could not measure the program; empty if it could."""

    def refused(self) -> Iterator[CheckResult]:
        """A row for each strategy whose hardware this machine lacks."""
        for strategy, reason in self.arms.refused.items():
            yield CheckResult(strategy, "", Verdict.WARNING, f"not tried: {reason}")


def plan_check(
    command: Sequence[str],
    strategies: Sequence[StrategyName],
    machines: Machines,
    copy: ProgramCopy | None = None,
) -> CheckPlan:
    """Plan the runs of a program on this machine, in a copy of its folder if there is one.

    Raises:
        TfdistError: it cannot be started.
    """
    words = tuple(command)
    problem = ""
    program = program_of(words, {}, machines, copy)
    try:
        check_measures(program)
    except TfdistError as error:
        problem = str(error)
    arms = [Arm(name, {"strategy": name, **(CATALOG[name].check_size or {})}, command=words) for name in strategies]
    return CheckPlan(resolve_arms(arms, machines, None, copy=copy), problem)


@dataclass
class _Run:
    """A program that runs under one strategy."""

    process: ArmProcess
    cores: tuple[int, ...]
    trains_since: float | None = None
    """Monotonic time of its first step; None: not known."""
    enough: bool = False
    """It has trained some steps, and is stopped."""
    failed_at: str = ""
    """The line of the program that the first exception came from; empty: none, or unknown."""

    def stop(self) -> None:
        if not self.enough:
            self.enough = True
            self.process.interrupt(SIGTERM, STOPPED_BY)


@dataclass
class Checker:
    """Runs the program of a plan until each strategy has trained a few steps, ended, or reached the time limit."""

    plan: CheckPlan
    folder: Path
    """Folder of the logs; each strategy has one in it."""
    timeout_s: float
    """Limit of the time until the steps are trained."""
    start_arm: StartArm = start_arm
    news: "SimpleQueue[News]" = field(default_factory=SimpleQueue)
    running: dict[str, _Run] = field(default_factory=dict)
    interrupted: int = 0
    """Number of the signal that ended the check; 0: none."""

    def rows(self, on_start: Callable[[Sequence[str]], None] = lambda _: None) -> Iterator[CheckResult]:
        """The result of each strategy, as soon as it is known. Those that fit on the cores run at the same time.

        Ends early after a signal, with no process left. `on_start` is called with the strategies that run.
        """
        waiting = list(self.plan.arms.specs)
        with ExitStack() as stack:
            stack.enter_context(interruptions(self.news.put))
            stack.callback(self._stop_all)
            while waiting or self.running:
                waiting = [name for name in waiting if not self._start(name, on_start)]
                yield from self._take_news()
                waiting = [] if self.interrupted else waiting

    def _start(self, name: str, on_start: Callable[[Sequence[str]], None]) -> bool:
        """Start a program if there are cores for it that no other one uses; returns whether it did."""
        planned = self.plan.arms.plans[name]
        ((host, machine),) = planned.machines.items()
        used = {core for run in self.running.values() for core in run.cores}
        free = tuple(core for core in machine.cores if core not in used)
        devices = planned.spec.devices * sum(role.count for role in planned.job.roles.values() if role.computes)
        cores = free[:devices]
        if self.running and (machine.gpus or len(cores) < devices):
            return False
        machines = {host: machine if machine.gpus else replace(machine, cores=cores)}
        policy = Policy(timeout_s=self.timeout_s)
        start = ArmStart(name, 1, plan(planned.request, machines), self.folder / slug(name), policy)
        self.running[name] = _Run(self.start_arm(start, self.news.put), cores)
        on_start(list(self.running))
        return True

    def _take_news(self) -> Iterator[CheckResult]:
        match self.news.get():
            case Interrupted(signal):
                self.interrupted = signal
                for run in self.running.values():
                    run.process.interrupt(signal)
            case Parked(arm) if arm in self.running:
                self.running[arm].stop()
            case Progressed(arm, message) if arm in self.running:
                run = self.running[arm]
                event = message.event if isinstance(message, Event) else {}
                if event.get("trains"):
                    run.trains_since = time.monotonic()
                if event.get("event") == "failed":
                    run.failed_at = run.failed_at or str(event.get("where", ""))
                if self.plan.problem and run.trains_since and time.monotonic() > run.trains_since + TRAINED_S:
                    run.stop()
            case Ended(arm, record) if arm in self.running:
                run = self.running.pop(arm)
                if not self.interrupted:
                    yield result(record, run.enough, run.failed_at, bool(self.plan.problem), self.timeout_s)

    def _stop_all(self) -> None:
        for run in self.running.values():
            run.process.interrupt(SIGTERM, STOPPED_BY)
        while self.running:
            news = self.news.get()
            if isinstance(news, Ended):
                self.running.pop(news.arm, None)


def result(record: Record, enough: bool, failed_at: str, unmeasured: bool, timeout_s: float) -> CheckResult:
    """The row of a strategy.

    Args:
        record: of the program's job.
        enough: it was stopped after some steps.
        failed_at: the line of the program that failed, if it is known.
        unmeasured: the program does not say what a step is.
        timeout_s: the time limit.
    """
    spec = record.spec
    reason, _, hint = record.reason.partition(HINT)
    size = next((counted(spec[key], key[:-1]) for key in ("workers", "devices") if spec[key] > 1), "")
    ended = record.status is RecordStatus.OK or (unmeasured and reason.endswith(NO_STEP))
    timed_out = record.status is RecordStatus.TIMEOUT
    if not (enough or ended or (timed_out and unmeasured)):
        if timed_out:
            late = Problem(f"no step in {timeout_s:g} s", "look into its logs, or give it longer with --timeout")
            reason = late.what
            hint = hint or late.fix
        return CheckResult(record.arm, size, Verdict.FAILED, f"{reason} ({failed_at})" if failed_at else reason, hint)
    text, _, fix = record.strategy_note.partition("; ")
    if record.strategy_check is not StrategyCheck.CONFIRMED:
        refuted = record.strategy_check is StrategyCheck.REFUTED
        return CheckResult(record.arm, size, Verdict.FAILED if refuted else Verdict.WARNING, text, fix)
    return CheckResult(record.arm, size, Verdict.OK, _trained(record))


def _trained(record: Record) -> str:
    """What is known of its steps."""
    row = CATALOG[StrategyName(record.spec["strategy"])]
    ranks = [rank for rank in record.ranks if rank.warmup]
    if not ranks:
        return f"it trains under {row.tf_name}" if row.class_name else "it ran without a failure"
    examples = counted(round(sum(rank.warmup[-1].examples / rank.warmup[-1].steps for rank in ranks)), "example")
    if row.exchange is Exchange.ASYNC:
        return f"it trains: {examples} in a step of each worker"
    return f"it trains: {counted(sum(rank.replicas for rank in ranks), 'replica')} in sync, {examples} in a step"
