"""Finds the fastest options of a strategy: successive halving over turns, then the best against the defaults.

Successive halving: many candidates in a few rounds, the faster half of them in a few more (Jamieson and Talwalkar,
"Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tfdist.bench.design import Block
from tfdist.bench.folder import BenchPaths, only_writer
from tfdist.bench.plan import PlannedRun, incarnations, interleave, seconds_left, spread
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.runner import RunnerHooks, in_order, run_bench
from tfdist.bench.session import Session
from tfdist.bench.statistics import ArmVerdict, Comparison, Statistics
from tfdist.bench.suites.arm import Arm
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import save_json
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import option_words

STAGE_ROUNDS = 3
"""Rounds of each stage but the last."""


def stages(candidates: int) -> Iterator[int]:
    """The number of candidates in each stage; the last stage compares one with the default."""
    while candidates > 1:
        yield candidates
        candidates = math.ceil(candidates / 2)
    yield candidates


def faster_half(rates: Mapping[str, Mapping[int, float]], default: str, candidates: Sequence[str]) -> tuple[str, ...]:
    """The faster half of `candidates`, rounded up, in their order.

    Args:
        rates: of each arm, by round. Candidates without one of the default's rounds are dropped.
        default: the arm whose rounds count.
        candidates: without the default.
    """
    rounds = rates[default].keys()
    complete = [arm for arm in candidates if rounds <= rates.get(arm, {}).keys()]
    means = {arm: fmean(math.log(rates[arm][each]) for each in rounds) for arm in complete}
    kept = sorted(complete, key=lambda arm: -means[arm])[: math.ceil(len(candidates) / 2)]
    return tuple(arm for arm in complete if arm in kept)


_NOT_PRINTED = ("strategy", "dataset", "evaluate", "evaluate_turns", "count_updates", "step_times", "gpus")
"""Choices of an arm that are the user's, or are no options of `tfdist launch`."""


@dataclass(frozen=True)
class Tuning:
    """What a search found."""

    default: str
    best: str = ""
    """The fastest candidate; empty: none was left."""
    comparison: Comparison | None = None
    """Comparison of the best with the default, over the rounds of the last stage, which chose neither of them."""
    interrupted: int | None = None
    """The signal that ended the search."""

    @property
    def gain(self) -> bool:
        """Whether the best is measurably faster than the default."""
        return self.comparison is not None and self.comparison.verdict is ArmVerdict.FASTER


def search_arms(session: Session) -> tuple[str, ...]:
    """The arms to search: the default, which is the strategy's first arm in the suite, and the candidates.

    Of arms that do the same, as the twin that shows the noise of a suite, only the first is searched.

    Raises:
        TfdistError: there is nothing to choose from.
    """
    specs, suite = session.arms.specs, session.bench.suite
    default = suite.arms[0].name
    if default in session.arms.refused:
        raise TfdistError(f"{default}: {session.arms.refused[default]}")
    work: dict[object, str] = {}
    for arm in suite.arms:
        if arm.name in specs:
            work.setdefault((specs[arm.name], arm.hosts, arm.command), arm.name)
    if len(work) < 2:
        raise TfdistError(f"suite {suite.name} has only {default} to run here: nothing to tune")
    return tuple(work.values())


def search_s(session: Session) -> float:
    """Wall seconds that the search will take."""
    default, *candidates = search_arms(session)
    every = (_stage(session, [default, *candidates[:number]], 0) for number in stages(len(candidates)))
    return sum(seconds_left(runs, session.arms.specs, session.bench.suite, session.costs) for runs in every)


def _stage(session: Session, arms: Sequence[str], after: int) -> tuple[tuple[PlannedRun, ...], ...]:
    """The runs of a stage by incarnation: of the last one, with two arms, as many as the suite wants."""
    suite = session.bench.suite
    rounds, number = (suite.rounds, suite.incarnations) if len(arms) == 2 else (STAGE_ROUNDS, 1)
    plan = interleave(arms, rounds, suite.seed)
    blocks = incarnations(plan, spread(rounds, number))
    return tuple(tuple(replace(run, round=run.round + after) for run in runs) for runs in blocks)


def tune(session: Session, hooks: RunnerHooks) -> Tuning:
    """Search the arms of a session, and keep all turns in its folder.

    Raises:
        TfdistError: the default arm failed, or the folder is not writable.
    """
    default, *candidates = search_arms(session)
    with only_writer(session.root):
        session.keep_copy()
        return _search(session, hooks, default, candidates)


def _search(session: Session, hooks: RunnerHooks, default: str, candidates: Sequence[str]) -> Tuning:
    blocks: list[tuple[PlannedRun, ...]] = []
    while candidates:
        rates, signal = _measure(session, hooks, [default, *candidates], blocks)
        if signal is not None:
            return Tuning(default, interrupted=signal)
        if len(candidates) == 1:
            (best,) = candidates
            if not rates.get(best):
                break
            both = Statistics({arm: rates[arm] for arm in (default, best)}, session.bench.floor)
            (comparison,) = both.compare([(best, default)])
            return Tuning(default, best, comparison)
        # over the throughput of the default, which runs beside each group of arms
        base = rates[default]
        beside = {
            arm: {block.round: rate / base[block] for block, rate in of_arm.items() if block in base}
            for arm, of_arm in rates.items()
        }
        candidates = faster_half(beside, default, candidates)
        hooks.progress.note(f"after round {blocks[-1][-1].round}, candidates left: {', '.join(candidates) or 'none'}")
    return Tuning(default)


def _measure(
    session: Session, hooks: RunnerHooks, arms: Sequence[str], blocks: list[tuple[PlannedRun, ...]]
) -> tuple[Mapping[str, Mapping[Block, float]], int | None]:
    """Measure the next stage, and append its runs to those so far, which are by incarnation.

    Returns:
        The images/s of the stage, by arm and round, and the signal that interrupted it.
    """
    after = blocks[-1][-1].round if blocks else 0
    stage = _stage(session, arms, after)
    blocks += stage
    ends = tuple(runs[-1].round for runs in blocks)
    suite = session.bench.suite
    suite = replace(suite, rounds=ends[-1], incarnations=ends[-1] if suite.isolated else len(ends))
    plan = tuple(run for runs in blocks for run in runs)
    bench = replace(session.bench, suite=suite, plan=plan, last_rounds=ends)
    save_json(BenchPaths(session.root).bench, bench.to_json())
    signal = run_bench(bench, session.arms, session.root, hooks, in_order(bench, stage))
    measured = [arm for arm in arms_of([read_folder(session.root, "")]) if arm.arm in arms]
    rates = {arm.arm: {block: rate for block, rate in arm.rates.items() if block.round > after} for arm in measured}
    if signal is None and not rates.get(arms[0]):
        raise TfdistError(f"the default arm {arms[0]} was not measured: see {session.root / 'runs'}", ExitCode.FAILED)
    return rates, signal


def launch_words(arm: Arm, preset: str | None, spec: StrategyChoice, hosts: Sequence[str] = ()) -> list[str]:
    """The `tfdist launch` command line that trains as this arm did.

    Args:
        arm: of a suite.
        preset: of the suite.
        spec: of the arm; in a bench programs are pinned to cores, by `tfdist launch` only with --cores-per-device.
        hosts: the options that select those of the bench.
    """
    words = [] if preset is None or arm.command else ["--preset", preset]
    choices = dict(arm.choices)
    if arm.command and spec.cores_per_device is not None:
        choices["cores_per_device"] = spec.cores_per_device
    options = [word for key, value in choices.items() if key not in _NOT_PRINTED for word in option_words(key, value)]
    if arm.hosts > 1:
        options += hosts
    program = ["--", *arm.command] if arm.command else []
    return ["tfdist", "launch", "--strategy", str(arm.choices["strategy"]), *words, *options, *program]
