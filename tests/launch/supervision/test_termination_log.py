import json
import os
import re
import subprocess
import sys

import pytest

from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.supervision import termination_log
from tfdist.launch.supervision.termination_log import LIMIT, ended, find, short_form, write

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


@pytest.mark.slow
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


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
FAILED = Outcome(Status.FAILED, 1, "worker-1 exited with code 1: ValueError", run_dir="runs/a")


def test_the_file_of_a_pod_is_found(tmp_path):
    file = tmp_path / "termination-log"
    assert find(POD, file) is None
    file.touch()
    assert find(POD, file) == file
    assert find({}, file) is None
    assert find({"TFDIST_TERMINATION_LOG": "/x"}, file).as_posix() == "/x"


def test_the_short_form_has_the_reason_and_the_end_of_the_traceback():
    outcome = Outcome(
        Status.FAILED, 1, "r", log=tuple(f"line {n} \u00e4" for n in range(1000)), hints=("do this",), run_dir="runs/a"
    )
    text = short_form(outcome, 1, "worker-1 exited with code 1: TOKEN=secret")
    lines = text.splitlines()
    assert lines[0] == "exit code 1: worker-1 exited with code 1: TOKEN=***"
    assert lines[-3:] == ["| line 999 \u00e4", "hint: do this", "logs: runs/a"]
    assert LIMIT - 20 < len(text.encode()) <= LIMIT


def test_a_short_traceback_is_kept_whole():
    text = short_form(Outcome(Status.FAILED, 1, "r", log=("a", "b"), run_dir="runs/a"), 1, "r")
    assert text == "exit code 1: r\n| a\n| b\nlogs: runs/a\n"


def test_the_short_form_says_how_the_others_ended_and_why_there_was_no_restart():
    outcome = Outcome(
        Status.FAILED,
        1,
        "r",
        log=("a",),
        hints=("do this",),
        casualties={"worker-0": "stopped by tfdist", "worker-2": "stopped by tfdist"},
        warnings=("left over",),
        run_dir="runs/a",
        not_restarted="--max-restarts 1 is used up",
    )
    assert short_form(outcome, 1, "r").splitlines()[1:] == [
        "| a",
        "hint: do this",
        "then worker-0 and worker-2 stopped by tfdist",
        "not restarted: --max-restarts 1 is used up",
        "logs: runs/a",
    ]


def test_the_hints_and_the_logs_are_kept_however_the_others_ended():
    ended_by = {f"worker-{number}": f"exited with code {number}: {'x' * 500}" for number in range(100)}
    outcome = Outcome(Status.FAILED, 1, "r", log=("a",) * 200, hints=("h",), casualties=ended_by, run_dir="runs/a")
    lines = short_form(outcome, 1, "r").splitlines()
    assert [line for line in lines if not line.startswith("then ")] == ["exit code 1: r", "hint: h", "logs: runs/a"]
    assert lines[-2].startswith("then worker-9 exited with code 9")


def test_a_long_reason_leaves_room():
    assert len(ended(1, "\u00e4" * LIMIT).encode()) <= LIMIT // 2
    assert short_form(FAILED, 1, "\u00e4" * LIMIT).endswith("logs: runs/a\n")


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path, monkeypatch):
    assert ended(3, "caf\udce9 \ud800") == "exit code 3: caf\ufffd \ufffd"
    outcome = Outcome(Status.FAILED, 3, "r", log=("b\udcff",), hints=("h\udcff",), run_dir="runs/\udcff")
    assert short_form(outcome, 3, "a\udcff") == "exit code 3: a\ufffd\n| b?\nhint: h?\nlogs: runs/?\n"
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(tmp_path / "log"))
    write("a\udcff")
    assert (tmp_path / "log").read_bytes() == b"a?"


def test_success_is_short():
    assert short_form(Outcome(Status.OK, 0, "", run_dir="runs/a", wall_s=12.0), 0, "") == (
        "exit code 0: done in 12 s\nlogs: runs/a\n"
    )


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, capsys):
    write("x")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(tmp_path))
    write("x")
    assert capsys.readouterr().err == f"warning: {tmp_path}: Is a directory: cannot write how the job ended\n"


def test_a_link_at_another_file_is_replaced(tmp_path, monkeypatch):
    victim, log = tmp_path / "victim", tmp_path / "log"
    victim.write_text("mine")
    log.symlink_to(victim)
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(log))
    write("x")
    assert (victim.read_text(), log.read_text(), log.is_symlink()) == ("mine", "x", False)


def test_a_device_or_a_pipe_is_written_to_and_not_replaced(tmp_path, monkeypatch, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(pipe))
    write("how it ended")
    assert os.read(reader, 99) == b"how it ended"
    os.close(reader)
    write("nobody reads it")
    assert "cannot write how the job ended" in capsys.readouterr().err
    (tmp_path / "null").symlink_to("/dev/null")
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(tmp_path / "null"))
    write("nowhere")
    assert pipe.is_fifo()
    assert (tmp_path / "null").is_char_device()


def test_a_link_at_the_file_of_kubernetes_is_a_warning(tmp_path, monkeypatch, capsys):
    victim, log = tmp_path / "victim", tmp_path / "log"
    victim.write_text("mine")
    log.symlink_to(victim)
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(log))
    monkeypatch.setattr(termination_log, "DEFAULT", log)
    write("x")
    assert victim.read_text() == "mine"
    assert capsys.readouterr().err.startswith(f"warning: {log}: Too many levels of symbolic links")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_file_that_is_mounted_is_written_in_place(tmp_path):
    """As the kubelet does it: another name of the file must have the content."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.write_text("before")
    inside.touch()
    code = "from tfdist.launch.supervision.termination_log import write; write('exit code 0')"
    script = 'mount --bind "$1" "$2" && TFDIST_TERMINATION_LOG="$2" exec "$3" -c "$4"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(outside), str(inside), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True)
    if "mount" in done.stderr and "permission denied" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    assert outside.read_text() == "exit code 0"
