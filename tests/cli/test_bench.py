"""`tfdist bench` as it is typed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.bench.suites.suite import load_suite
from tfdist.cli.main import run

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
    (["--suite", "smokey"], ["--suite smokey", "did you mean smoke? Choose from cpu, gpu, hosts, smoke"]),
    (["--suite", "none.toml"], ["--suite none.toml", "No such file"]),
    (["--suite", "cpu", "--arm", "mirored/*"], ["'mirored/*'", "mirrored/auto"]),
    (["--suite", "cpu", "--rounds", "0"], ["--rounds 0"]),
    (["--suite", "cpu", "--rounds", "many"], ["--rounds", "integer"]),
    (["--suite", "cpu", "--out", "."], ["--out .", "not empty"]),
    (["--suite", "cpu", "--out", "tiny.toml/x"], ["tiny.toml", "is a file"]),
    (["--resume", "nowhere"], ["--resume nowhere", "bench.json"]),
    (["--workers-per-host", "2"], ["--workers-per-host"]),
    (["--round", "3"], ["--round", "--rounds"]),
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
    assert re.match(r"4 turns in 2 starts of the processes, about \d+ (s|min); results in bench_results/", lines[1])
    assert lines[2].startswith("refused: nccl: ")
    assert sum("start 2, round 2 " in line for line in lines) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


def test_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "tiny.toml", "--dry-run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert sorted(entry["arm"] for entry in printed["plan"]) == ["one device", "two; it's"]
    assert list(printed["refused"]) == ["nccl"]
    assert 20 < printed["estimate_s"] < 200


def test_a_bench_starts_with_the_purpose_of_its_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--suite", "smoke", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == load_suite("smoke").description
    assert "--suite cpu (make bench SUITE=cpu)" in lines[1]


def test_help_starts_with_the_suite_and_ends_with_the_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"│ {flag} ") for flag in ("--suite", "--arm", "--rounds", "--out", "--hosts", "--chdir")]
    assert places == sorted(places)


def test_options_have_environment_twins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TFDIST_SUITE", "tiny.toml")
    monkeypatch.setenv("TFDIST_ROUNDS", "4")
    assert run(["bench", "--dry-run"]) == 0
    assert "3 arms x 4 rounds" in capsys.readouterr().out


@pytest.mark.slow
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
