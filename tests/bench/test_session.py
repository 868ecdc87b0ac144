"""A whole bench with a fake run function: order, saving, refusals, interruption, resuming."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fake_arms import FakeArms
from tfdist.bench.folder import BenchPaths, only_writer, read_bench
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.report.summary import summarize
from tfdist.bench.report.write import report_bench
from tfdist.bench.run_session import half_widths, run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import default_suite, prepare
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machine, local_machines

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


def hooks(fakes: FakeArms) -> RunnerHooks:
    return RunnerHooks(Progress(), fakes)


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    return BenchOptions(suite=str(path), out=tmp_path / "out; it's odd", command="tfdist bench")


def test_a_bench_measures_every_arm_and_saves_as_it_goes(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    fakes = FakeArms()
    assert run_session(session, hooks(fakes)) == 0
    assert fakes.happened("start") == ["one/../device", "it's; odd"] * 2
    assert {start.policy.timeout_s for start in fakes.starts} == {60}
    assert not list(session.root.rglob(".*"))


def test_every_record_has_its_log_folder(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    records = [one for one in read_folder(session.root, "").records if one.status == "ok"]
    assert sorted(record.order for record in records) == [1, 2, 3, 4]
    assert all((session.root / record.run_dir).is_dir() for record in records)
    assert {record.command for record in records} == {"tfdist bench"}


def test_no_path_of_the_machine_is_saved(options: BenchOptions, tmp_path: Path) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    for path in session.root.rglob("*.json*"):
        assert str(tmp_path) not in path.read_text()


def test_files_stay_in_the_folder_and_are_strict_json(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    assert sorted(path.name for path in session.root.iterdir()) == [
        "bench.json",
        "records.jsonl",
        "runs",
        "turns.jsonl",
    ]
    for path in session.root.rglob("*.json*"):
        assert "NaN" not in path.read_text()


def test_a_refused_arm_is_a_record_and_starts_nothing(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    fakes = FakeArms()
    run_session(session, hooks(fakes))
    assert "refused" not in fakes.happened("start")
    (refused,) = [one for one in read_folder(session.root, "").records if one.status == "refused"]
    assert "NCCL" in refused.reason.upper()
    assert "command" not in refused.spec


def test_a_refused_arm_of_a_program_counts_what_the_others_count(options: BenchOptions, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tfdist.measure\n")
    session = prepare(replace(options, program=("python", str(tmp_path / "train.py"))), MACHINES)
    run_session(session, hooks(FakeArms()))
    specs = [one.spec for one in read_folder(session.root, "").records if one.status == "refused"]
    assert [spec["command"].startswith("python ") for spec in specs] == [True]


def test_a_second_bench_in_its_folder_is_refused(options: BenchOptions) -> None:
    session, fakes = prepare(options, MACHINES), FakeArms()
    with only_writer(session.root), pytest.raises(TfdistError, match="another tfdist measures into it"):
        run_session(session, hooks(fakes))
    assert fakes.happened("start") == []


def test_a_failed_arm_makes_the_bench_fail_and_the_others_are_measured(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    fakes = FakeArms(behaviour={"it's; odd": {"ends": -1}})
    assert run_session(session, hooks(fakes)) == 1
    folder = read_folder(session.root, "")
    assert [one.status for one in folder.records].count("ok") == 2
    failed = [one for one in folder.records if one.status == "failed"]
    assert [one.reason for one in failed] == ["port 5 on this host cannot be used: choose another"]


def test_ctrl_c_keeps_finished_turns_and_resume_measures_the_rest(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    first = session.bench.plan[0].arm if session.bench.plan[0].arm != "refused" else session.bench.plan[1].arm
    other = next(arm for arm in ("one/../device", "it's; odd") if arm != first)
    assert run_session(session, hooks(FakeArms(behaviour={other: {"ctrl_c": 2}}))) == 130  # releases: warm-up, a turn
    assert session.count_left() == 3

    again = prepare(BenchOptions(resume=session.root), MACHINES)
    assert again.bench == session.bench
    assert run_session(again, hooks(FakeArms())) == 0
    measured = [(one.arm, one.round) for one in read_folder(session.root, "").records if one.status == "ok"]
    assert (len(measured), len(set(measured))) == (5, 4), "the baseline's turn once more beside the other's"
    assert session.count_left() == 0


def test_a_complete_bench_has_nothing_to_resume(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    fakes = FakeArms()
    assert run_session(prepare(BenchOptions(resume=session.root), MACHINES), hooks(fakes)) == 0
    assert not fakes.starts


def test_resume_repeats_failed_arms_and_skips_the_numbers_of_killed_ones(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms(behaviour={"it's; odd": {"ends": -1}})))
    (session.root / "runs" / "005-it-s-odd-i9").mkdir()  # as a kill -9 leaves it
    fakes = FakeArms()
    assert run_session(prepare(BenchOptions(resume=session.root), MACHINES), hooks(fakes)) == 0
    assert fakes.happened("start") == ["one/../device", "it's; odd"] * 2
    assert {start.run_dir.name[:3] for start in fakes.starts} == {"006", "007", "008", "009"}
    folder = read_folder(session.root, "")
    assert {one.status for one in folder.records} == {"ok", "refused"}
    assert [one.status for one in folder.replaced] == ["failed"]


def test_a_failed_arm_is_measured_again_beside_the_baseline_and_gets_a_verdict(options: BenchOptions) -> None:
    session = prepare(replace(options, rounds=4, incarnations=1), MACHINES)
    run_session(session, hooks(FakeArms(behaviour={"it's; odd": {"ends": 0}})))
    resumed = prepare(BenchOptions(resume=session.root), MACHINES)
    assert len(resumed.to_run) == 8
    run_session(resumed, hooks(FakeArms(behaviour={"it's; odd": {"step_s": 0.05, "noise": 0.01}})))
    folder = read_folder(session.root, "")
    turns = [(one.arm, one.round, one.group) for one in folder.records if one.status == "ok"]
    again = [(arm, number, 2) for arm in ("one/../device", "it's; odd") for number in (1, 2, 3, 4)]
    assert sorted(turns) == sorted([("one/../device", number, 1) for number in (1, 2, 3, 4)] + again)
    baseline, odd, _ = summarize([folder])
    assert (baseline.rounds, odd.status) == (4, "ok")
    assert odd.one_device is not None
    assert odd.one_device.comparison.verdict == "faster"
    assert prepare(BenchOptions(resume=session.root), MACHINES).to_run == ()


def test_a_training_that_has_learned_is_not_measured_again_as_a_baseline(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    learns = {"one/../device": {"learns": 9}, "it's; odd": {"ends": 0}}
    run_session(session, hooks(FakeArms(behaviour=learns)))
    again = prepare(BenchOptions(resume=session.root), MACHINES)
    assert {run.arm for run in again.to_run} == {"it's; odd"}


def test_a_refused_arm_runs_on_resume_if_it_now_can(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    with_gpus = Machine((0, 1), ("A", "B"))
    fakes = FakeArms()
    run_session(prepare(BenchOptions(resume=session.root), local_machines(with_gpus)), hooks(fakes))
    assert fakes.happened("start") == ["one/../device", "refused"] * 2
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
    run_session(session, hooks(FakeArms()))
    with pytest.raises(TfdistError, match="was started with another"):
        prepare(replace(BenchOptions(resume=session.root), **other), MACHINES)


def test_any_arm_can_be_the_baseline(options: BenchOptions) -> None:
    assert prepare(options, MACHINES).baseline == "one/../device"
    session = prepare(replace(options, baseline="it's; odd"), MACHINES)
    assert session.baseline == session.bench.suite.baseline == "it's; odd"
    run_session(session, hooks(FakeArms()))
    resumed = prepare(BenchOptions(resume=session.root), MACHINES)
    assert resumed.baseline == "it's; odd"
    with pytest.raises(TfdistError, match="was started with another baseline"):
        prepare(BenchOptions(resume=session.root, baseline="one/../device"), MACHINES)


def test_a_baseline_that_is_no_arm_is_refused(options: BenchOptions) -> None:
    with pytest.raises(TfdistError, match=r"^--baseline its odd: did you mean it's; odd\? Choose from one/../device, "):
        prepare(replace(options, baseline="its odd"), MACHINES)
    path = Path(str(options.suite))
    path.write_text('baseline = "refused"\n' + SUITE)
    left_out = r"^suite mine has baseline = 'refused', which is left out; give another with --baseline: choose from one"
    with pytest.raises(TfdistError, match=left_out):
        prepare(replace(options, patterns=("one*",)), MACHINES)


def test_a_resume_with_the_same_suite_is_accepted(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    assert prepare(replace(options, resume=session.root, out=None), MACHINES).bench == session.bench


def test_a_resume_on_other_hosts_is_refused_with_the_fix(options: BenchOptions) -> None:
    two = {Host(name): Machine((0, 1), ()) for name in ("h1", "h2")}
    session = prepare(options, two)
    run_session(session, hooks(FakeArms()))
    with pytest.raises(
        TfdistError, match="was started on h1, h2 but would resume on localhost: resume with --hosts h1,h2"
    ):
        prepare(BenchOptions(resume=session.root), MACHINES)
    assert prepare(BenchOptions(resume=session.root), two).bench == session.bench


def test_a_resume_is_refused_if_a_measured_arm_can_no_longer_run(options: BenchOptions) -> None:
    session = prepare(options, local_machines(Machine((0, 1), ("A", "B"))))
    run_session(session, hooks(FakeArms()))
    with pytest.raises(TfdistError, match=r"refused was measured before and can no longer run: .*GPUs"):
        prepare(BenchOptions(resume=session.root), MACHINES)


@pytest.mark.usefixtures("no_charts")
def test_the_time_of_a_bench_is_estimated_from_the_last_one_of_this_machine(
    options: BenchOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    session = prepare(options, MACHINES)
    names = list(session.arms.specs)
    half_an_hour_ago = (datetime.now(timezone.utc) - timedelta(minutes=30)).isoformat(timespec="seconds")
    slow = {"started": half_an_hour_ago, "wall_s": 1900.0}
    run_session(session, hooks(FakeArms(records=dict.fromkeys(names, slow))))
    assert prepare(replace(options, out=tmp_path / "b"), MACHINES).estimate_s == session.estimate_s < 100
    _, warning = report_bench(session.root, session.bench.machine)
    assert warning == ""

    later = prepare(replace(options, out=tmp_path / "b"), MACHINES)
    assert later.costs.edge_s == pytest.approx(100 / len(names) - later.bench.suite.turn_s, abs=5)
    assert later.estimate_s == pytest.approx(2 * 1900, rel=0.01), "two starts of half an hour"
    resumed = prepare(BenchOptions(resume=session.root, rounds=3), MACHINES)
    assert resumed.estimate_s == pytest.approx(1900, rel=0.01)
    budget = replace(options, out=tmp_path / "b", budget_s=2400.0)
    assert prepare(budget, MACHINES).bench.suite.incarnations == 1
    assert "the first round takes about 32 min" in prepare(replace(budget, budget_s=600.0), MACHINES).warnings[-1]
    two = local_machines(Machine((0, 1, 2), ()))
    assert prepare(replace(options, out=tmp_path / "b"), two).estimate_s == session.estimate_s, "another machine"


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


def test_starts_are_added_until_every_ratio_is_sure(options: BenchOptions) -> None:
    path = Path(str(options.suite))
    path.write_text(SUITE.replace("rounds = 2", "rounds = 8\nincarnations = 4"))
    session = prepare(replace(options, precision=0.04), MACHINES)
    assert session.notes[-1] == "more starts follow, up to 200 of each arm, until each ratio is known to within 4%"
    noise = {"one/../device": {"noise": 0.08}, "it's; odd": {"noise": 0.08}}
    fakes = FakeArms(behaviour=noise)
    assert run_session(session, hooks(fakes)) == 0
    bench = read_bench(session.root)
    assert bench is not None
    starts = bench.suite.incarnations
    assert 4 < starts == fakes.happened("start").count("it's; odd")
    assert (bench.suite.rounds, bench.ends[-1]) == (2 * starts, 2 * starts)
    assert 0 < half_widths(session.root, session.pairs, versions=False)["it's; odd"] <= 0.04
    assert prepare(BenchOptions(resume=session.root), MACHINES).to_run == ()


def test_turns_that_were_added_count_as_left(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run_session(session, hooks(FakeArms()))
    assert session.count_left() == 0
    more = session.bench.with_rounds(session.bench.suite.rounds + 1)
    save_json(BenchPaths(session.root).bench, more.to_json())
    assert session.count_left() == 2


def test_no_start_is_added_after_the_budget_or_for_arms_that_failed(options: BenchOptions) -> None:
    noisy = {"one/../device": {"noise": 0.5}, "it's; odd": {"noise": 0.5}}
    session = prepare(replace(options, precision=0.03, rounds=4), MACHINES)
    run_session(replace(session, budget_s=5.0), hooks(FakeArms(behaviour=noisy)))
    assert {one.incarnation for one in read_folder(session.root, "").records if one.status == "ok"} == {1, 2, 3, 4}
    other = prepare(replace(options, precision=0.03, rounds=4, out=options.out / "b"), MACHINES)  # type: ignore[operator]
    fakes = FakeArms(behaviour={**noisy, "it's; odd": {"noise": 0.5, "ends": 1}})
    assert run_session(other, hooks(fakes)) == 1
    assert fakes.happened("start").count("one/../device") == 4


def test_no_start_is_added_for_an_arm_that_was_stopped(options: BenchOptions) -> None:
    session = prepare(replace(options, precision=0.03, rounds=4), MACHINES)
    fakes = FakeArms(behaviour={"one/../device": {"noise": 0.5}, "it's; odd": {"noise": 0.5, "stopped": 2}})
    run_session(replace(session, bench=replace(session.bench, precision=0.03)), hooks(fakes))
    assert fakes.happened("start").count("one/../device") == session.bench.suite.incarnations
    bench = read_bench(session.root)
    assert bench is not None
    assert bench.suite.incarnations == session.bench.suite.incarnations


def test_an_arm_that_failed_is_not_started_again_with_the_starts_that_are_added(
    options: BenchOptions, tmp_path: Path
) -> None:
    path = tmp_path / "three.toml"
    more = '\n[[arms]]\nname = "fails"\nstrategy = "one-device"\n'
    path.write_text(SUITE.replace("rounds = 2", "rounds = 8\nincarnations = 4") + more)
    session = prepare(replace(options, suite=str(path), precision=0.04), MACHINES)
    noise = {name: {"noise": 0.08} for name in ("one/../device", "it's; odd")}
    fakes = FakeArms(behaviour={**noise, "fails": {"ends": 2}})
    assert run_session(session, hooks(fakes)) == 1
    assert fakes.happened("start").count("it's; odd") > 4
    assert fakes.happened("start").count("fails") == 1


def test_a_resumed_bench_ends_as_it_began_to(options: BenchOptions) -> None:
    path = Path(str(options.suite))
    path.write_text(SUITE.replace("rounds = 2", "rounds = 8\nincarnations = 4"))
    session = prepare(replace(options, precision=0.04), MACHINES)
    run_session(session, hooks(FakeArms(behaviour={"it's; odd": {"ctrl_c": 3}})))
    resumed = prepare(BenchOptions(resume=session.root), MACHINES)
    assert resumed.bench.precision == 0.04
    assert resumed.notes == session.notes[-1:]
    assert prepare(BenchOptions(resume=session.root, precision=0.1), MACHINES).bench.precision == 0.1
    assert prepare(BenchOptions(resume=session.root, rounds=9), MACHINES).bench.precision is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"precision": 0.01}, "--precision 1%: ratios of equal arms differ by up to 2%, .* give at least 3%"),
        ({"precision": 0.04, "patterns": ("one*",)}, "--precision 4%: only one arm can run here"),
    ],
)
def test_a_precision_that_cannot_be_reached_is_refused(
    options: BenchOptions, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TfdistError, match=sentence):
        prepare(replace(options, **change), MACHINES)


def test_the_default_suite_depends_on_the_machine() -> None:
    assert default_suite(MACHINES) == "cpu"
    assert default_suite(local_machines(Machine((0,), ("A",)))) == "gpu"
    two = {LOCAL: Machine((0,), ()), Host("h2", "10.0.0.2"): Machine((0,), ())}
    assert default_suite(two) == "hosts"
