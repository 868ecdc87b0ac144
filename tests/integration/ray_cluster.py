"""A Ray cluster on hosts in network namespaces: the head on the first one, the jobs are submitted from the hub.

Ray is installed in a virtual environment of its own, whose other packages are those of the running Python.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .namespaces import Network
from .nethost import NetHost, command, environment

RAY = "ray[default,train]==2.60.0"
INSTALL_S, START_S = 300.0, 90.0


class UnavailableError(Exception):
    """Ray cannot be run here, for this reason."""


def install(folder: Path) -> Path:
    """Create a virtual environment with Ray and everything that the running Python has; returns its Python.

    Raises:
        UnavailableError: pip cannot install this version here.
    """
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    ours = folder / packages.relative_to(sys.prefix)
    # Unlike a line with the folder alone, this reads the .pth files there, too.
    (ours / "ours.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", RAY]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"pip install took more than {INSTALL_S:g} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"pip install {RAY}: {done.stderr.strip().splitlines()[-1]}")
    return python


@dataclass
class RayCluster:
    """A running cluster."""

    net: Network
    python: Path
    folder: Path
    temporary: Path
    """Ray's folder for temporary files: short, because the name of a socket may have 107 characters."""
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Ray's commands and daemons, and so of the jobs."""
        inherited = {
            name: value for name, value in environment().items() if not name.startswith(("RAY_", "TFDIST_", "TF_"))
        }
        return {
            **inherited,
            "PATH": os.pathsep.join((str(self.python.parent), inherited["PATH"])),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": f"http://{self.net.hosts[0].address}:8265",
        }

    def start(self, namespace: str, *argv: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a command in a namespace, in a process group of its own."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *argv],
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start_node(self, host: NetHost) -> None:
        """Start Ray's daemons on a host."""
        head = self.net.hosts[0].address
        place = ("--head", "--port=6379", "--dashboard-host=0.0.0.0", "--include-dashboard=true")
        if host.address != head:
            place = (f"--address={head}:6379",)
        limits = (f"--num-cpus={CPUS}", f"--object-store-memory={STORE_BYTES}", f"--temp-dir={self.temporary}")
        process = self.start(host.namespace, "ray", "start", *place, *limits, f"--node-ip-address={host.address}")
        out, _ = process.communicate(timeout=START_S)
        if process.returncode != 0:
            raise RuntimeError(f"ray start on {host.name}: exit code {process.returncode}: {out}")

    def kill(self, namespace: str) -> None:
        """Kill everything that runs on a host but its sshd."""
        while pids := [int(line.split(": ")[1]) for line in self.net.processes() if line.startswith(f"{namespace}: ")]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def training(self) -> list[str]:
        """The processes of launches, as `namespace: pid: command line`."""
        return [line for line in self.net.processes() if "tfdist" in line.split(": ", 2)[2]]


@contextmanager
def ray_cluster(net: Network, python: Path, folder: Path) -> Iterator[RayCluster]:
    """A cluster whose nodes are the hosts of `net`."""
    cluster = RayCluster(net, python, folder, Path(tempfile.mkdtemp(prefix="ray-")))
    try:
        for host in net.hosts:
            cluster.start_node(host)
        yield cluster
    finally:
        for namespace in (net.hub, *(host.namespace for host in net.hosts)):
            cluster.kill(namespace)
        for process in cluster.started:
            process.communicate()
        shutil.rmtree(cluster.temporary)
