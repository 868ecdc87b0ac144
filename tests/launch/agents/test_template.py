"""Agents that are forked from a template, with real processes."""

import pytest

from tests.launch.jobs import FORKED, python_job, run

PARENT = "import os; print(open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0))[3])"
"""Prints the program of the agent."""


def printed(folder, task="worker-0"):
    return (folder / f"attempt-0/{task}/stdout.log").read_text().splitlines()


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    monkeypatch.setenv(FORKED, "1")


def test_tasks_are_forked_with_their_own_environment_and_show_their_own_command(tmp_path, survivors, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    code = (
        "import os, signal, sys, threading; read = lambda name: open(f'/proc/self/{name}').read().split(chr(0))\n"
        "print('tfdist.launch.agent_program.template' in sys.modules)\n"
        "print(os.environ['TFDIST_TASK'], os.environ['TFDIST_AGENT'] == os.path.basename(os.environ['TMPDIR']))\n"
        "print(read('cmdline')[1:3], 'TFDIST_AGENT=' + os.environ['TFDIST_AGENT'] in read('environ'))\n"
        "print(os.getpid() == os.getsid(0) == os.getpgrp(), threading.active_count(), os.environ['OMP_NUM_THREADS'])\n"
        "print(sorted(os.listdir('/proc/self/fd'), key=int)[:3], len(os.listdir('/proc/self/fd')))\n"
        "print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(0, ()))\n"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert outcome.exit_code == 0
    assert printed(tmp_path, "worker-1") == [
        "True",
        "worker-1 True",
        "['-m', 'tests.launch.forked_program'] True",
        "True 1 3",
        "['0', '1', '2'] 7",  # the three pipes of a task, and the listing
        "default_int_handler 0 set()",
    ]
    assert survivors() == []
