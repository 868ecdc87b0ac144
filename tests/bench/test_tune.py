"""The search for the fastest options, with simulated arms."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.fake_arms import FakeArms
from tfdist.bench.folder import read_bench
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare
from tfdist.bench.suites.suite import adjust
from tfdist.bench.tune import faster_half, launch_words, search_arms, search_s, stages, tune
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines


@pytest.mark.parametrize(
    ("candidates", "expected"), [(1, [1]), (2, [2, 1]), (3, [3, 2, 1]), (7, [7, 4, 2, 1]), (8, [8, 4, 2, 1])]
)
def test_each_stage_has_half_of_the_candidates_until_one_is_left(candidates: int, expected: list[int]) -> None:
    assert list(stages(candidates)) == expected


def test_the_faster_half_stays_in_its_order() -> None:
    rates = {"default": {1: 10.0, 2: 10.0}, "a": {1: 9.0, 2: 11.0}, "b": {1: 8.0, 2: 8.0}, "c": {1: 12.0, 2: 20.0}}
    assert faster_half(rates, "default", ["a", "b", "c"]) == ("a", "c")
    assert faster_half(rates, "default", ["b", "a"]) == ("a",)


def test_the_mean_is_geometric() -> None:
    rates = {"default": {1: 1.0, 2: 1.0}, "a": {1: 1.0, 2: 16.0}, "b": {1: 5.0, 2: 5.0}}
    assert faster_half(rates, "default", ["a", "b"]) == ("b",)


def test_a_candidate_that_died_is_dropped() -> None:
    rates = {"default": {1: 10.0, 2: 10.0}, "a": {1: 99.0}, "b": {1: 1.0, 2: 1.0, 3: 1.0}}
    assert faster_half(rates, "default", ["a", "b", "c"]) == ("b",)
    assert faster_half(rates, "default", ["a"]) == ()


@given(st.dictionaries(st.text(min_size=1), st.floats(0.1, 1e6), min_size=1, max_size=9))
def test_nothing_that_is_dropped_is_faster_than_what_stays(figures: dict[str, float]) -> None:
    rates = {name: {1: figure} for name, figure in figures.items()}
    kept = faster_half({**rates, "": {1: 1.0}}, "", list(figures))
    assert len(kept) == math.ceil(len(figures) / 2)
    dropped = [figure for name, figure in figures.items() if name not in kept]
    assert max(dropped, default=0.0) <= min(figures[name] for name in kept)


MACHINES = local_machines(Machine((0, 1), ()))
CANDIDATES = ("a", "b", "c", "d")
NOISE = 0.02


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "knobs.toml"
    arms = [
        f'[[arms]]\nname = "{name}"\nstrategy = "mirrored"\ndevices = 2\nsteps_per_call = {number}\n'
        for number, name in enumerate(("default", *CANDIDATES), start=1)
    ]
    other = '[[arms]]\nname = "other"\nstrategy = "one-device"\n'
    path.write_text(f'preset = "smoke"\n{other}{"".join(arms)}')
    return prepare(BenchOptions(suite=str(path), out=tmp_path / "out", strategy="mirrored"), MACHINES)


def fakes(**arms: Any) -> FakeArms:
    defaults = {name: {"step_s": 0.1, "noise": NOISE} for name in ("default", *CANDIDATES)}
    return FakeArms(behaviour={name: {**values, **arms.get(name, {})} for name, values in defaults.items()})


def search(session: Session, arms: FakeArms) -> Any:
    return tune(session, RunnerHooks(Progress(), arms))


def test_the_fastest_candidate_is_found_and_compared_with_the_default(session: Session) -> None:
    arms = fakes(c={"step_s": 0.08}, d={"step_s": 0.095})
    tuning = search(session, arms)
    assert (tuning.default, tuning.best, tuning.gain) == ("default", "c", True)
    assert tuning.comparison.ratio == pytest.approx(1.25, rel=0.05)
    assert tuning.comparison.rounds == 12


def test_each_stage_keeps_the_faster_half_and_the_default(session: Session) -> None:
    arms = fakes(a={"step_s": 0.2}, b={"step_s": 0.2}, c={"step_s": 0.08}, d={"step_s": 0.09})
    search(session, arms)
    starts = [start.arm for start in arms.starts]
    assert sorted(starts[:5]) == [*CANDIDATES, "default"]
    assert sorted(starts[5:8]) == ["c", "d", "default"]
    assert sorted(starts[8:]) == ["c"] * 4 + ["default"] * 4, "as many starts as the suite has"
    bench = read_bench(session.root)
    assert bench is not None
    assert bench.suite.rounds == 3 + 3 + 12
    assert bench.ends == (3, 6, 9, 12, 15, 18)
    assert [run.round for run in bench.plan] == sorted(run.round for run in bench.plan)


def test_a_search_in_an_isolated_suite_can_be_read_again(session: Session) -> None:
    bench = replace(session.bench, suite=adjust(session.bench.suite, {"isolated": True}))
    search(replace(session, bench=bench), fakes(c={"step_s": 0.08}))
    found = read_bench(session.root)
    assert found is not None
    assert found.suite.isolated


def test_a_suite_that_compares_versions_is_searched_without_them(tmp_path: Path) -> None:
    path = tmp_path / "versions.toml"
    names = ("auto", "hierarchical-copy")
    arms = [f'{{ name = "{name}", strategy = "mirrored", cross_device = "{name}" }}' for name in names]
    path.write_text(f'against = "."\ncommand = ["true"]\narms = [{", ".join(arms)}]')
    session = prepare(BenchOptions(suite=str(path), out=tmp_path / "out", strategy="mirrored"), MACHINES)
    assert session.bench.suite.version_pairs == ()


def test_a_suite_that_explains_is_searched_without_the_arms_that_explain(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    arms = [
        f'{{ name = "{name}", strategy = "mirrored", devices = 2, cross_device = "{name}" }}'
        for name in ("auto", "nccl")
    ]
    path.write_text(f'preset = "smoke"\nexplain = true\narms = [{", ".join(arms)}]')
    session = prepare(BenchOptions(suite=str(path), out=tmp_path / "out", strategy="mirrored"), MACHINES)
    assert {arm.choices["strategy"] for arm in session.bench.suite.arms} == {"mirrored"}


def test_equal_candidates_have_no_measurable_gain(session: Session) -> None:
    tuning = search(session, fakes())
    assert tuning.best in CANDIDATES
    assert not tuning.gain


def test_candidates_that_do_not_fit_into_memory_together_are_compared_too(session: Session) -> None:
    """The default runs beside each group of arms."""
    arms = fakes(c={"step_s": 0.08})
    arms.box.gigabytes = 3.4
    tuning = search(session, arms)
    assert (tuning.best, tuning.gain) == ("c", True)


def test_candidates_that_die_are_dropped(session: Session) -> None:
    dead = {"ends": -1}
    tuning = search(session, fakes(a=dead, b=dead, c={"ends": 2, "step_s": 0.01}))
    assert tuning.best == "d"
    assert search_arms(session)[0] == "default"


def test_without_a_candidate_that_runs_there_is_no_gain(session: Session) -> None:
    tuning = search(session, fakes(**{name: {"ends": -1} for name in CANDIDATES}))
    assert (tuning.best, tuning.gain) == ("", False)


def test_without_the_default_there_is_nothing_to_compare_with(session: Session) -> None:
    with pytest.raises(TfdistError, match=r"the default arm default was not measured: see .*runs") as raised:
        search(session, fakes(default={"ends": -1}))
    assert raised.value.exit_code == 1


def test_ctrl_c_ends_the_search(session: Session) -> None:
    tuning = search(session, fakes(a={"ctrl_c": 2}))
    assert (tuning.interrupted, tuning.gain) == (2, False)
    bench = read_bench(session.root)
    assert bench is not None
    assert (bench.suite.rounds, bench.suite.incarnations) == (3, 1)


def test_the_estimate_covers_all_stages(session: Session) -> None:
    turns = (5 + 3) * 3 + 2 * 12
    assert search_s(session) > turns * session.bench.suite.turn_s


@pytest.mark.parametrize(
    ("arms", "strategy", "sentence"),
    [
        ('{ name = "a", strategy = "mirrored" }', "mirrored", "has only a to run here: nothing to tune"),
        ('{ name = "a", strategy = "mirrored" }', "mirored", "--strategy mirored: no arm of suite s; did you mean mirrored"),
        ('{ name = "a", strategy = "mirrored" }, { name = "b", strategy = "mirrored", devices = 2 }', "mirrored", "has only a"),
        ('{ name = "a", strategy = "mirrored", gpus = true }', "mirrored", "a: the arm needs GPUs"),
    ],
)  # fmt: skip
def test_a_search_without_candidates_is_refused(tmp_path: Path, arms: str, strategy: str, sentence: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"arms = [{arms}]\n")
    with pytest.raises(TfdistError, match=sentence):
        search_arms(prepare(BenchOptions(suite=str(path), out=tmp_path / "out", strategy=strategy), MACHINES))


def printed(suite: Path) -> str:
    """The command line of the only arm."""
    session = prepare(BenchOptions(suite=str(suite), out=suite.parent / "out"), MACHINES)
    (arm,) = session.bench.suite.arms
    return " ".join(launch_words(arm, "cpu", session.arms.specs[arm.name]))


def test_the_command_line_has_the_options_of_the_arm(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    choices = 'strategy = "multiworker", workers = 2, communication = "ring", gradient_dtype = "bfloat16", batch_size = 32, intra_op_threads = 2, xla = false'
    path.write_text(
        f'arms = [{{ name = "a", {choices}, timeout_collective_s = 5.0, dataset = "synthetic", evaluate_turns = false, count_updates = false }}]'
    )
    assert printed(path) == (
        "tfdist launch --strategy multiworker --preset cpu --workers 2 --communication ring "
        "--gradient-dtype bfloat16 --batch-size 32 --set intra_op_threads=2 --no-xla --set timeout_collective=5"
    )


def test_the_command_line_of_a_program_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('arms = [{ name = "a", strategy = "one-device", command = ["true", "--x"] }]')
    assert printed(path) == "tfdist launch --strategy one-device --set cores_per_device=1 -- true --x", (
        "as in the bench"
    )


def test_the_command_line_of_an_arm_on_several_hosts_names_them(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'arms = [{ name = "a", strategy = "multiworker", workers = 2, hosts = 2 }, { name = "b", strategy = "one-device" }]'
    )
    machines = {replace(next(iter(MACHINES)), name=name, local=False): Machine((0, 1), ()) for name in ("h1", "h2")}
    session = prepare(BenchOptions(suite=str(path), out=tmp_path / "out"), machines)
    lines = [
        " ".join(launch_words(arm, None, session.arms.specs[arm.name], ("--hosts", "h1,h2")))
        for arm in session.bench.suite.arms
    ]
    assert lines == [
        "tfdist launch --strategy multiworker --workers 2 --hosts h1,h2",
        "tfdist launch --strategy one-device",
    ]
