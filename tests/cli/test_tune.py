"""`tfdist tune` as it is typed."""

import json
from pathlib import Path

import pytest

from tests.bench.fake_arms import FakeArms
from tfdist.bench.runner import RunnerHooks
from tfdist.cli.command import run

SUITE = """
preset = "smoke"
[matrix]
strategy = [{ name = "default", strategy = "mirrored", devices = 2 },
            { name = "copy", strategy = "mirrored", devices = 2, cross_device = "hierarchical-copy" }]
"""


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text(SUITE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--strategy: missing option; see 'tfdist tune --help'"]),
        (["--strategy", "tpu", "--suite", "two.toml"], ["--strategy tpu", "choose from mirrored"]),
        (["--strategy", "mirrored", "--suite", "none.toml"], ["--suite none.toml"]),
        (["--strategy", "mirrored", "--suite", "two.toml", "--turn", "0"], ["--turn 0", "positive"]),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("tfdist: ")
    assert printed.err.count("\n") == 1
    assert all(word in printed.err for word in words)


def test_dry_run_shows_the_search_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--strategy", "mirrored", "--suite", "two.toml", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["suite two: 1 candidate and the default, default", "candidates: copy"]
    assert [path.name for path in tmp_path.iterdir()] == ["two.toml"]


def test_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--strategy", "mirrored", "--suite", "two.toml", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["default"], found["candidates"], found["stages"]) == ("default", ["copy"], [1])
    assert found["estimate_s"] > 0


@pytest.mark.parametrize("step_s", [0.05, 0.1])
def test_a_gain_is_printed_as_a_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step_s: float
) -> None:
    arms = FakeArms(behaviour={"copy": {"step_s": step_s, "noise": 0.02}, "default": {"noise": 0.02}})
    monkeypatch.setattr(
        "tfdist.cli.tune.RunnerHooks", lambda progress, policy: RunnerHooks(progress, arms, policy=policy)
    )
    words = ["tune", "--strategy", "mirrored", "--suite", "two.toml", "--out"]
    assert run([*words, "a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    command = "tfdist launch --strategy mirrored --preset smoke --devices 2 --cross-device hierarchical-copy"
    assert (found["best"], found["gain"], found["command"]) == ("copy", step_s < 0.1, command if step_s < 0.1 else "")
    assert run([*words, "b"]) == 0
    text = capsys.readouterr().out
    assert (f"  {command}\n" if step_s < 0.1 else "no measurable gain over the defaults (default); copy: ") in text
