"""Stacks of tasks of a real agent."""

import os
import signal
import sys
import time

import pytest

from tests.waiting import wait_until
from tfdist.launch.agent_program.stacks import catches_signal, wait_for_stacks
from tfdist.launch.agents.messages import DumpStacks, Event, Exited, StacksDumped
from tfdist.launch.events import SIGNAL

from .real_agent import changed_agent, real_agent, stand_in

REGISTER = "from tfdist.launch.events import dump_on_request; dump_on_request()\n"
EMIT = (
    "import json, os\n"
    "def emit(**event): os.write(int(os.environ['TFDIST_EVENTS_FD']), json.dumps(event).encode() + b'\\n')\n"
)
HANG = "import time\ndef load():\n    print('ready', flush=True)\n    while True: time.sleep(600)\nload()"


def start(agent, code):
    """A task that prints `ready` before it hangs; its Python has site-packages, as tfdist is there."""
    agent.start("", program=(sys.executable, "-c", code))
    agent.wait_for_text("ready")


def dump(agent, *tasks):
    agent.send(DumpStacks(tasks or ("worker-0",), request=7))
    dumped = agent.wait_for(StacksDumped)
    assert dumped.request == 7
    return dumped.methods


def without_spy():
    """The source of an agent that looks for py-spy only on PATH, and an environment without it."""
    source = changed_agent("import sys; sys.executable = '/nonexistent/python'")
    return source, {"PATH": "/usr/bin:/bin"}


def test_a_task_that_has_registered_writes_the_stacks_of_all_its_threads():
    thread = "import threading, time\nthreading.Thread(target=lambda: time.sleep(600), daemon=True).start()\n"
    with real_agent() as agent:
        start(agent, REGISTER + thread + HANG)
        assert dump(agent) == {"worker-0": "faulthandler"}
        text = agent.text("stacks")
        assert "faulthandler" in text.splitlines()[0]
        assert "in load" in text
        assert text.count("most recent call first") == 2
        assert agent.text("stderr") == ""


def test_a_shell_around_the_program_gets_no_signal():
    with real_agent() as agent:
        agent.start("", program=("sh", "-c", f'"{sys.executable}" -c "$1"; echo ended', "sh", REGISTER + HANG))
        agent.wait_for_text("ready")
        assert dump(agent) == {"worker-0": "faulthandler"}
        assert "ended" not in agent.text()


def test_a_process_that_does_not_catch_the_signal_does_not_get_it():
    source, env = without_spy()
    claim = EMIT + f"emit(event='stacks', signal={int(SIGNAL)}, pid=os.getpid())\n"
    with real_agent(source=source, env=env) as agent:
        start(agent, claim + HANG)
        agent.wait_for(Event)
        assert dump(agent) == {"worker-0": "/proc"}
        text = agent.text("stacks")
        assert "main thread python" in text
        assert "state S" in text
        assert agent.of(Exited) == []


def test_no_process_outside_the_session_of_the_task_gets_a_signal():
    received = []
    previous = signal.signal(SIGNAL, lambda *_: received.append(True))
    source, env = without_spy()
    claim = EMIT + f"emit(event='stacks', signal={int(SIGNAL)}, pid={os.getpid()})\n"
    try:
        with real_agent(source=source, env=env) as agent:
            start(agent, claim + HANG)
            agent.wait_for(Event)
            assert dump(agent) == {"worker-0": "/proc"}
    finally:
        signal.signal(SIGNAL, previous)
    assert received == []


def test_py_spy_is_used_for_a_task_that_has_not_registered(tmp_path):
    script = 'echo "Process $5"; echo \'Thread 1 (idle): "MainThread"\'; echo "    load (train.py:12)"'
    with real_agent(env=stand_in(tmp_path, "py-spy", script)) as agent:
        start(agent, HANG)
        assert dump(agent) == {"worker-0": "py-spy"}
        assert "    load (train.py:12)\n" in agent.text("stacks")


def test_the_full_stacks_have_native_frames_and_the_kernel_beside_those_of_python(tmp_path):
    with real_agent(env=stand_in(tmp_path, "py-spy", 'echo "$@"')) as agent:
        start(agent, REGISTER + HANG)
        agent.send(DumpStacks(("worker-0",), full=True, request=7))
        assert agent.wait_for(StacksDumped).methods == {"worker-0": "faulthandler"}
        text = agent.text("stacks")
        python, native, kernel = (text.index(each) for each in ("in load", "dump --native", "main thread python"))
        assert python < native < kernel


def test_a_py_spy_that_fails_or_hangs_leaves_proc(tmp_path):
    source = changed_agent(COMMAND_TIMEOUT_S=0.5)
    with real_agent(env=stand_in(tmp_path, "py-spy", "sleep 600"), source=source) as agent:
        start(agent, HANG)
        assert dump(agent) == {"worker-0": "/proc"}
        assert "main thread python" in agent.text("stacks")


def test_a_suspended_task_is_not_waited_for():
    source, env = without_spy()
    with real_agent(source=source, env=env) as agent:
        start(agent, REGISTER + "import os\nprint(f'pid {os.getpid()}', flush=True)\n" + HANG)
        pid = int(agent.text().split()[1])
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: not catches_signal(pid, SIGNAL))
        assert dump(agent) == {"worker-0": "/proc"}
        assert "main thread python: state T" in agent.text("stacks")


def test_tasks_that_have_ended_are_left_out():
    with real_agent() as agent:
        agent.start("print('ready')")
        agent.exit_of("worker-0")
        assert dump(agent) == {}


def test_a_process_that_never_writes_is_waited_for_only_a_while(monkeypatch):
    monkeypatch.setattr("tfdist.launch.agent_program.stacks.HANDLER_S", 0.1)
    now = time.monotonic()
    assert not wait_for_stacks(lambda: now - 1.0, now)
    assert wait_for_stacks(lambda: now, now)


@pytest.mark.parametrize(
    "event",
    [{"pid": "1", "signal": 61}, {"pid": 5}, {"pid": 5, "signal": 999}, {"pid": -1, "signal": 61}],
)
@pytest.mark.slow
def test_an_invalid_event_is_ignored(event):
    source, env = without_spy()
    with real_agent(source=source, env=env) as agent:
        start(agent, EMIT + f"emit(event='stacks', **{event!r})\n" + HANG)
        agent.wait_for(Event)
        assert dump(agent) == {"worker-0": "/proc"}
