"""A real agent over pipes, and the messages that it sends."""

import marshal
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.waiting import wait_until
from tfdist.launch import agent_program
from tfdist.launch.agent_program import loader
from tfdist.launch.agents.bootstrap import agent_argv, agent_source
from tfdist.launch.agents.messages import Alive, Configure, Exited, Output, Start, Started, decode, encode
from tfdist.launch.hosts.host import LOCAL

TEXT = replace(LOCAL, python=sys.executable)
"""It receives the program as text, to which tests can add."""


class RealAgent:
    """An agent process. `messages` grows while it runs, in a thread."""

    def __init__(self, source, env):
        self.process = subprocess.Popen(
            agent_argv(TEXT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | env,
            start_new_session=True,
        )
        self.messages = []
        self.process.stdin.write(source)
        self.process.stdin.flush()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.strip():
                self.messages.append(decode(line))

    def send(self, *messages):
        self.process.stdin.write(b"".join(map(encode, messages)))
        self.process.stdin.flush()

    def start(self, code, task="worker-0", attempt=0, port=None, env=None, program=None):
        argv = program or (sys.executable, "-S", "-c", code)
        self.send(Start(task, argv, env or {}, "/", (), port, attempt=attempt))

    def of(self, kind, task=None):
        return [
            message
            for message in list(self.messages)
            if isinstance(message, kind) and (task is None or message.task == task)
        ]

    def wait_for(self, kind, number=1, seconds=30.0):
        """Message `number` of this kind, counted from 1."""
        wait_until(lambda: len(self.of(kind)) >= number, seconds)
        return self.of(kind)[number - 1]

    def text(self, stream="stdout", task=None):
        """All output so far."""
        return "".join(message.text for message in self.of(Output, task) if message.stream == stream)

    def wait_for_text(self, text, stream="stdout"):
        wait_until(lambda: text in self.text(stream))

    def exit_of(self, task, attempt=0, seconds=30.0):
        """The exit of a task, once it has come."""
        found = lambda: [exited for exited in self.of(Exited, task) if exited.attempt == attempt]  # noqa: E731
        wait_until(found, seconds)
        return found()[0]

    def pid(self):
        """The process that serves; the one that was started is its parent."""
        self.wait_for(Alive)
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())

    def pid_of(self, task):
        """The process of a task, once it has been started."""
        wait_until(lambda: self.of(Started, task))
        return self.of(Started, task)[-1].pid

    def end(self, timeout=30.0):
        """Close its stdin, and wait for it."""
        self.process.stdin.close()
        self.reader.join(timeout)
        return self.process.wait(timeout)


@contextmanager
def real_agent(grace_s=5.0, launcher_timeout_s=60.0, env=None, source=None):
    """An agent that was configured. It is killed at the end if it still runs."""
    started = RealAgent(source or agent_source(TEXT), env or {})
    process = started.process
    try:
        started.send(Configure(grace_s, launcher_timeout_s))
        yield started
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        started.reader.join(5)
        process.stdout.close()


def changed_agent(code="", **constants):
    """The program of an agent in which `code` has run before its start, and constants have other values."""
    modules = marshal.loads(agent_source(TEXT).partition(b"\n")[2])
    changes = "\n".join(
        f"import {name}; {name}.{constant} = {value!r}"
        for name in modules
        if name.startswith(agent_program.__name__) and name != loader.__name__
        for constant, value in constants.items()
    )
    modules[loader.__name__] += f"\nsys.meta_path.insert(0, Loader(m))\n{changes}\n{code}\n"
    data = marshal.dumps(modules)
    return b"%d\n%s" % (len(data), data)


def stand_in(folder, name, script):
    """An environment in which this shell script stands in for a program."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


WITHOUT_SIGKILL = """
import os, signal
def without_effect(send):
    return lambda pid, number: send(pid, signal.SIGCONT if number == signal.SIGKILL else number)
os.kill, os.killpg = without_effect(os.kill), without_effect(os.killpg)
"""
"""It stands in for a process that cannot be killed: SIGKILL is replaced by a signal without an effect."""
