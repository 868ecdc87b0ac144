"""A whole bench with a fake run function: order, saving, refusals, interruption, resuming."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tfdist.bench.options import BenchOptions
from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.run import RunnerHooks
from tfdist.bench.session import default_suite, prepare, run_session
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine, Machines, local_machines
from tfdist.launch.policy import Policy
from tfdist.models.record import BUSY_BEFORE, RankRecord, Record, TaskUsage, Window
from tfdist.models.spec import TrainingSpec

MACHINES = local_machines(Machine((0, 1), ()))
SUITE = """
name = "mine"
preset = "smoke"
rounds = 2
timeout = 60
[[arms]]
name = "one/../device"
strategy = "one-device"
[[arms]]
name = "it's; odd"
strategy = "mirrored"
devices = 2
[[arms]]
name = "refused"
strategy = "mirrored"
cross_device = "nccl"
"""


@dataclass
class FakeRuns:
    """A fake `run_spec`; `ends` maps (arm, round) to the status of a run, by default ok."""

    ends: dict[tuple[str, int], str] = field(default_factory=dict)
    calls: list[tuple[str, int, float | None, Path]] = field(default_factory=list)
    before_each: Callable[[], None] = lambda: None

    def __call__(
        self,
        spec: TrainingSpec,
        run_dir: Path,
        *,
        machines: Machines,
        arm: str,
        round: int,
        policy: Policy,
        listen: Any,
    ) -> Record:
        self.before_each()
        assert run_dir.is_dir()
        self.calls.append((arm, round, policy.timeout_s, run_dir))
        status = self.ends.get((arm, round), "ok")
        if status == "ctrl-c":
            raise KeyboardInterrupt
        if status == "no port":
            raise TfdistError("port 5 on this host cannot be used: choose another")
        window = Window(5, 5 * spec.global_batch_size, 0.5, float("nan"))
        rank = RankRecord("worker-0", "box", spec.replicas, (), (window,), {}, 10, 10)
        ok = status == "ok"
        return Record(arm, round, spec.to_json(), status, "" if ok else f"it was {status}", 0 if ok else 130,
                      ranks=(rank,) if ok else (), usage={"worker-0": TaskUsage(1, 1.0)}, wall_s=10.0,
                      hardware={"cores": [0, 1]}, command=str(run_dir), run_dir="elsewhere")  # fmt: skip


def hooks(runs: FakeRuns) -> RunnerHooks:
    return RunnerHooks(runs, Progress(), lambda: 0.25)


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    return BenchOptions(suite=str(path), out=tmp_path / "out; it's odd", command="tfdist bench")


def test_a_bench_runs_every_arm_in_the_planned_order_and_saves_as_it_goes(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    seen: list[int] = []
    runs = FakeRuns(before_each=lambda: seen.append(len(list((session.root / "records").glob("[0-9]*.json")))))
    assert run_session(session, hooks(runs)) == 0
    assert [PlannedRun(number, arm) for arm, number, _, _ in runs.calls] == [
        run for run in session.bench.plan if run.arm != "refused"
    ]
    assert seen == [0, 1, 2, 3]
    assert {timeout for _, _, timeout, _ in runs.calls} == {60}
    assert not list(session.root.rglob(".*"))


def test_every_record_has_its_log_folder_and_the_load_before_it(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    records = [one for one in read_folder(session.root, "").records if one.status == "ok"]
    assert [record.order for record in records] == [1, 2, 3, 4]
    assert all((session.root / record.run_dir).is_dir() for record in records)
    assert {record.hardware[BUSY_BEFORE] for record in records} == {0.25}
    assert {record.command for record in records} == {"tfdist bench"}


def test_no_path_of_the_machine_is_saved(options: BenchOptions, tmp_path: Path) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    for path in session.root.rglob("*.json"):
        assert str(tmp_path) not in path.read_text()


def test_files_stay_in_the_folder_and_are_strict_json(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    assert sorted(path.name for path in session.root.iterdir()) == ["bench.json", "records", "runs"]
    for path in session.root.rglob("*.json"):
        assert "NaN" not in path.read_text()


def test_a_refused_arm_is_a_record_and_starts_nothing(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    runs = FakeRuns()
    run_session(session, hooks(runs))
    assert "refused" not in {arm for arm, *_ in runs.calls}
    (refused,) = [one for one in read_folder(session.root, "").records if one.status == "refused"]
    assert "NCCL" in refused.reason.upper()


def test_a_failed_arm_makes_the_bench_fail_and_the_others_still_run(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    runs = FakeRuns(ends={("it's; odd", 1): "failed"})
    assert run_session(session, hooks(runs)) == 1
    assert len(runs.calls) == 4


def test_a_run_that_could_not_start_is_a_failed_record(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    assert run_session(session, hooks(FakeRuns(ends={("it's; odd", 2): "no port"}))) == 1
    failed = [one for one in read_folder(session.root, "").records if one.status == "failed"]
    assert [one.reason for one in failed] == ["port 5 on this host cannot be used: choose another"]


@pytest.mark.parametrize("end", ["interrupted", "ctrl-c"])
def test_ctrl_c_keeps_finished_runs_and_resume_executes_the_rest(options: BenchOptions, end: str) -> None:
    session = prepare(options, MACHINES)
    third = [run for run in session.bench.plan if run.arm != "refused"][2]
    runs = FakeRuns(ends={(third.arm, third.round): end})
    assert run_session(session, hooks(runs)) == 130
    assert len(runs.calls) == 3
    assert session.count_left() == 2

    again = prepare(BenchOptions(resume=session.root), MACHINES)
    assert again.bench == session.bench
    more = FakeRuns()
    assert run_session(again, hooks(more)) == 0
    assert [(arm, number) for arm, number, *_ in more.calls] == [
        (run.arm, run.round) for run in session.bench.plan if run.arm != "refused"
    ][2:]
    folder = read_folder(session.root, "")
    assert [one.status for one in folder.records].count("ok") == 4
    assert [one.status for one in folder.replaced] == ["interrupted"]
    assert session.count_left() == 0


def test_a_complete_bench_has_nothing_to_resume(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    runs = FakeRuns()
    assert run_session(prepare(BenchOptions(resume=session.root), MACHINES), hooks(runs)) == 0
    assert not runs.calls


def test_resume_repeats_failed_runs_and_killed_ones_without_a_record(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns(ends={("it's; odd", 1): "failed"})))
    (session.root / "runs" / "005-it-s-odd-r1").mkdir()  # as a kill -9 leaves it
    runs = FakeRuns()
    assert run_session(prepare(BenchOptions(resume=session.root), MACHINES), hooks(runs)) == 0
    assert [(arm, number) for arm, number, *_ in runs.calls] == [("it's; odd", 1)]


def test_a_refused_arm_runs_on_resume_if_it_now_can(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    with_gpus = Machine((0, 1), ("A", "B"))
    runs = FakeRuns()
    run_session(prepare(BenchOptions(resume=session.root), local_machines(with_gpus)), hooks(runs))
    assert [arm for arm, *_ in runs.calls] == ["refused", "refused"]
    assert {one.status for one in read_folder(session.root, "").records} == {"ok"}


@pytest.mark.parametrize(
    "other",
    [
        {"turn_s": 3.0},
        {"incarnations": 1},
        {"isolated": True},
        {"seed": 5},
        {"patterns": ("one*",)},
        {"suite": "smoke"},
    ],
)
def test_a_resume_with_another_suite_is_refused(options: BenchOptions, other: dict[str, Any]) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    with pytest.raises(TfdistError, match="was started with another"):
        prepare(replace(BenchOptions(resume=session.root), **other), MACHINES)


def test_a_resume_with_the_same_suite_is_accepted(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeRuns()))
    assert prepare(replace(options, resume=session.root, out=None), MACHINES).bench == session.bench


def test_a_resume_on_other_hosts_is_refused_with_the_fix(options: BenchOptions) -> None:
    two = {Host(name): Machine((0, 1), ()) for name in ("h1", "h2")}
    session = prepare(options, two)
    run_session(session, hooks(FakeRuns()))
    with pytest.raises(
        TfdistError, match="was started on h1, h2 but would resume on localhost: resume with --hosts h1,h2"
    ):
        prepare(BenchOptions(resume=session.root), MACHINES)
    assert prepare(BenchOptions(resume=session.root), two).bench == session.bench


def test_a_resume_is_refused_if_a_measured_arm_can_no_longer_run(options: BenchOptions) -> None:
    session = prepare(options, local_machines(Machine((0, 1), ("A", "B"))))
    run_session(session, hooks(FakeRuns()))
    with pytest.raises(TfdistError, match=r"refused was measured before and can no longer run: .*GPUs"):
        prepare(BenchOptions(resume=session.root), MACHINES)


def test_a_resume_needs_a_bench(tmp_path: Path) -> None:
    with pytest.raises(TfdistError, match=r"bench\.json"):
        prepare(BenchOptions(resume=tmp_path), MACHINES)
    (tmp_path / "bench.json").write_text("{")
    with pytest.raises(TfdistError, match="cannot be read"):
        prepare(BenchOptions(resume=tmp_path), MACHINES)
    (tmp_path / "bench.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(TfdistError, match="format 99"):
        prepare(BenchOptions(resume=tmp_path), MACHINES)


def test_an_unusable_folder_is_refused_and_nothing_is_written(options: BenchOptions, tmp_path: Path) -> None:
    with pytest.raises(TfdistError, match="not empty"):
        prepare(replace(options, out=tmp_path), MACHINES)
    with pytest.raises(TfdistError, match="is a file"):
        prepare(replace(options, out=tmp_path / "mine.toml" / "below"), MACHINES)
    before = sorted(tmp_path.rglob("*"))
    prepare(options, MACHINES)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_default_suite_depends_on_the_machine() -> None:
    assert default_suite(MACHINES) == "cpu"
    assert default_suite(local_machines(Machine((0,), ("A",)))) == "gpu"
    two = {LOCAL: Machine((0,), ()), Host("h2", "10.0.0.2"): Machine((0,), ())}
    assert default_suite(two) == "hosts"
