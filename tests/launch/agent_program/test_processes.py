"""Ending an agent by the mark on its command line."""

import subprocess
import sys
import uuid

import pytest

from tfdist.launch.agent_program.processes import _GUARD, end_agent

MARK = f"#tfdist-{uuid.uuid4().hex}"
"""Other tests may run on this machine, too."""


def marked(mark, code="import time; print(flush=True); time.sleep(600)"):
    """A running process with the command line of an agent."""
    process = subprocess.Popen([sys.executable, "-u", "-c", code + mark], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def test_a_guard_that_was_told_no_folder_looks_for_no_process(tmp_path):
    grep = tmp_path / "grep"
    grep.write_text("#!/bin/sh\necho looked >&2\n")
    grep.chmod(0o755)
    for told, looks in ((b"", False), (b"/tmp/none-of-these\n", True)):
        done = subprocess.run(
            ["/bin/sh", "-c", _GUARD], input=told, env={"PATH": str(tmp_path)}, stderr=subprocess.PIPE
        )
        assert (b"looked" in done.stderr) is looks


def test_only_the_agent_with_the_mark_is_ended():
    one, other = marked(f"{MARK}-one"), marked(f"{MARK}-other")
    with one, other:
        # a zombie until it is reaped, which has no command line
        assert end_agent(f"{MARK}-one", 5.0) == ""
        assert one.wait(5.0) == -1
        assert other.poll() is None
        other.kill()


def test_no_agent_has_the_mark():
    assert end_agent(f"{MARK}-none", 5.0) == ""


def test_an_agent_that_cannot_be_ended_is_named():
    stubborn = "import signal, time; signal.signal(1, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with marked(f"{MARK}-stubborn", stubborn) as process:
        reason = end_agent(f"{MARK}-stubborn", 0.3)
        assert reason == f"an earlier agent of this job (pid {process.pid}) did not end within 0.3 s"
        process.kill()


@pytest.mark.slow
def test_an_agent_that_hangs_is_killed_and_its_parent_ends():
    agent = "import signal, time; signal.signal(1, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    parent = (
        "import signal, subprocess, sys; signal.signal(1, signal.SIG_IGN);"
        f"sys.exit(subprocess.Popen([sys.executable, '-u', '-c', {agent + f'{MARK}-hung'!r}]).wait())"
    )
    with marked(f"{MARK}-hung", parent) as process:
        assert end_agent(f"{MARK}-hung", 6.0) == ""
        assert process.wait(5.0) != 0
