"""A host in a network namespace, and what may happen to its network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


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
