"""The command that measures enough to compare arms, for a bench that has measured too little. Pure."""

import shlex
from pathlib import Path

from tfdist.bench.durations import choice_of
from tfdist.bench.folder import full_plan
from tfdist.bench.plan import incarnations, seconds_left, spread
from tfdist.bench.reading import ResultFolder
from tfdist.bench.suites.suite import QUICK, Suite, load_suite
from tfdist.bench.until import done_runs
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.text import duration

_SMOKE = "smoke"
"""The suite that only checks that arms train."""


def how_to_measure_enough(folder: ResultFolder, root: Path) -> str:
    """`For an answer: tfdist bench --suite quick (about 3 min).`; empty for a launch."""
    bench = folder.bench
    if bench is None:
        return ""
    local = bench.hosts == (LOCAL.name,)
    if local and bench.suite.name == _SMOKE and load_suite(_SMOKE).arms == bench.suite.arms:
        suite = load_suite(QUICK)
        arms = {arm.name: choice_of(arm.choices) for arm in suite.arms}
        seconds = seconds_left(incarnations(full_plan(suite), spread(suite.rounds, suite.incarnations)), arms, suite)
        return f"For an answer: tfdist bench --suite {suite.name} (about {duration(seconds)})."
    longer = bench.with_rounds(max(Suite.rounds, bench.suite.rounds))
    arms = {record.arm: choice_of(record.spec) for record in folder.records if record.ranks}
    done = done_runs(longer, folder.records)
    left = [run for run in longer.plan if run.arm in arms and run not in done]
    if not left:  # of trainings that have learned enough
        return ""
    seconds = seconds_left(incarnations(left, longer.ends), arms, longer.suite)
    command = f"tfdist bench --resume {shlex.quote(str(root))} --rounds {longer.suite.rounds}"
    command += "" if local else f" --hosts {shlex.quote(','.join(bench.hosts))}"
    return f"For an answer: {command} (about {duration(seconds)})."
