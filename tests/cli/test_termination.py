"""Bytes that are not UTF-8, from a task or an argument: they change neither the exit code nor the sentence about it."""

import json
import os
import re
import subprocess
import sys

import pytest

LAUNCH = (os.fsencode(sys.executable), b"-m", b"tfdist.cli", b"launch", b"--json")
FAILS = (b"--strategy", b"one-device", b"--", b"sh", b"-c", rb"printf 'ValueError: caf\351\n' >&2; exit 3")


@pytest.fixture(params=["outside", "in a pod"])
def log(_elsewhere, request, tmp_path, monkeypatch):
    """The termination log; it is written in a pod only."""
    file = tmp_path / "termination-log"
    if request.param == "in a pod":
        monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(file))
    return file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TFDIST_TERMINATION_LOG", raising=False)
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")


def launch(*arguments):
    """The exit code, the JSON line and stderr."""
    done = subprocess.run([*LAUNCH, *arguments], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_the_last_words_of_a_task_are_its_reason(log, tmp_path):
    code, result, err = launch(*FAILS)
    assert (code, result["exit_code"]) == (3, 3)
    assert "Traceback" not in err
    assert "tfdist: worker-0 exited with code 3: ValueError: caf" in err
    outcome = json.loads((tmp_path / result["run_dir"] / "outcome.json").read_text(encoding="utf-8"))
    assert outcome["reason"] == result["reason"]
    check(
        log, r"exit code 3: worker-0 exited with code 3: ValueError: caf.\n\| ValueError: caf.\n(hint: .+\n)*logs: .+\n"
    )


def test_a_wrong_argument_is_refused_in_one_sentence(log):
    code, result, err = launch(b"--dataset", b"caf\xe9")
    assert (code, result["status"], err.count("\n")) == (2, "refused", 1)
    assert re.match(r"tfdist: --dataset caf(.|\\udce9): unknown", err)
    check(log, r"exit code 2: --dataset caf.: unknown.*")


def check(log, pattern):
    """Check what was written, if anything was to be."""
    if "TFDIST_TERMINATION_LOG" in os.environ:
        assert re.fullmatch(pattern, log.read_text(encoding="utf-8"))
    else:
        assert not log.exists()
