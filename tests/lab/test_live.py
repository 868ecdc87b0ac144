import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.faults.live import TEMPLATE, Live, TooLateError
from lab.faults.sandbox import sandbox

LAUNCHER = """
import subprocess, sys
subprocess.Popen(["true"])  # never reaped
print("started", flush=True)
if sys.stdin.readline():
    sleeps = [sys.executable, "-c", "import sys; print('', flush=True); sys.stdin.read()", sys.argv[1]]
    subprocess.run(sleeps)
"""


@pytest.mark.slow
def test_a_template_is_waited_for_and_found_beside_a_child_that_has_ended(tmp_path):
    pipe = subprocess.PIPE
    with (
        sandbox(tmp_path / "box", None, "mark") as box,
        subprocess.Popen([sys.executable, "-c", LAUNCHER, TEMPLATE], stdin=pipe, stdout=pipe) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        live = Live(box, process, time.monotonic())
        with pytest.raises(TooLateError, match=r"^a template: not within 0\.1 s$"):
            live.template(0.1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert Path(f"/proc/{live.template(20.0)}/exe").samefile(sys.executable)
        process.stdin.close()
        process.wait()
        with pytest.raises(TooLateError, match=r"^a template: the launcher ended$"):
            live.template(20.0)


def test_a_task_that_has_not_started_is_reported_as_such(tmp_path):
    with (
        sandbox(tmp_path / "box", None, "mark") as box,
        subprocess.Popen(["true"]) as process,
        pytest.raises(TooLateError, match=r"^worker-1 has not started$"),
    ):
        Live(box, process, time.monotonic()).pid("worker-1")
