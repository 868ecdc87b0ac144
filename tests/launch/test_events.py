"""Events of real programs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tfdist.launch import events
from tfdist.launch.events import MOST_MESSAGE

PROGRAM = """
import os, signal, sys
{before}
from tfdist.launch.events import SIGNAL, dump_on_request
dump_on_request()
dump_on_request()
if signal.getsignal(SIGNAL) is signal.SIG_DFL and "raise" in sys.argv:
    signal.raise_signal(SIGNAL)
"""


def run(*arguments, before="", stacks=True):
    """The events and stacks that the program sends, and its exit code."""
    (events, events_end), (dump, dump_end) = os.pipe(), os.pipe()
    env = {**os.environ, "TFDIST_EVENTS_FD": str(events_end)}
    env |= {"TFDIST_STACKS_FD": str(dump_end)} if stacks else {}
    argv = [sys.executable, "-c", PROGRAM.format(before=before), *arguments]
    process = subprocess.Popen(argv, env=env, pass_fds=(events_end, dump_end))
    os.close(events_end)
    os.close(dump_end)
    with os.fdopen(events) as lines, os.fdopen(dump) as text:
        return [json.loads(line) for line in lines], text.read(), process.wait(), process.pid


def test_the_signal_writes_the_stacks_and_is_announced_once():
    events, text, code, pid = run("raise")
    assert events == [{"event": "stacks", "signal": signal.SIGRTMAX - 3, "pid": pid}]
    assert "most recent call first" in text
    assert "in <module>" in text
    assert code == 0


def test_a_handler_of_the_program_stays():
    events, text, _, _ = run("raise", before="signal.signal(signal.SIGRTMAX - 3, lambda *_: None)")
    assert (events, text) == ([], "")


def test_without_the_descriptor_nothing_is_registered():
    assert run(stacks=False)[:3] == ([], "", 0)


def test_a_descriptor_that_is_no_pipe_is_left_alone(tmp_path):
    other = f"os.environ['TFDIST_STACKS_FD'] = str(os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY))"
    assert run(before=other)[0] == []
    assert run(before="os.environ['TFDIST_STACKS_FD'] = '999'")[0] == []


REPORTS = "from tfdist.launch.events import report_failures\nreport_failures()\nreport_failures()\n"


def ended(code, folder):
    """A program that has ended, and the same one without a launcher; and the events of the first."""
    (folder / "train.py").write_text(REPORTS + code)
    read, write = os.pipe()
    argv, env = [sys.executable, "train.py"], {**os.environ, "TFDIST_EVENTS_FD": str(write)}
    launched = subprocess.run(argv, cwd=folder, env=env, pass_fds=[write], capture_output=True, text=True)
    os.close(write)
    with os.fdopen(read) as lines:
        events = [json.loads(line) for line in lines]
    del env["TFDIST_EVENTS_FD"]
    alone = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    assert (launched.returncode, launched.stdout, launched.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    return launched, events


def test_a_process_that_a_task_has_started_sends_nothing(tmp_path, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(write))
    events.emit("ready")
    with (tmp_path / "file").open("wb") as file:  # has the number now
        monkeypatch.setenv("TFDIST_EVENTS_FD", str(file.fileno()))
        events.emit("ready")
    assert (tmp_path / "file").read_bytes() == b""


def test_an_exception_is_reported_and_printed_as_always(tmp_path):
    done, events = ended("import json\ndef load():\n    json.loads('[')\nload()", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    (event,) = events
    assert (event["event"], event["type"], event["where"]) == ("failed", "JSONDecodeError", "train.py:6")
    assert event["message"] in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "raise SystemExit(3)",
        "raise KeyboardInterrupt",
        "import sys; sys.exit('text')",
        "import threading; thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
        "import os\npid = os.fork()\nif not pid: 1 / 0\nos.waitpid(pid, 0)",
    ],
)
def test_what_does_not_end_the_program_with_an_exception_is_not_reported(code, tmp_path):
    assert ended(code, tmp_path)[1] == []


def test_causes_are_reported_and_long_messages_are_cut(tmp_path):
    code = "try:\n    raise OSError('a' * 9000 + 'end')\nexcept OSError as error:\n    raise RuntimeError('outer') from error"
    _, (event,) = ended(code, tmp_path)
    assert event["message"] == "outer"
    assert event["causes"].startswith("OSError: aaa")
    assert event["causes"].endswith("end")
    assert len(event["causes"]) < MOST_MESSAGE + 20


def test_a_hook_of_the_program_is_still_called(tmp_path):
    code = "import sys\nsys.excepthook = lambda *_: print('mine')\nreport_failures()\n1 / 0"
    done, (event,) = ended(code, tmp_path)
    assert done.stdout == "mine\n"
    assert event["type"] == "ZeroDivisionError"


def test_an_exception_that_cannot_be_described_is_printed(tmp_path):
    code = "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd"
    assert ended(code, tmp_path)[1] == []
