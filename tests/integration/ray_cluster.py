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
import uuid
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .namespaces import Network
from .nethost import NetHost, environment

RAY = "ray[default,train]==2.60.0"
INSTALL_S, START_S = 300.0, 90.0
STARTS = 3
STORE_BYTES = 80_000_000
"""Of the object store: its minimum is 75 MB."""
EXAMPLES = Path(__file__).parents[2] / "examples"


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
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", RAY]
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
    """The current folder of all commands, and the home of their user."""
    temporary: Path
    """Ray's files: a short path, because that of a socket has at most 107 characters."""
    daemons: dict[str, set[str]] = field(default_factory=dict)
    """The processes of Ray on each host, by its name."""
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all commands."""
        removed = ("RAY_", "TFDIST_", "TF_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in environment().items() if not name.startswith(removed)}
        return {
            **inherited,
            "HOME": str(self.folder),
            "PATH": os.pathsep.join((str(self.python.parent), inherited["PATH"])),
            "RAY_ADDRESS": f"{self.net.hosts[0].address}:6379",
            "RAY_API_SERVER_ADDRESS": f"http://{self.net.hosts[0].address}:8265",  # for `ray job`
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{START_S:g}",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self, namespace: str, *argv: str) -> "subprocess.Popen[str]":
        """Start a command in a namespace, in a process group of its own."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *argv],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def submit(self, *argv: str) -> "subprocess.Popen[str]":
        """Submit a job in the folder of the examples, and wait for it, as `ray job submit` does."""
        return self.start(self.net.hub, "ray", "job", "submit", "--working-dir", str(EXAMPLES), "--", *argv)

    def start_node(self, host: NetHost) -> None:
        """Start Ray on a host. Once more if it fails: on a busy machine its daemons miss each other's time limits."""
        if not any(self._start_daemons(host) for _ in range(STARTS)):
            raise RuntimeError(f"ray start on {host.name}: {(self.folder / f'{host.name}.out').read_text()}")
        self.daemons[host.name] = set(self._pids(host.namespace))

    def _start_daemons(self, host: NetHost) -> bool:
        head = self.net.hosts[0]
        place = ["--head", "--port=6379", "--dashboard-host=0.0.0.0", "--include-dashboard=true"]
        if host != head:
            place = [f"--address={head.address}:6379"]
        folder = self.temporary / f"{host.name}-{uuid.uuid4().hex[:4]}"
        argv = ["ray", "start", *place, "--num-cpus=1", f"--object-store-memory={STORE_BYTES}", f"--temp-dir={folder}"]
        inherited = {name: value for name, value in self.environment.items() if name != "RAY_ADDRESS"}
        with (self.folder / f"{host.name}.out").open("w") as out:
            done = subprocess.run(
                ["ip", "netns", "exec", host.namespace, *argv, f"--node-ip-address={host.address}"],
                env=inherited,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=2 * START_S,
            )
        if done.returncode != 0:
            self.kill(host.namespace)
        return done.returncode == 0

    def kill(self, namespace: str) -> None:
        """Kill all processes on a host but its sshd."""
        while pids := self._pids(namespace):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _pids(self, namespace: str) -> list[str]:
        return [line.split(": ")[1] for line in self.net.processes() if line.startswith(f"{namespace}: ")]

    def started_by_jobs(self) -> list[str]:
        """What runs and is no process of Ray, as `namespace: pid: command line`."""
        daemons = set().union(*self.daemons.values())
        lines = [line.split(": ", 2) for line in self.net.processes()]
        return [
            ": ".join(line)
            for line in lines
            if line[1] not in daemons and not line[2].startswith("ray") and "/ray/_private/workers/" not in line[2]
        ]


@contextmanager
def ray_cluster(net: Network, python: Path, folder: Path) -> Iterator[RayCluster]:
    """A cluster whose nodes are the hosts of `net`, with one CPU each; its head is the first."""
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
