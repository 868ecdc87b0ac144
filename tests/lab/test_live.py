import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.faults.live import TEMPLATE, Live, TooLateError
from lab.faults.sandbox import sandbox

LAUNCHER = """
import os, subprocess, sys
os.waitid(os.P_PID, os.posix_spawn("/bin/true", ["true"], {}), os.WEXITED | os.WNOWAIT)  # never reaped
print("started", flush=True)
if sys.stdin.readline():
    subprocess.run([sys.executable, "-c", "print('started', flush=True); input()", sys.argv[1]])
"""


@pytest.mark.slow
def test_a_template_is_found_beside_a_child_that_has_ended(tmp_path):
    pipe = subprocess.PIPE
    with (
        sandbox(tmp_path / "box", None, "mark") as box,
        subprocess.Popen([sys.executable, "-c", LAUNCHER, TEMPLATE], stdin=pipe, stdout=pipe, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        live = Live(box, process, time.monotonic())
        with pytest.raises(TooLateError, match=r"^no template runs: it was late or has failed"):
            live.template()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert Path(f"/proc/{live.template()}/cmdline").read_text().endswith(f"{TEMPLATE}\0")
        process.stdin.write("\n")


def test_a_task_that_has_not_started_is_reported_as_such(tmp_path):
    with (
        sandbox(tmp_path / "box", None, "mark") as box,
        subprocess.Popen(["true"]) as process,
        pytest.raises(TooLateError, match=r"^worker-1 has not started$"),
    ):
        Live(box, process, time.monotonic()).pid("worker-1")
