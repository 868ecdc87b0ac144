"""The tasks of this host: started, watched, stopped and reaped. Part of the agent."""

import contextlib
import math
import os
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from tfdist.launch.agent_program import processes, system
from tfdist.launch.agent_program.description import KernelLog, oom_kills
from tfdist.launch.agent_program.running_task import RunningTask

STUCK_S = 20.0
"""Report a task that still exists this long after SIGKILL as stuck. On a busy host, its threads take a while to end."""
LISTEN_POLL_S = 0.5
"""Interval of the checks whether the server of a task listens, and for how long; then with each heartbeat."""


class Tasks:
    """Starts, watches, stops and reaps tasks. Part of the agent's loop, which calls `relay`, `reap` and `act`."""

    def __init__(self, send: Callable[..., None]) -> None:
        """Report what happens to them with `send`, which gets the kind of a message and its values."""
        self._send = send
        self.selector = selectors.EpollSelector()  # of their pipes
        self.by_pid: dict[int, RunningTask] = {}  # those not reaped
        self.ending: list[RunningTask] = []  # stopped tasks that are reaped, while others of their groups still run
        self.unkillable: set[int] = set()  # children that no longer matter
        self._last: dict[str, RunningTask] = {}  # the last attempt of each
        self._terminated: set[int] = set()  # orphans that were sent SIGTERM
        self._listen_poll_at = 0.0  # when to check again whether servers listen
        self._kernel_log = KernelLog()

    def running(self, names: Iterable[str]) -> list[RunningTask]:
        """Those of these names that are not reaped."""
        return [task for task in self.by_pid.values() if task.name in names]

    def start(
        self,
        name: str,
        attempt: int,
        argv: list[str],
        environment: dict[str, str],
        cwd: str,
        cores: list[int],
        port: int | None,
    ) -> None:
        """Start an attempt of a task; it is reported once it runs its program.

        Raises:
            OSError: for example, too many open files or processes.
            RuntimeError: an earlier attempt still runs.
        """
        earlier = self._last.get(name)
        if earlier is not None:
            if earlier.running or earlier in self.ending:
                raise RuntimeError(f"its attempt {earlier.attempt} still runs")
            processes.kill_groups(processes.orphans(earlier.pid))
        pid, pipes = processes.fork_program(argv, environment, cwd, cores)
        task = RunningTask(name, attempt, pid, pipes, port, self._send)
        self._last[name] = self.by_pid[pid] = task
        task.watch(self.selector)

    def release(self, attempt: int, turn: dict[str, Any] | None) -> None:
        """Give a turn, or the end, to the tasks of an attempt that wait at the barrier."""
        for task in self._last.values():
            if task.attempt == attempt:
                task.release(turn)

    def relay(self) -> None:
        """Read a chunk of each pipe that has any, and send what is complete."""
        for key, _ in self.selector.select(0):
            task, stream = key.data
            task.relay(stream)

    # --- what is due at a time

    def due(self) -> float:
        """When to call `act`, by time.monotonic()."""
        due = [math.inf]
        for task in self._existing():
            due += [task.kill_at, task.stuck_at, *task.partial_due.values()]
        if any(task.awaits_server() for task in self.by_pid.values()):
            due.append(self._listen_poll_at)
        return min(due)

    def act(self, now: float) -> None:
        """Do what is due: kill tasks, send incomplete lines, look whether servers listen."""
        self._kill_due(now)
        for task in self._existing():
            task.send_partial_lines(now)
        self._report_listening(now)

    def _existing(self) -> list[RunningTask]:
        """Those that run, and those that are reaped while others of their groups still run."""
        return [*self.by_pid.values(), *self.ending]

    def _kill_due(self, now: float) -> None:
        for task in self._existing():
            if now >= task.kill_at:
                task.kill_at = math.inf
                task.killed = True
                task.stuck_at = now + STUCK_S
                processes.kill_groups([task.pid] if task.running else processes.orphans(task.pid))
            if now >= task.stuck_at:
                self._check_stuck(task, now)

    def _check_stuck(self, task: RunningTask, now: float) -> None:
        self.reap()
        if task not in self._existing():
            return
        task.stuck_at = math.inf
        if task.running:
            self.unkillable.add(task.pid)
            state = system.process_state(task.pid)
            wait = system.wait_channel(task.pid)
            task.report("stuck", time=system.event_time(), state=state, wait=wait)
        else:
            self.unkillable |= processes.orphans(task.pid)
            self._finish(task)

    def _report_listening(self, now: float) -> None:
        waiting = [task for task in self.by_pid.values() if task.awaits_server()]
        if not waiting or now < self._listen_poll_at:
            return
        ports = system.listening_ports()
        for task in waiting:
            if task.port in ports:
                task.listening = True
                task.report("listening", time=system.event_time())
        self._listen_poll_at = now + LISTEN_POLL_S

    # --- the end of tasks

    def stop(self, names: Iterable[str], grace_s: float, keeps_barrier: bool = False) -> None:
        """Send SIGTERM to tasks, and SIGKILL after the grace period; a task gets SIGTERM only once.

        A later request can only shorten the time until SIGKILL. Unless it `keeps_barrier`, the barrier is opened.
        """
        for task in [self._last[name] for name in names if name in self._last]:
            if not keeps_barrier:
                task.release(None)
            if task not in self._existing():
                continue
            if not task.stopped and grace_s > 0:
                processes.terminate(task.pid)
            if not task.killed:
                task.kill_at = min(task.kill_at, time.monotonic() + grace_s)
            task.stopped = True

    def reap(self) -> None:
        """Take the exit codes of all children that have ended, and report the tasks that have."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                self._terminated.discard(pid)
                self.unkillable.discard(pid)
                system.ABANDONED.pop(pid, None)
                if pid in self.by_pid:
                    self._keep_exit(self.by_pid.pop(pid), os.waitstatus_to_exitcode(status), usage)
        for task in [task for task in self.ending if not task.stopped or not processes.orphans(task.pid)]:
            self._finish(task)

    def _keep_exit(self, task: RunningTask, code: int, usage: resource.struct_rusage) -> None:
        # If a stopped task was a shell, its program still has the rest of the grace period to save and to log.
        task.running = False
        task.release(None)
        kills = max(0, oom_kills() - task.oom_kills_before)
        shot = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and not task.killed  # itself, or the program in a shell
        task.exit = {
            "code": code,
            "time": system.event_time(),
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "oom_kills": kills,
            "kernel_log": self._kernel_log.find(task.pid, kills > 0) if shot else "",
        }
        self.ending.append(task)
        if task.stopped:
            self.terminate_orphans(task.pid)
            task.kill_at = time.monotonic() if task.killed else task.kill_at
            task.stuck_at = math.inf

    def _finish(self, task: RunningTask) -> None:
        self.ending.remove(task)
        task.send_exit()

    def terminate_orphans(self, group: int | None = None) -> None:
        """Send SIGTERM, once, to what tasks have left in this session or process group; None: in any."""
        for pid in processes.orphans(group) - self.by_pid.keys() - self._terminated:
            self._terminated.add(pid)
            processes.terminate(pid)
