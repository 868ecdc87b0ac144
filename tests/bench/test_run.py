"""The runner's additions to the record of each run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfdist.bench.folder import BenchFile
from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import Progress
from tfdist.bench.run import RunnerHooks, run_bench
from tfdist.bench.suites.arms import Arms
from tfdist.bench.suites.suite import parse_suite
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine
from tfdist.models.record import BUSY_BEFORE, Record
from tfdist.models.spec import TrainingSpec

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "10.0.0.2")


@pytest.mark.parametrize(
    ("hosts", "measured"),
    [((LOCAL,), True), ((H1, H2), False), ((H1,), False), ((H1, LOCAL), True), ((LOCAL, H2), True)],
)
def test_the_load_of_this_machine_is_recorded_only_for_runs_on_it(
    tmp_path: Path, make_record: Callable[..., Record], hosts: tuple[Host, ...], measured: bool
) -> None:
    def run_one(*_: object, **__: Any) -> Record:
        return make_record("a")

    calls: list[str] = []

    def busy() -> float:
        calls.append("busy")
        return 0.5

    plan = (PlannedRun(1, "a"),)
    suite = parse_suite({"arms": [{"name": "a", "strategy": "one-device"}]}, "s")
    arms = Arms({"a": TrainingSpec()}, {}, (), {"a": {host: Machine((0, 1), ()) for host in hosts}})
    bench = BenchFile(suite, "tfdist bench", "", plan)
    (made,) = run_bench(bench, arms, tmp_path, plan, RunnerHooks(run_one, Progress(), busy))
    assert made.hardware.get(BUSY_BEFORE) == (0.5 if measured else None)
    assert bool(calls) == measured
