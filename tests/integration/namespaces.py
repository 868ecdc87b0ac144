"""Several hosts on one machine: network namespaces on a bridge, each with its own address, host key and sshd.

The bridge is in a namespace too, the hub, where the launcher runs. So the network of this machine does not interfere,
and several of these networks can exist at once. All hosts share files, processes and memory.
"""

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .nethost import SYSTEM_PATH, NetHost, command, environment
from .sshd import make_keys, start_sshd, stop_sshd

TOOLS = ("ip", "ssh", "ssh-keygen", "sshd", "nft", "tc")


def missing() -> str:
    """Why this machine cannot run these hosts; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    not_installed = [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]
    if not_installed:
        return f"not installed: {', '.join(not_installed)}"
    name = f"tfdist-{uuid.uuid4().hex[:8]}-try"
    try:
        command("ip", "netns", "add", name)
        command("ip", "netns", "exec", name, "nft", "add", "table", "inet", "try")
    except RuntimeError as error:
        return str(error)
    finally:
        subprocess.run(["ip", "netns", "del", name], env=environment(), capture_output=True)
    return ""


@dataclass(frozen=True)
class Network:
    """Hosts that are connected to each other and to the hub."""

    hub: str
    hosts: tuple[NetHost, ...]
    folder: Path

    @property
    def ssh(self) -> Path:
        """The client for --ssh: it has its own configuration, keys and known hosts."""
        return self.folder / "ssh"

    def in_hub(self, *argv: str) -> list[str]:
        """A command that runs `argv` in the hub, with the same pid."""
        return ["ip", "netns", "exec", self.hub, *argv]

    @contextmanager
    def limit_mbit(self, rate: float) -> Iterator[None]:
        """Limit the links of all hosts to `rate` Mbit/s in each direction."""
        with ExitStack() as stack:
            for host in self.hosts:
                stack.enter_context(host.limit_mbit(rate))
            yield

    def processes(self) -> list[str]:
        """All processes in the hub and on the hosts except sshd, as `namespace: pid: command line`."""
        lines = []
        for namespace in (self.hub, *(host.namespace for host in self.hosts)):
            for pid in command("ip", "netns", "pids", namespace).split():
                with suppress(OSError):  # it has just exited
                    command_line = (
                        Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
                    if command_line and not Path(command_line.split()[0]).name.startswith("sshd"):
                        lines.append(f"{namespace}: {pid}: {command_line}")
        return lines


@contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """Hosts h1, h2, ... at 10.77.0.1, .2, ..., pinned to one core each; they share cores if there are too few."""
    run_id = uuid.uuid4().hex[:8]
    hub = f"tfdist-{run_id}-hub"
    hosts = tuple(NetHost(f"h{n}", f"tfdist-{run_id}-h{n}", f"10.77.0.{n}", hub, folder) for n in range(1, count + 1))
    try:
        create_hub(hub)
        for host in hosts:
            connect(host)
        make_keys(folder, hosts)
        cores = sorted(os.sched_getaffinity(0))
        for number, host in enumerate(hosts):
            start_sshd(host, cores[number % len(cores)])
        yield Network(hub, hosts, folder)
    finally:
        for host in hosts:
            stop_sshd(host)
        for namespace in (*(host.namespace for host in hosts), hub):
            remove(namespace)


def create_hub(hub: str) -> None:
    """Create the namespace with the bridge."""
    command("ip", "netns", "add", hub)
    in_hub = ("ip", "-n", hub)
    command(*in_hub, "link", "set", "lo", "up")
    command(*in_hub, "link", "add", "bridge", "type", "bridge")
    command(*in_hub, "addr", "add", "10.77.0.254/24", "dev", "bridge")
    command(*in_hub, "link", "set", "bridge", "up")


def connect(host: NetHost) -> None:
    """Create the namespace of a host and its link to the bridge."""
    in_host = ("ip", "-n", host.namespace)
    command("ip", "netns", "add", host.namespace)
    link = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    command("ip", "-n", host.hub, "link", "add", host.name, *link)
    command("ip", "-n", host.hub, "link", "set", host.name, "master", "bridge", "up")
    command(*in_host, "addr", "add", f"{host.address}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        command(*in_host, "link", "set", interface, "up")


def remove(namespace: str) -> None:
    """Kill the processes in one of our namespaces and delete it with its interfaces."""
    pids = subprocess.run(["ip", "netns", "pids", namespace], env=environment(), capture_output=True, text=True)
    for pid in map(int, pids.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", namespace], env=environment(), capture_output=True)
