"""What a run must not leave behind: processes, ports, temporary folders."""

import os
import re
import signal
import time
from contextlib import suppress

import psutil

from lab.faults.sandbox import Sandbox
from tests.integration.launcher import CLEAN_S
from tests.integration.nethost import command
from tests.processes import marked_processes
from tfdist.launch.agent_program.system import listening_ports

POLL_S = 0.1
SSH_PORT = 22
CLAIM = re.compile(r"tfdist-\d+-[0-9a-f]{32}\.lock")
"""A launcher's claim on its checkpoint folder (`launch/runs/claim.py`). A killed one leaves this file of a few bytes, which
the next launch with that folder takes over and removes."""


def left_over(box: Sandbox, launcher_killed: bool = False) -> list[str]:
    """What still exists CLEAN_S seconds after this call; returns earlier if nothing does.

    A launcher that was killed may leave its claim on a checkpoint folder.
    """
    deadline = time.monotonic() + CLEAN_S
    while (found := _found(box, launcher_killed)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def kill_left(box: Sandbox) -> None:
    """Kill the processes that a run has left."""
    pids = [process.pid for process in marked_processes(box.mark)]
    if box.net is not None:
        pids += [int(line.split(": ")[1]) for line in box.net.processes()]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _found(box: Sandbox, launcher_killed: bool) -> list[str]:
    if box.net is None:
        processes = _marked(box.mark)
        ports = [f"port {port}" for port in sorted(_own_ports(box) & listening_ports())]
    else:
        processes = list(dict.fromkeys((*_marked(box.mark), *box.net.processes())))
        ports = [port for name in _namespaces(box) for port in _listening_in(name)]
    temporary = [path.name for path in box.temporary.iterdir()]
    folders = [f"folder {name}" for name in temporary if not (launcher_killed and CLAIM.fullmatch(name))]
    return [*processes, *ports, *folders]


def _marked(mark: str) -> list[str]:
    lines = []
    for process in marked_processes(mark):
        with suppress(psutil.Error):
            lines.append(f"process {process.pid}: {' '.join(process.cmdline())[:200]}")
    return lines


def _namespaces(box: Sandbox) -> list[str]:
    return [box.network.hub, *(host.namespace for host in box.network.hosts)]


def _listening_in(namespace: str) -> list[str]:
    lines = command("ip", "netns", "exec", namespace, "ss", "-Htln").splitlines()
    ports = [int(line.split()[3].rpartition(":")[2]) for line in lines]
    return [f"port {port} in {namespace}" for port in ports if port != SSH_PORT]


def _own_ports(box: Sandbox) -> set[int]:
    """The ports of all runs in the sandbox."""
    texts = [path.read_text() for path in box.runs.glob("*/cluster.json")]
    return {int(port) for text in texts for port in re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", text)}
