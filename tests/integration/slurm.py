"""A Slurm cluster of Debian's packages on hosts in network namespaces: slurmctld in the hub, a slurmd on each host.

Nothing is installed: the packages are downloaded and unpacked into a folder. Nodes are named as the hosts are, and have
8 CPUs each, whatever this machine has.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .namespaces import Network
from .nethost import SYSTEM_PATH, environment

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libslurm38", "libhwloc15")
"""Packages of Debian 12; their other dependencies are part of every Debian."""
DOWNLOAD_S, START_S = 120.0, 30.0
CPUS = 8
HUB = "hub"

_CONFIG = """\
ClusterName=tfdist
SlurmctldHost={hub}(10.77.0.254)
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmUser=root
MpiDefault=none
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
KillWait={kill_wait_s}
SchedulerParameters=bf_interval=1
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class UnavailableError(Exception):
    """Slurm cannot be run here, for this reason."""


def unpack(folder: Path) -> Path:
    """Download Slurm's packages and unpack them; returns the root of their files.

    Raises:
        UnavailableError: this is no Debian, or the packages cannot be downloaded.
    """
    missing = [tool for tool in ("apt-get", "dpkg", "unshare") if shutil.which(tool, path=SYSTEM_PATH) is None]
    if missing:
        raise UnavailableError(f"not installed: {', '.join(missing)}")
    debs, root = folder / "debs", folder / "root"
    debs.mkdir(parents=True)
    try:
        done = subprocess.run(
            ["apt-get", "download", *PACKAGES], cwd=debs, capture_output=True, text=True, timeout=DOWNLOAD_S
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"apt-get download took more than {DOWNLOAD_S:g} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"apt-get download: {done.stderr.strip().splitlines()[-1]}")
    for deb in debs.iterdir():
        subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)
    return root


@dataclass
class Slurm:
    """A running cluster."""

    net: Network
    root: Path
    folder: Path
    daemons: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Slurm's commands and daemons."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        path = os.pathsep.join((str(self.root / "usr/bin"), str(self.root / "usr/sbin"), SYSTEM_PATH))
        return {
            **{name: value for name, value in environment().items() if not name.startswith(("SLURM", "TFDIST_"))},
            "PATH": path,
            "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def on(self, namespace: str, name: str, *argv: str) -> list[str]:
        """A command that runs `argv` in this namespace, on a machine of this name that knows the others."""
        script = f'mount --bind {self.folder}/hosts /etc/hosts && hostname {name} && exec "$@"'
        enter = ("nsenter", f"--net=/run/netns/{namespace}")  # unlike `ip netns exec`, it keeps /sys/fs/cgroup
        return [*enter, "unshare", "--mount", "--uts", "sh", "-c", script, "sh", *argv]

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command in the hub, as a user on a login node does."""
        return subprocess.Popen(
            self.on(self.net.hub, HUB, *argv),
            cwd=cwd or self.folder,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout_s: float = 60.0
    ) -> str:
        """The stdout of a command in the hub.

        Raises:
            RuntimeError: it failed. The message has its stderr.
        """
        process = self.start(*argv, env=env, cwd=cwd)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}: {err.strip()}")
        return out


@contextmanager
def slurm(net: Network, root: Path, folder: Path, kill_wait_s: int = 30) -> Iterator[Slurm]:
    """A cluster whose nodes are the hosts of `net`, ready for jobs."""
    cluster = Slurm(net, root, folder)
    (folder / "state").mkdir(parents=True)
    nodes = "\n".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} RealMemory=1000 State=UNKNOWN" for host in net.hosts
    )
    config = _CONFIG.format(
        hub=HUB,
        plugins=root / "usr/lib/x86_64-linux-gnu/slurm-wlm",
        folder=folder,
        kill_wait_s=kill_wait_s,
        nodes=nodes,
    )
    (folder / "slurm.conf").write_text(config)
    names = ((host.address, host.name) for host in net.hosts)
    lines = (f"{address} {name}\n" for address, name in (("127.0.0.1", "localhost"), ("10.77.0.254", HUB), *names))
    (folder / "hosts").write_text("".join(lines))
    try:
        _start(cluster, net.hub, HUB, "slurmctld-wlm", "-D", "-c")
        stepd = str(root / "usr/sbin/slurmstepd-wlm")
        for host in net.hosts:
            _start(cluster, host.namespace, host.name, "slurmd-wlm", "-D", "-N", host.name, "-d", stepd)
        _wait_for_nodes(cluster)
        yield cluster
    finally:
        for daemon in cluster.daemons:
            daemon.kill()
            daemon.wait()


def _start(cluster: Slurm, namespace: str, name: str, *argv: str) -> None:
    with (cluster.folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            cluster.on(namespace, name, *argv),
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    cluster.daemons.append(process)


def _wait_for_nodes(cluster: Slurm) -> None:
    until, states = time.monotonic() + START_S, ""
    while time.monotonic() < until:
        with suppress(RuntimeError):  # slurmctld does not listen yet
            states = cluster.run("sinfo", "--noheader", "--format=%T")
            if states.split() == ["idle"]:
                return
        time.sleep(0.1)
    raise RuntimeError(f"nodes are {states.split()} after {START_S:g} s; see {cluster.folder}")
