"""`tfdist check` from its words to its rows, with a real program that trains nothing."""

import json
import subprocess
import sys

import pytest

from tfdist.cli.command import run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


def test_each_strategy_has_a_row_and_a_bench_too(folder, capsys):
    assert run(["check", "--strategy", "one-device", "train.py"]) == 0
    one, bench = capsys.readouterr().out.splitlines()
    assert one.split(maxsplit=2) == ["ok", "one-device", "it ran without a failure"]
    assert bench.startswith("warning  bench")
    assert "train.py: no step would be measured -> call tfdist.measure.steps()" in bench
    assert list(folder.glob("tfdist-check-*")) == []


def test_a_failure_has_its_logs_and_exit_code_1(folder, capsys):
    (folder / "train.py").write_text("raise ValueError('no label')\n")
    assert run(["check", "--json", "--strategy", "one-device", "--", "python", "train.py"]) == 1
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["exit_code"] == 1
    assert result["checks"][0]["verdict"] == "failed"
    assert "ValueError: no label" in result["checks"][0]["text"]
    (logs,) = folder.glob("tfdist-check-*")
    assert f"logs: {logs}" in err
    assert "no label" in next(logs.rglob("stderr.log")).read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no program: name one, as in 'tfdist check train.py'"),
        (["--strategy", "mirorred", "train.py"], "--strategy mirorred: did you mean mirrored?"),
        (["no-such.py"], "the script 'no-such.py' is not in"),
        (["--timeout", "0", "train.py"], "--timeout 0: must be positive"),
    ],
)
def test_wrong_words_get_a_sentence(words, sentence, folder, capsys):
    assert run(["check", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert list(folder.glob("tfdist-check-*")) == []


def test_without_a_safe_folder_for_temporary_files_it_is_refused(folder, monkeypatch, capsys):
    monkeypatch.setattr("tfdist.launch.agent_program.system.why_unsafe", lambda _: "every user may rename all")
    assert run(["check", "train.py"]) == 2
    sentence = "no safe folder for temporary files: every user may rename all, or set TMPDIR to one of your own"
    assert capsys.readouterr().err.splitlines()[-1] == f"tfdist: {sentence}"


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_shows_what_is_known(folder, survivors):
    (folder / "train.py").write_text(
        "print('x', flush=True)\nopen('started', 'w').close()\nimport time\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "tfdist", "check", "--strategy", "one-device", "train.py"]
    watch = (
        "import os, signal, subprocess, sys, time\n"
        "process = subprocess.Popen(sys.argv[1:])\n"
        "while not os.path.exists('started'): time.sleep(0.05)\n"
        "process.send_signal(signal.SIGINT)\nsys.exit(process.wait(60))\n"
    )
    done = subprocess.run([sys.executable, "-c", watch, *command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 130, done.stderr
    assert "logs: " in done.stderr
    assert survivors() == []
