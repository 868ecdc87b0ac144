"""Several hosts on one machine, for real: network namespaces on a bridge, each with an sshd, address and keys of its own.

The bridge is in a namespace too, the hub, in which the launcher runs: so no address, interface or firewall of this
machine is in the way, and any number of such networks exist side by side. Files, processes and memory are shared.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("ip", "ssh", "ssh-keygen", "sshd", "nft", "tc")
SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
START_S = 10.0


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


def environment() -> dict[str, str]:
    """Ours, with the folders in which a system's own tools are."""
    return {**os.environ, "PATH": SYSTEM_PATH}


def command(*argv: str) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it failed; its words.
    """
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class NetHost:
    """One host. What changes its network is undone at the end of a `with` block."""

    name: str
    """As the ssh configuration of the network calls it."""
    namespace: str
    address: str
    hub: str
    folder: Path

    def run(self, *argv: str) -> str:
        """What a command prints that runs on the host's network."""
        return command("ip", "netns", "exec", self.namespace, *argv)

    @contextmanager
    def down(self) -> Iterator[None]:
        """The host's cable is cut: no stream ends, nothing answers."""
        command("ip", "-n", self.hub, "link", "set", self.name, "down")
        try:
            yield
        finally:
            command("ip", "-n", self.hub, "link", "set", self.name, "up")

    @contextmanager
    def limit_mbit(self, rate: float) -> Iterator[None]:
        """Neither to the host nor from it goes more than so many Mbit/s."""
        ends = ((self.hub, self.name), (self.namespace, "eth0"))
        shape = ("tbf", "rate", f"{rate}mbit", "burst", "64kb", "latency", "50ms")
        try:
            for namespace, card in ends:
                command("tc", "-n", namespace, "qdisc", "replace", "dev", card, "root", *shape)
            yield
        finally:
            for namespace, card in ends:
                command("tc", "-n", namespace, "qdisc", "del", "dev", card, "root")

    @contextmanager
    def block_port(self, port: int, source: "NetHost") -> Iterator[None]:
        """A firewall of the host drops what comes from `source` to this TCP port."""
        chain = "{ type filter hook input priority 0; }"
        self.run("nft", "add", "table", "inet", "blocked")
        try:
            self.run("nft", "add", "chain", "inet", "blocked", "input", chain)
            rule = f"ip saddr {source.address} tcp dport {port} drop"
            self.run("nft", "add", "rule", "inet", "blocked", "input", *rule.split())
            yield
        finally:
            self.run("nft", "delete", "table", "inet", "blocked")

    @contextmanager
    def listening(self, port: int) -> Iterator[None]:
        """A program of somebody else's listens on this TCP port of the host."""
        program = f"import socket, sys; s = socket.create_server(('', {port})); print('listens', flush=True); sys.stdin.read()"
        argv = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", program]
        with subprocess.Popen(
            argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "listens\n"
            yield  # closing its stdin then ends it


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


def make_keys(folder: Path, hosts: Sequence[NetHost]) -> None:
    """A key for the user and for each host, what is known of them, and the client's configuration."""
    names = ("id", "other", *(f"{host.name}.key" for host in hosts))
    for name in names:
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    public = {name: (folder / f"{name}.pub").read_text().strip() for name in names}
    known = "".join(f"{host.address} {public[f'{host.name}.key']}\n" for host in hosts)
    (folder / "known").write_text(known)
    (folder / "changed").write_text(f"{hosts[0].address} {public['other']}\n")
    (folder / "unknown").write_text("")
    (folder / "config").write_text(client_configuration(folder, hosts))
    (folder / "ssh").write_text(f'#!/bin/sh\nexec ssh -F "{folder}/config" "$@"\n')
    (folder / "ssh").chmod(0o755)


def client_configuration(folder: Path, hosts: Sequence[NetHost]) -> str:
    """The hosts by name; the first one also under a changed and an unknown host key; and one that is not there."""
    first = hosts[0].address
    names = {host.name: (host.address, "known") for host in hosts}
    names |= {"changed": (first, "changed"), "unknown": (first, "unknown"), "gone": ("10.77.0.99", "known")}
    blocks = [
        f'Host {name}\n HostName {address}\n UserKnownHostsFile "{folder}/{known}"\n'
        for name, (address, known) in names.items()
    ]
    return "".join(blocks) + (
        f'Host *\n User root\n IdentityFile "{folder}/id"\n IdentitiesOnly yes\n GlobalKnownHostsFile /dev/null\n'
    )


def start_sshd(host: NetHost, core: int) -> None:
    """Start the host's sshd on one core, which all that it starts inherits; wait until it listens."""
    Path("/run/sshd").mkdir(exist_ok=True)  # where Debian's sshd wants to be while it talks to strangers
    settings = {
        "ListenAddress": host.address,
        "HostKey": f'"{host.folder}/{host.name}.key"',
        "PidFile": f'"{pid_file(host)}"',
        "AuthorizedKeysFile": f'"{host.folder}/id.pub"',
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "LogLevel": "ERROR",
    }
    configuration = host.folder / f"{host.name}.sshd"
    configuration.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    sshd = shutil.which("sshd", path=SYSTEM_PATH)
    assert sshd is not None
    log = host.folder / f"{host.name}.log"
    host.run("taskset", "--cpu-list", str(core), sshd, "-f", str(configuration), "-E", str(log))
    until = time.monotonic() + START_S
    while not pid_file(host).exists():  # written once it listens
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.02)


def pid_file(host: NetHost) -> Path:
    """Where the host's sshd says which process it is."""
    return host.folder / f"{host.name}.pid"


def stop_sshd(host: NetHost) -> None:
    """End the host's sshd, if it was started."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid_file(host).read_text()), signal.SIGTERM)


def remove(namespace: str) -> None:
    """End what still runs in a namespace, which is ours alone, and take it away with its cards."""
    asked = subprocess.run(["ip", "netns", "pids", namespace], env=environment(), capture_output=True, text=True)
    for pid in map(int, asked.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", namespace], env=environment(), capture_output=True)
