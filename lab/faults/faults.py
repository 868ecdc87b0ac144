"""Faults of tasks, agents and the launcher."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab.faults.live import Live
from lab.faults.sandbox import Sandbox
from lab.faults.scenario import MIDDLE_STEP, Fault, Scenario

MEMORY = 2 << 30
"""Limit of the cgroup: enough for two small trainings."""
CGROUPS = Path("/sys/fs/cgroup")
WAIT_S = 60.0
BACK_S = -3600


def _send(number: signal.Signals) -> Callable[[Live, Scenario], None]:
    return lambda live, scenario: os.kill(live.pid(scenario.task), number)


_kill = _send(signal.SIGKILL)


def _send_template(number: signal.Signals) -> Callable[[Live, Scenario], None]:
    return lambda live, _: os.kill(live.template(), number)


_kill_template = _send_template(signal.SIGKILL)


def _kill_template_then_task(live: Live, scenario: Scenario) -> None:
    _kill_template(live, scenario)
    _kill(live, scenario)


def _kill_twice(live: Live, scenario: Scenario) -> None:
    """Kill the task, and once more when it has been restarted."""
    _kill(live, scenario)
    back = ("Event", scenario.task, 1)
    live.wait(
        lambda live: any((seen.kind, seen.task, seen.attempt) == back for seen in live.seen),
        WAIT_S,
        "the restarted task",
    )
    _kill(live, scenario)


def _execute(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.env["TFDIST_TEMPLATE"] = "0"
    return ()


def _kill_agent(live: Live, scenario: Scenario) -> None:
    os.kill(live.agent(scenario.task), signal.SIGKILL)


def _below_a_shell(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    wrapper = box.script("wrapper.sh", [f"export TMPDIR={box.temporary}", '"$@"', "exit $?"])
    return "--remote-prefix", str(wrapper)


def _limit_memory(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    old = CGROUPS / "memory"
    box.cgroup = (old if old.is_dir() else CGROUPS) / f"tfdist-{box.mark[:12]}"
    box.cgroup.mkdir()
    box.undo.callback(box.cgroup.rmdir)
    (box.cgroup / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(MEMORY))
    return ()


def _all_fail(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.order("worker-1", f"step-{MIDDLE_STEP}", "exception")
    return ()


def _take_port(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    code = (
        "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code]
    argv = argv if box.net is None else box.net.in_hub(*argv)
    other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    box.others.callback(other.communicate)  # closing its stdin ends it
    assert other.stdout is not None
    return "--port", other.stdout.readline().strip()


def _shift_clock(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    library, shift = box.folder / "clock.so", box.folder / "shift"
    source = Path(__file__).parent / "clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    shift.write_bytes(struct.pack("q", 0))
    box.env |= {"LD_PRELOAD": str(library), "TFDIST_FAULTS_CLOCK": str(shift)}
    return ()


def _set_back(live: Live, scenario: Scenario) -> None:
    with (live.box.folder / "shift").open("r+b") as file:
        file.write(struct.pack("q", BACK_S))


def _set_back_then_kill(live: Live, scenario: Scenario) -> None:
    _set_back(live, scenario)
    live.wait(lambda live: live.last_step() >= 2 * MIDDLE_STEP, WAIT_S, "a later step")
    _kill(live, scenario)


SIGKILL = Fault("sigkill", "A task is killed by SIGKILL", _kill)
SIGKILL_EXECUTED = Fault(
    "sigkill-executed", "The same, where tasks are executed, not forked (TFDIST_TEMPLATE=0)", _kill, _execute
)
KILLED_TWICE = Fault("killed-twice", "A task is killed by SIGKILL, and killed again once it was restarted", _kill_twice)
TEMPLATE_KILLED = Fault(
    "template-killed", "The template, from which tasks are forked, is killed by SIGKILL", _kill_template
)
TEMPLATE_FROZEN = Fault("template-frozen", "The template is frozen by SIGSTOP", _send_template(signal.SIGSTOP))
TEMPLATE_THEN_TASK = Fault(
    "template-killed-then-sigkill", "The template and then a task are killed by SIGKILL", _kill_template_then_task
)
EXCEPTION = Fault("exception", "A task raises a ValueError in its training loop", by_itself="exception")
SLOW_END = Fault("slow-tear-down", "A task takes 8 s to end after its exception", by_itself="exception")
ALIKE = Fault("all-fail-alike", "All tasks raise the same exception", prepare=_all_fail, by_itself="exception")
ALWAYS = Fault("always-fails", "A task fails again at the same step in each attempt", by_itself="exception always")
EXIT_0 = Fault("early-exit-0", "A task exits with code 0 although the others need it", by_itself="exit-0")
EXIT_42 = Fault("exit-42", "A task exits with code 42, which asks for a restart", by_itself="exit-42")
SIGSTOP = Fault("sigstop", "A task is frozen by SIGSTOP", _send(signal.SIGSTOP))
SLEEP = Fault("endless-sleep", "A task sleeps for ever in a step", by_itself="sleep")
MEMORY_LIMIT = Fault(
    "memory-limit", "A task needs more memory than its cgroup has", prepare=_limit_memory, by_itself="memory"
)
AGENT_KILLED = Fault("agent-killed", "The agent of a task's host is killed by SIGKILL", _kill_agent)
AGENT_BELOW_SHELL = Fault(
    "agent-killed-below-a-shell",
    "The same, where --remote-prefix is a shell script that runs the agent",
    _kill_agent,
    _below_a_shell,
)
LAUNCHER_KILLED = Fault(
    "launcher-killed", "The launcher is killed by SIGKILL", lambda live, _: os.kill(live.process.pid, signal.SIGKILL)
)
SIGTERM = Fault("sigterm", "The launcher receives SIGTERM", lambda live, _: os.kill(live.process.pid, signal.SIGTERM))
PORT_TAKEN = Fault("port-taken", "Another program listens on the port that --port asks for", prepare=_take_port)
BLOCKED_CONSOLE = Fault(
    "blocked-console", "Nobody reads the launcher's output, and a task is killed", _kill, unread=True
)
CLOCK_BACK = Fault("clock-set-back", "The wall clock is set back by an hour", _set_back, _shift_clock)
CLOCK_BACK_KILL = Fault(
    "clock-set-back-then-sigkill", "The same, and then a task is killed by SIGKILL", _set_back_then_kill, _shift_clock
)
