"""Several hosts on one machine, for real: network namespaces on a bridge, each with an sshd, address and keys of its own.

The bridge is in a namespace too, the hub, in which the launcher runs: so no address, interface or firewall of this
machine is in the way, and any number of such networks exist side by side. Files, processes and memory are shared.
"""

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .nethost import SYSTEM_PATH, NetHost, command, environment
from .sshd import make_keys, start_sshd, stop_sshd

TOOLS = ("ip", "ssh", "ssh-keygen", "sshd", "nft", "tc")


def missing() -> str:
    """Why there can be no such hosts on this machine; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
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
    """Hosts that reach each other, and the hub, whose `ssh` (a client with a configuration of its own) reaches them."""

    hub: str
    hosts: tuple[NetHost, ...]
    folder: Path

    @property
    def ssh(self) -> Path:
        """The program for --ssh."""
        return self.folder / "ssh"

    def in_hub(self, *argv: str) -> list[str]:
        """The command that becomes another one in the hub, with the same pid."""
        return ["ip", "netns", "exec", self.hub, *argv]

    def processes(self) -> list[str]:
        """What runs in the hub and on the hosts, apart from sshd: `namespace: pid: command line`."""
        found = []
        for namespace in (self.hub, *(host.namespace for host in self.hosts)):
            for pid in command("ip", "netns", "pids", namespace).split():
                with suppress(OSError):  # it has just ended
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if words and not Path(words.split()[0]).name.startswith("sshd"):
                        found.append(f"{namespace}: {pid}: {words}")
        return found


@contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """Hosts h1, h2, ... at 10.77.0.1, .2, ..., each bound to a core of its own as far as there are any."""
    mark = uuid.uuid4().hex[:8]
    hub = f"tfdist-{mark}-hub"
    hosts = tuple(NetHost(f"h{n}", f"tfdist-{mark}-h{n}", f"10.77.0.{n}", hub, folder) for n in range(1, count + 1))
    try:
        command("ip", "netns", "add", hub)
        in_hub = ("ip", "-n", hub)
        command(*in_hub, "link", "set", "lo", "up")
        command(*in_hub, "link", "add", "bridge", "type", "bridge")
        command(*in_hub, "addr", "add", "10.77.0.254/24", "dev", "bridge")
        command(*in_hub, "link", "set", "bridge", "up")
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


def connect(host: NetHost) -> None:
    """Make the host's namespace and its cable to the bridge."""
    own = ("ip", "-n", host.namespace)
    command("ip", "netns", "add", host.namespace)
    cable = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    command("ip", "-n", host.hub, "link", "add", host.name, *cable)
    command("ip", "-n", host.hub, "link", "set", host.name, "master", "bridge", "up")
    command(*own, "addr", "add", f"{host.address}/24", "dev", "eth0")
    for card in ("lo", "eth0"):
        command(*own, "link", "set", card, "up")


def remove(namespace: str) -> None:
    """End what still runs in a namespace, which is ours alone, and take it away with its cards."""
    asked = subprocess.run(["ip", "netns", "pids", namespace], env=environment(), capture_output=True, text=True)
    for pid in map(int, asked.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", namespace], env=environment(), capture_output=True)
