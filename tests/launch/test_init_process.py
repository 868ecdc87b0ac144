"""Commands as PID 1, in a PID namespace of their own, as in a container."""

import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.launch import init_process

TFDIST = [sys.executable, "-m", "tfdist.cli"]
IN_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        subprocess.run([*IN_NAMESPACE, "true"], capture_output=True).returncode != 0,
        reason="needs root and PID namespaces",
    ),
]
AGENTS = """
import os, subprocess, time
from tfdist.launch.agent_program.processes import children
from tfdist.launch.agents.connect import connect
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.init_process import act_as_init

assert os.getpid() == 1
if ACTS:
    act_as_init()
statuses = [subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=own) for own in (False, True)]
with connect([LOCAL]):
    pass
deadline = time.monotonic() + 20
while len(children()) > 2 and time.monotonic() < deadline:
    time.sleep(0.02)
print(len(children()), [status.wait() for status in statuses])
"""


@pytest.mark.parametrize(("acts", "left"), [(True, 2), pytest.param(False, 3, marks=pytest.mark.thorough)])
def test_guards_are_reaped_and_our_own_children_keep_their_status(acts, left):
    code = AGENTS.replace("ACTS", str(acts))
    done = subprocess.run([*IN_NAMESPACE, sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{left} [7, 7]\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_follows_a_run_ends_on_a_signal(number, tmp_path):
    """It becomes PID 1 once the run, which is in the same namespace, has written something."""
    tfdist = shlex.join(TFDIST)
    script = (
        f"{tfdist} launch --strategy one-device -- sh -c 'echo written; exec sleep 600' >/dev/null 2>&1 &\n"
        "until grep -qs written runs/*/attempt-0/*/stdout.log; do sleep 0.05; done\n"
        f"exec {tfdist} logs last --follow"
    )
    command = [*IN_NAMESPACE, "sh", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as unshare:
        assert "written" in unshare.stdout.readline()
        (first,) = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        os.kill(int(first), number)
        try:
            assert unshare.wait(30) == 128 + number
        except subprocess.TimeoutExpired:
            os.kill(int(first), signal.SIGKILL)
            raise


def test_orphans_wait_while_no_descriptor_is_left(monkeypatch):
    """A handler of a signal that raised would end the launcher wherever it is."""

    def no_descriptor():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(init_process, "children", no_descriptor)
    init_process.reap_orphans()
