"""Agents that are forked from a template, with real processes."""

import os
import signal
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from tests.launch.jobs import FORKED, python_job, run
from tfdist.launch.agent_program.template import module_command
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.messages import Exited, Output, Start
from tfdist.launch.agents.template import VARIABLE, Templates
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.policy import Policy

IS_FORKED = "import tfdist.launch.agent_program.template as template; print(template._imported is not None)"


def printed(folder, task="worker-0"):
    return (folder / f"attempt-0/{task}/stdout.log").read_text().splitlines()


def with_program(job, **changes):
    """The job whose tasks' programs have these fields."""
    return replace(job, plans=tuple(replace(plan, program=replace(plan.program, **changes)) for plan in job.plans))


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    monkeypatch.setenv(FORKED, "1")


def test_tasks_are_forked_with_their_own_environment_and_show_their_own_command(tmp_path, survivors, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TFDIST_TEST_SAYS", "imported\n")
    code = (
        "import os, signal, sys, threading; read = lambda name: open(f'/proc/self/{name}').read().split(chr(0))\n"
        f"{IS_FORKED}\n"
        "import tempfile; print(tempfile.gettempdir() == os.environ['TMPDIR'])\n"
        "print(os.environ['TFDIST_TASK'], os.environ['TFDIST_AGENT'] == os.path.basename(os.environ['TMPDIR']))\n"
        "print(read('cmdline')[1:4], 'TFDIST_AGENT=' + os.environ['TFDIST_AGENT'] in read('environ'))\n"
        "print(os.getpid() == os.getsid(0) == os.getpgrp(), threading.active_count(), os.environ['OMP_NUM_THREADS'])\n"
        "names = sorted(os.listdir('/proc/self/fd'), key=int)\n"
        "files = [os.path.realpath(f'/proc/self/fd/{name}') for name in names]\n"
        "print(names[:3], len(files) - files.count('/dev/urandom'))\n"  # Python keeps it open if it has no getrandom
        "print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(0, ()))\n"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert outcome.exit_code == 0
    assert printed(tmp_path, "worker-1") == [
        "True",
        "True",
        "worker-1 True",
        f"{list(module_command('tests.launch.forked_program'))} True",
        "True 1 3",
        "['0', '1', '2'] 7",  # the three pipes of a task, and the listing
        "default_int_handler 0 set()",
    ]
    assert (tmp_path / "attempt-0/worker-1/stderr.log").read_text() == "imported\n"
    assert survivors() == []


def test_without_templates_tasks_are_executed(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    outcome, _ = run(python_job(IS_FORKED, {"worker": 2}), tmp_path)
    assert outcome.exit_code == 0
    assert printed(tmp_path) == ["False"]


def test_a_job_with_one_task_needs_no_template(tmp_path):
    run(python_job(IS_FORKED, {"worker": 1}), tmp_path)
    assert printed(tmp_path) == ["False"]


@pytest.mark.slow
@pytest.mark.parametrize("preload", ["tests.no_such_module", "tests.launch.slow_import"])
def test_tasks_are_executed_if_the_template_fails_or_is_late(preload, tmp_path, survivors):
    job = with_program(python_job(IS_FORKED, {"worker": 2}), preload=preload)
    outcome, _ = run(job, tmp_path, Policy(start_timeout_s=4.0))
    assert outcome.exit_code == 0
    assert printed(tmp_path) == ["False"]
    assert survivors() == []


def test_a_job_outlives_its_template(tmp_path):
    code = (
        "import os, signal; parent = lambda pid: int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "agent = os.getppid(); template = parent(parent(agent))\n"
        "if os.environ['TFDIST_TASK'] == 'worker-0': os.kill(template, signal.SIGKILL)\n"
        "print(open(f'/proc/{template}/cmdline').read().count('template'))"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert outcome.exit_code == 0


@contextmanager
def agent_of(job):
    """An agent that is forked from the template of a job; its channel and its fleet."""
    with closing(Templates()) as templates, connect([LOCAL], template=templates.of(job)) as fleet:
        yield fleet.channels[LOCAL], fleet


def started(job, channel, fleet, env, attempt=0):
    """The output of a task with these variables."""
    plan = job.plans[0]
    channel.send(Start("worker-0", plan.program.argv, {**plan.program.env, **env}, "/", (), None, attempt=attempt))
    text = ""
    while (arrival := fleet.receive(time.monotonic() + 30.0)) is not None:
        match arrival.message:
            case Output(text=more):
                text += more
            case Exited(attempt=number) if number == attempt:
                return text.splitlines()
    pytest.fail("it did not exit")


def test_a_task_whose_variables_change_the_import_is_executed():
    job = python_job(IS_FORKED, {"worker": 1})
    with agent_of(job) as (channel, fleet):
        assert started(job, channel, fleet, {"TF_NUM_INTRAOP_THREADS": "2"}, 0) == ["True"]
        assert started(job, channel, fleet, {"TF_CPP_VMODULE": "graph=1"}, 1) == ["False"]
        assert started(job, channel, fleet, {"TFDIST_TURNS": "1"}, 2) == ["True"]


def test_jobs_share_a_template_if_their_imports_read_the_same():
    job = python_job("", {"worker": 1})
    other = with_program(job, env={**job.plans[0].program.env, "TF_USE_LEGACY_KERAS": "0"})
    with closing(Templates()) as templates:
        assert templates.of(job) is templates.of(python_job("pass", {"worker": 2}))
        assert templates.of(job) is not templates.of(other)
        for name in ("CUDA_VISIBLE_DEVICES", "TF_XLA_FLAGS"):
            assert templates.of(with_program(job, env={**job.plans[0].program.env, name: "x"})) is templates.of(job)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_is_ended_by_its_channel(number, survivors):
    with agent_of(python_job("", {"worker": 1})) as (channel, _):
        assert not channel.process.exited()
        channel.process.signal(number)
        while not channel.process.exited():
            time.sleep(0.01)
    assert survivors() == []


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import sys; sys.stdout.close()", 0, ""),
    ],
)
def test_the_end_of_a_program_is_that_of_an_executed_one(text, code, error, tmp_path):
    outcome, _ = run(python_job(text, {"worker": 2}), tmp_path)
    assert outcome.exit_code == code
    assert {log.read_text()[-len(error) :] for log in tmp_path.rglob("stderr.log")} == ({error} if error else set())


def test_an_interrupted_launch_does_not_wait_for_the_import(tmp_path, survivors):
    job = with_program(python_job("", {"worker": 2}), preload="tests.launch.slow_import")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started_at = time.monotonic()
    with pytest.raises(TfdistError, match="interrupted before any task was started"):
        run(job, tmp_path)
    assert time.monotonic() - started_at < 5.0  # the import takes 60 s
    assert survivors() == []
