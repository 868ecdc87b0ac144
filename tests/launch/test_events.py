"""Events of real programs."""

import json
import os
import subprocess
import sys

import pytest

from tfdist.launch.events import MOST_MESSAGE

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
