"""A host in a network namespace, and faults of its network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def environment() -> dict[str, str]:
    """Our environment, with the folders of system tools on PATH."""
    return {**os.environ, "PATH": SYSTEM_PATH}


def command(*argv: str) -> str:
    """The stdout of a command.

    Raises:
        RuntimeError: it failed. The message has its stderr.
    """
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class NetHost:
    """One host. The context managers change its network and restore it at the end."""

    name: str
    """Its alias in the ssh configuration of the network."""
    namespace: str
    address: str
    hub: str
    folder: Path

    def run(self, *argv: str) -> str:
        """The stdout of a command that runs on the host."""
        return command("ip", "netns", "exec", self.namespace, *argv)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Cut the link of the host: packets are lost, but no connection is closed."""
        command("ip", "-n", self.hub, "link", "set", self.name, "down")
        try:
            yield
        finally:
            command("ip", "-n", self.hub, "link", "set", self.name, "up")

    @contextmanager
    def limit_mbit(self, rate: float) -> Iterator[None]:
        """Limit traffic to the host and from it to `rate` Mbit/s each."""
        ends = ((self.hub, self.name), (self.namespace, "eth0"))
        shape = ("tbf", "rate", f"{rate}mbit", "burst", "64kb", "latency", "50ms")
        try:
            for namespace, interface in ends:
                command("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shape)
            yield
        finally:
            for namespace, interface in ends:
                command("tc", "-n", namespace, "qdisc", "del", "dev", interface, "root")

    @contextmanager
    def block_port(self, port: int, source: "NetHost") -> Iterator[None]:
        """Drop packets from `source` to this TCP port in the firewall of the host."""
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
        """Run another program that listens on this TCP port of the host."""
        program = (
            f"import socket, sys; s = socket.create_server(('', {port})); print('ready', flush=True); sys.stdin.read()"
        )
        argv = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", program]
        with subprocess.Popen(
            argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            yield  # leaving the block closes its stdin, which ends it
