"""Ends an earlier agent of the same job, which the launcher has lost. Part of the agent."""

import contextlib
import os
import signal
import time

from tfdist.launch.agent_program.files import process_stat, read_text

POLL_S = 0.05


def end_agent(mark: str, seconds: float) -> str:
    """End the agent whose command line ends with `mark`, so that it cleans up first; return why it could not be ended.

    In the last third of `seconds` it is killed; the parent of an agent then kills what it leaves.
    """
    started, signalled, killed = time.monotonic(), set[int](), set[int]()
    while pids := _marked(mark):
        elapsed = time.monotonic() - started
        if elapsed >= seconds:
            return f"an earlier agent of this job (pid {min(pids)}) did not end within {seconds:g} s"
        for pid in pids - signalled:
            _signal(pid, signal.SIGHUP)  # SIGTERM might be taken for a scheduler's
        signalled |= pids
        if elapsed >= seconds * 2 / 3:
            agents = {pid for pid in pids if _parent(pid) in pids} - killed
            for pid in agents:
                _signal(pid, signal.SIGKILL)
            killed |= agents
        time.sleep(POLL_S)
    return ""


def _marked(mark: str) -> set[int]:
    """The pids of the agent and of its parent; zombies have no command line."""
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    return {pid for pid in pids if _is_agent(read_text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0"), mark)}


def _is_agent(words: "list[str]", mark: str) -> bool:
    # python -u -c PROGRAM: a shell that has started it has the program inside a longer word, or another option
    return words[1:3] == ["-u", "-c"] and len(words) == 4 and words[3].endswith(mark)


def _parent(pid: int) -> int:
    return int((process_stat(pid) or ["", "0"])[1])


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
