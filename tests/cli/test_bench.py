"""`tfdist bench` as it is typed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.conftest import save_record
from tests.bench.dashboards import load_bencher, load_github
from tests.bench.fake_arms import FakeArms
from tests.cli.screens import ARMS, HOSTS, broken
from tfdist.bench.folder import BenchPaths
from tfdist.bench.options import ScalingSweep
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.report.build import make_report
from tfdist.bench.report.summary import summarize
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session
from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import load_suite
from tfdist.cli.command import run
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machine, local_machines
from tfdist.models.record import Record, RecordStatus
from tfdist.strategies.options import StrategyName

pytestmark = pytest.mark.usefixtures("no_charts")

TINY = """
name = "tiny"
preset = "smoke"
rounds = 1
timeout = 120
[defaults]
model = "tiny"
[[arms]]
name = "one device"
strategy = "one-device"
[[arms]]
name = "two; it's"
strategy = "mirrored"
devices = 2
[[arms]]
name = "nccl"
strategy = "mirrored"
cross_device = "nccl"
"""


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)


WRONG = [
    (
        ["--suite", "smokey"],
        [
            "--suite smokey",
            "did you mean smoke? Choose from batch, classic, convergence, cpu, gpu, hosts, knobs, quick, smoke, storage, stragglers",
        ],
    ),
    (["--suite", "none.toml"], ["--suite none.toml", "No such file"]),
    (["--suite", "cpu", "--arm", "mirored/*"], ["'mirored/*'", "mirrored/auto"]),
    (["--suite", "cpu", "--rounds", "0"], ["--rounds 0"]),
    (["--suite", "cpu", "--rounds", "many"], ["--rounds", "integer"]),
    (["--suite", "cpu", "--out", "."], ["--out .", "not empty"]),
    (["--suite", "cpu", "--out", "tiny.toml/x"], ["tiny.toml", "is a file"]),
    (["--resume", "nowhere"], ["--resume nowhere", "bench.json"]),
    (["--workers-per-host", "2"], ["--workers-per-host"]),
    (["--suite", "cpu", "--turn", "0"], ["--turn 0", "must be positive"]),
    (["--suite", "cpu", "--turn", "soon"], ["--turn soon", "as 5s, 10m, 1h or 30d"]),
    (["--suite", "cpu", "--turn", "100ms"], ["--turn 0.1", "as long as a window"]),
    (["--suite", "cpu", "--budget", "-1m"], ["--budget -1m", "must be positive"]),
    (["--suite", "cpu", "--incarnations", "13"], ["--incarnations 13", "1 to the number of rounds, 12"]),
    (["--suite", "cpu", "--isolated", "--incarnations", "2"], ["--isolated", "omit --incarnations"]),
    (["--suite", "cpu", "--", "no-such-program"], ["'no-such-program' is not found"]),
    (["--suite", "cpu", "--", "python", "none.py"], ["'none.py' is not in"]),
    (["--suite", "tiny.toml", "--", "true"], ["arm 'one device', has model", "built-in training", "omit model"]),
    (["cpu"], ["cpu: unexpected argument; a suite is given with --suite cpu"]),
    (["--round", "3"], ["--round", "--rounds"]),
    (["--devices", "1,2"], ["--devices 1,2: name the strategy", "--strategy"]),
    (["--strategy", "mirored", "--devices", "1,2"], ["--strategy mirored: did you mean mirrored?"]),
    (["--strategy", "one-device", "--devices", "1,2"], ["--strategy one-device: ", "mirrored"]),
    (["--strategy", "mirrored"], ["--strategy mirrored: add --devices 1,2,4 for a sweep; or use --arm"]),
    (["--strategy", "mirrored", "--workers", "1,2"], ["--workers 1,2: a sweep of mirrored takes --devices"]),
    (["--strategy", "mirrored", "--devices", "2,1"], ["--devices 2,1: give integers in ascending order"]),
    (["--strategy", "mirrored", "--devices", "1,2", "--suite", "cpu"], ["--suite cpu: ", "omit one of them"]),
    (["--strategy", "mirrored", "--devices", "1", "--resume", "x"], ["--resume x: ", "omit --strategy"]),
    (["--against", "HEAD~1"], ["--against HEAD~1: not a git revision here (not a git repository"]),
    (["--against", "."], ["--against .: compares versions of your own program", "after --"]),
    (["--suite", "cpu", "--fail-slower", "5%"], ["--fail-slower 5%: name the version", "--against"]),
    (["--against", ".", "--fail-slower", "5", "--", "true"], ["--fail-slower 5: give a share", "as 5% or 0.05"]),
    (["--suite", "cpu", "--baseline", "mirored/auto"], ["--baseline mirored/auto: did you mean mirrored/auto?"]),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=lambda value: " ".join(value))
def test_wrong_input_is_one_sentence_and_starts_nothing(
    arguments: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tfdist: ")
    assert printed.err.count("\n") == 1
    for word in words:
        assert word in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


def test_tf_config_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert run(["bench", "--suite", "smoke"]) == 2
    assert "TF_CONFIG" in capsys.readouterr().err


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "tiny.toml", "--rounds", "2", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "suite tiny: 3 arms x 2 rounds of 2.5 s, weak scaling, seed 0"
    assert re.match(
        r"4 turns in 2 starts of the processes, at most about \d+ (s|min); results in bench_results/", lines[1]
    )
    assert lines[2].startswith("refused: nccl: ")
    assert sum("start 2, round 2 " in line for line in lines) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_in_the_plan(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [arm for arm in ARMS if len(arm) < width - len("     ")]
    tables = [f"[[arms]]\nname = {arm!r}\nstrategy = 'one-device'\n" for arm in arms]
    refused = f"[[arms]]\nname = 'mirrored/{HOSTS[0]}'\nstrategy = 'mirrored'\ncross_device = 'nccl'\n"
    (tmp_path / "long.toml").write_text("rounds = 1\n" + "".join(tables) + refused)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["bench", "--suite", "long.toml", "--dry-run"]) == 0
    assert broken([*arms, f"mirrored/{HOSTS[0]}"], capsys.readouterr().out, width) == []


def test_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "tiny.toml", "--dry-run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert sorted(entry["arm"] for entry in printed["plan"]) == ["one device", "two; it's"]
    assert list(printed["refused"]) == ["nccl"]
    assert 10 < printed["estimate_s"] < 100


def test_a_bench_starts_with_the_purpose_of_its_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "smoke", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == load_suite("smoke").description
    assert lines[1].startswith("For CI: ")
    assert "--suite quick (make bench)" in lines[1]


@pytest.mark.parametrize(
    ("strategy", "option", "counts"),
    [("mirrored", "devices", (1, 2)), ("central-storage", "devices", (2,)), ("multiworker", "workers", (1, 2)),
     ("parameter-server", "workers", (1, 2, 4)), ("independent", "workers", (2, 4))],
)  # fmt: skip
def test_a_scaling_sweep_compares_each_number_with_one_device(
    strategy: str, option: str, counts: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--strategy", strategy, f"--{option}", ",".join(map(str, counts)), "--rounds", "1", "--dry-run", "--json"]
    assert run(["bench", *words]) == 0
    plan = json.loads(capsys.readouterr().out)
    names = [f"{strategy}/{count}" for count in counts]
    assert [arm["name"] for arm in plan["suite"]["arms"]] == ["one-device", *names]
    assert plan["suite"]["baseline"] == "one-device"
    specs = {entry["arm"]: entry["spec"] for entry in plan["plan"]}
    assert [specs[name][option] for name in names] == list(counts)


def test_a_sweep_over_hosts_uses_as_many_as_it_has_workers() -> None:
    arms = ScalingSweep(StrategyName.MULTI_WORKER, (1, 2, 8)).suite(4).arms
    assert [arm.hosts for arm in arms] == [1, 1, 2, 4]


def test_a_sweep_of_more_gpus_than_there_are_refuses_those_arms() -> None:
    suite = ScalingSweep(StrategyName.MIRRORED, (1, 2, 4)).suite(1)
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ("A", "B"))), suite.preset)
    assert list(arms.refused) == ["mirrored/4"]


def test_help_is_in_the_order_in_which_people_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    places = [
        text.index(f"│ {flag} ")
        for flag in ("--suite", "--arm", "--rounds", "--hosts", "--chdir", "--out", "--start-timeout")
    ]
    assert places == sorted(places)


def test_options_have_environment_twins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TFDIST_SUITE", "tiny.toml")
    monkeypatch.setenv("TFDIST_ROUNDS", "4")
    assert run(["bench", "--dry-run"]) == 0
    assert "3 arms x 4 rounds" in capsys.readouterr().out


def test_an_arm_that_no_machine_could_run_is_an_error_of_the_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = '[[arms]]\nname = "data"\nstrategy = "one-device"\ndataset = "folder:/nowhere"\n'
    (tmp_path / "bad.toml").write_text(TINY + arm)
    assert run(["bench", "--suite", "bad.toml", "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfdist: arm 'data': ")
    assert "/nowhere" in error
    assert not (tmp_path / "out").exists()


def test_a_short_budget_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "tiny.toml", "--budget", "2s", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "3 arms x 1 round " in printed
    assert "warning: --budget 2 s: the first round takes about" in printed


def test_a_budget_is_filled_with_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "tiny.toml", "--budget", "1h", "--dry-run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["suite"]["rounds"] > 100
    assert 3400 < printed["estimate_s"] <= 3600


def test_your_own_program_replaces_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("import tfdist.measure")
    words = ["bench", "--suite", "cpu", "--dry-run", "--json", "--", "python", "train.py", "--token", "abc", "--json"]
    assert run(words) == 0
    printed = capsys.readouterr().out
    plan = json.loads(printed)
    assert {tuple(arm["command"]) for arm in plan["suite"]["arms"]} == {
        ("python", "train.py", "--token", "***", "--json")
    }
    assert "abc" not in printed
    assert {entry["spec"]["cores_per_device"] for entry in plan["plan"]} == {1}


def test_refused_arms_are_named_even_if_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tfdist.cli.bench.run_session", save_nothing)
    (tmp_path / "gpus.toml").write_text('arms = [{ name = "a", strategy = "one-device", gpus = true }]')
    assert run(["bench", "--suite", "gpus.toml", "--out", "out", "--quiet"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "refused: a: the arm needs GPUs and this machine has none: run it on one that has"
    ]


def test_a_bench_that_is_interrupted_before_its_first_turn_has_no_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tfdist.cli.bench.run_session", lambda session, *_: save_nothing(session) or 130)
    assert run(["bench", "--suite", "smoke", "--out", "out", "--quiet"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "no turn was measured: no report",
        "10 of 10 turns left; to continue: tfdist bench --resume out",
    ]


def test_the_command_of_a_bench_is_that_of_the_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["other.py", "--odd"])
    monkeypatch.setattr("tfdist.cli.bench.run_session", save_nothing)
    run(["bench", "--suite", "tiny.toml", "--arm", "one device", "--out", "out", "--quiet"])
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["command"] == (
        "tfdist bench --suite tiny.toml --arm 'one device' --out out --quiet"
    )


def test_a_resume_says_which_turns_it_measures_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = RunnerHooks(Progress(), FakeArms(behaviour={"two; it's": {"ends": -1}}))
    monkeypatch.setattr("tfdist.cli.bench.run_session", lambda session, *_: run_session(session, fails))
    assert run(["bench", "--suite", "tiny.toml", "--out", "out", "--quiet"]) == 1
    assert "1 of 2 turns left" in capsys.readouterr().err
    assert run(["bench", "--resume", "out", "--dry-run"]) == 0
    assert "\n1 turn left of 2, and 1 repeated for comparison, in 1 start of" in capsys.readouterr().out


@pytest.mark.parametrize(("step_s", "code"), [(0.115, 1), (0.1, 0)])
def test_a_gate_compares_each_arm_with_its_base(
    step_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour = {"one-device": {"step_s": step_s, "noise": 0.005}, "one-device (base)": {"noise": 0.005}}
    fakes = RunnerHooks(Progress(), FakeArms(behaviour=behaviour))
    monkeypatch.setattr("tfdist.cli.bench.run_session", lambda session, *_: run_session(session, fakes))
    monkeypatch.setattr("tfdist.cli.bench.report_on", lambda session, *_: make_report([session.root]))
    (tmp_path / "train.py").write_text("import tfdist.measure")
    words = ["--suite", "cpu", "--arm", "one-device", "--against", ".", "--fail-slower", "5%", "--out", "out"]
    assert run(["bench", *words, "--json", "--", "python", "train.py"]) == code
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out.splitlines()[-1])["versions"]
    assert (row["arm"], row["too_slow"]) == ("one-device", code == 1)
    answer = (
        "Slower than the bound of 5 %: one-device." if code else "Not slower than the bound of 5 %: 1 arm compared."
    )
    assert answer in printed.err.splitlines()


MISSING = "Inconclusive: {} may be slower by more than 5 %; measure more starts."


@pytest.mark.parametrize(
    ("rounds", "ends", "said"),
    [
        (0, {}, "no turn was measured: no report"),
        (2, {}, MISSING.format("one-device, mirrored/auto")),
        (4, {"one-device (base)": {"ends": -1}}, MISSING.format("one-device")),
    ],
)
def test_a_gate_that_lacks_an_arm_does_not_pass(
    rounds: int,
    ends: dict[str, dict[str, int]],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fakes = RunnerHooks(Progress(), FakeArms(behaviour=ends))
    saved = (lambda session, *_: run_session(session, fakes) * 0) if rounds else save_nothing
    monkeypatch.setattr("tfdist.cli.bench.run_session", saved)
    if rounds:
        monkeypatch.setattr("tfdist.cli.bench.report_on", lambda session, *_: make_report([session.root]))
    words = ["--arm", "one-device", "--arm", "mirrored/auto", "--rounds", str(rounds or 1), "--against", "."]
    assert run(["bench", "--suite", "cpu", *words, "--fail-slower", "5%", "--", "true"]) == 3
    assert said in "".join(capsys.readouterr()).splitlines()


def test_a_gate_passes_without_the_arms_that_the_machine_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = {"noise": 0.002}
    fakes = RunnerHooks(Progress(), FakeArms(behaviour={"a": noise, "a (base)": noise}))
    monkeypatch.setattr("tfdist.cli.bench.run_session", lambda session, *_: run_session(session, fakes))
    monkeypatch.setattr("tfdist.cli.bench.report_on", lambda session, *_: make_report([session.root]))
    (tmp_path / "train.py").write_text("import tfdist.measure")
    arms = '{ name = "a", strategy = "one-device" }, { name = "b", strategy = "one-device", gpus = true }'
    (tmp_path / "some.toml").write_text(f'preset = "smoke"\narms = [{arms}]')
    words = ["--suite", "some.toml", "--against", ".", "--fail-slower", "5%", "--out", "out"]
    assert run(["bench", *words, "--json", "--", "python", "train.py"]) == 0, capsys.readouterr()
    assert [row["arm"] for row in json.loads(capsys.readouterr().out.splitlines()[-1])["versions"]] == ["a"]


@pytest.mark.parametrize(("form", "load"), [("bencher", load_bencher), ("github", load_github)])
def test_export_prints_figures_that_dashboards_load(
    form: str,
    load: Callable[[Any], dict[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fakes = RunnerHooks(Progress(), FakeArms())
    monkeypatch.setattr("tfdist.cli.bench.run_session", lambda session, *_: run_session(session, fakes))
    monkeypatch.setattr(
        "tfdist.cli.bench.report_on",
        lambda session, *_: SimpleNamespace(rows=summarize([read_folder(session.root, "")])),
    )
    (tmp_path / "train.py").write_text("import tfdist.measure")
    words = ["--suite", "cpu", "--arm", "one-device", "--against", ".", "--quiet", "--export", form]
    assert run(["bench", *words, "--", "python", "train.py"]) == 0
    found = load(json.loads(capsys.readouterr().out))
    ratio = {"bencher": [], "github": ["one-device: ratio"]}[form]  # with Bencher a measure of the arm
    assert list(found) == ["one-device", "one-device (base)", *ratio]


def save_nothing(session: Session, *_: object) -> int:
    """As a bench without turns: bench.json, and a record of each refused arm."""
    paths = BenchPaths(session.root)
    save_json(paths.bench, session.bench.to_json())
    for arm, reason in session.arms.refused.items():
        save_record(session.root, Record(arm, 1, {"strategy": "one-device"}, RecordStatus.REFUSED, reason, 2))
    return 0


@pytest.mark.thorough
def test_a_real_bench_ends_with_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfdist.cli", "bench", "--suite", "tiny.toml", "--out", "it's; out", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert [(row["arm"], row["status"]) for row in printed["rows"]] == [
        ("one device", "ok"), ("two; it's", "ok"), ("nccl", "refused")]  # fmt: skip
    assert all(row["images_per_s"] > 0 for row in printed["rows"][:2])
    assert (tmp_path / "it's; out" / "report.md").exists()
    assert (tmp_path / "it's; out" / "images_per_s.png").exists()
