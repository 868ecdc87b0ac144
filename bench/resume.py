"""A bench that continues in its folder: the same arms on the same hosts, with the rounds that are missing or added."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tfdist.bench.folder import FORMAT, BenchFile, read_bench
from tfdist.bench.options import BenchOptions, changed_suite
from tfdist.bench.plan import PlannedRun, extended, interleave
from tfdist.bench.suites.command import check_complete
from tfdist.bench.suites.suite import Suite, load_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL


def read_resumable(root: Path, hosts: tuple[str, ...]) -> BenchFile:
    """The bench in `root`, which can continue on these hosts.

    Raises:
        TfdistError: it is no bench, of an older format, or ran on other hosts.
    """
    bench = read_bench(root)
    if bench is None:
        raise TfdistError(f"--resume {root}: no bench.json in it; give the folder of an interrupted bench")
    if bench.format != FORMAT:
        raise TfdistError(
            f"--resume {root}: an older tfdist measured it, in a training for each round: start a new bench with --out"
        )
    if hosts != bench.hosts:
        fix = "omit --hosts" if bench.hosts == (LOCAL.name,) else f"resume with --hosts {','.join(bench.hosts)}"
        raise TfdistError(
            f"--resume {root}: it was started on {', '.join(bench.hosts)} but would resume on {', '.join(hosts)}: {fix}"
        )
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
    if total == suite.rounds:
        return replace(bench, suite=suite)
    ends = extended(bench.ends, total)
    suite = replace(suite, rounds=total, incarnations=len(ends))
    plan = interleave([arm.name for arm in suite.arms], total, suite.seed)
    return replace(bench, suite=suite, plan=plan, last_rounds=ends)


def _same_suite(old: Suite, options: BenchOptions, root: Path) -> Suite:
    """The suite with its commands as the options give them; it must otherwise be the one that was measured."""
    suite = old if options.suite is None else load_suite(options.suite)
    # the number of rounds may change, and with it that of incarnations
    incarnations = options.incarnations or old.incarnations
    suite, _ = changed_suite(replace(suite, rounds=old.rounds), replace(options, rounds=None, incarnations=None))
    suite = replace(suite, incarnations=incarnations)
    before, now = old.to_json(), suite.to_json()
    differing = [key for key in before if before[key] != now[key] and key != "description"]
    if differing:
        raise TfdistError(
            f"--resume {root}: it was started with another {', '.join(differing)}; "
            f"give --resume alone, or start a new bench with --out"
        )
    check_complete(suite, f"--resume {root}")
    return suite
