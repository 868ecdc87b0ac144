"""`tfdist.bench.run`, with simulated arms."""

import inspect
import time

import pytest

import tfdist.bench
import tfdist.measure
from tests.bench.fake_arms import FakeArms
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.python_api import run_options
from tfdist.bench.runner import RunnerHooks
from tfdist.cli.command import run
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines

pytestmark = pytest.mark.slow

SUITE = """
preset = "smoke"
rounds = 3
[[arms]]
name = "one"
strategy = "one-device"
[[arms]]
name = "two"
strategy = "mirrored"
devices = 2
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    return path


def test_the_folder_of_a_bench_can_be_loaded(suite, tmp_path):
    options = BenchOptions(suite=str(suite), rounds=2, incarnations=1, out=tmp_path / "out")
    folder = run_options(options, local_machines(Machine((0, 1), ())), RunnerHooks(Progress(), FakeArms()))
    assert folder == tmp_path / "out"
    assert (folder / "report.md").exists()
    assert set(tfdist.bench.load(folder)["arm"]) == {"one", "two"}
    assert len(tfdist.bench.load(folder, rows="turns")) == 4


def test_ctrl_c_keeps_the_turns_and_is_raised(suite, tmp_path):
    options = BenchOptions(suite=str(suite), incarnations=1, out=tmp_path / "out")
    hooks = RunnerHooks(Progress(), FakeArms(behaviour={"two": {"ctrl_c": 3}}))
    with pytest.raises(KeyboardInterrupt):
        run_options(options, local_machines(Machine((0, 1), ())), hooks)
    assert 0 < len(tfdist.bench.load(tmp_path / "out", rows="turns")) < 6


def test_wrong_arguments_are_a_sentence(suite, tmp_path):
    with pytest.raises(TfdistError, match="--rounds 0"):
        tfdist.bench.run(suite, rounds=0)
    with pytest.raises(TfdistError, match="no-such"):
        tfdist.bench.run("no-such")
    with pytest.raises(TfdistError, match="matches no arm"):
        tfdist.bench.run(suite, arms=["three"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_its_arguments_are_documented():
    documentation = inspect.getdoc(tfdist.bench.run)
    assert all(f"{name}:" in documentation for name in inspect.signature(tfdist.bench.run).parameters)


def train(examples):
    for _ in tfdist.measure.steps(range(100), examples=examples):
        time.sleep(0.002)


def test_a_function_is_measured_and_can_be_resumed_by_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "mine.toml"
    suite.write_text(
        "rounds = 2\nturn = 0.5\nwarmup = 0.1\nincarnations = 1\n[[arms]]\nname = 'one'\nstrategy = 'external'\n"
    )
    folder = tfdist.bench.run(suite, program=train, args=(16,), copy=True, out="out")
    (arm,) = tfdist.bench.load(folder).to_dict("records")
    assert arm["status"] == "ok"
    assert 0 < arm["images_per_s"] < 8000
    assert run(["bench", "--resume", "out", "--rounds", "3"]) == 0
    assert len(tfdist.bench.load(folder, rows="turns")) == 3


def test_a_function_may_be_the_first_argument(tmp_path):
    with pytest.raises(TfdistError, match="matches no arm"):
        tfdist.bench.run(train, args=(16,), arms=["none"], out=tmp_path / "out")
    with pytest.raises(TypeError, match=r"^tfdist.bench.run: train: missing a required argument: 'examples'"):
        tfdist.bench.run(train, out=tmp_path / "out")


def test_what_is_no_program_is_a_type_error(tmp_path):
    with pytest.raises(TypeError, match="give a function, or the words of a command"):
        tfdist.bench.run(program="python train.py", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
