"""Which process a run's launcher is, and whether it still runs."""

import os
import signal
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tfdist.launch.json_files import read_json
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.typed_json import Between, Time, from_json


@dataclass(frozen=True)
class Launcher:
    """The process that supervises a run."""

    pid: Annotated[int, Between(1, 1 << 22)]  # 1 in a container
    ticks: Annotated[int, Between(1, 1 << 62)]
    """When the process was started, in clock ticks since boot: with it, a pid is unique until the next boot."""
    boot: str
    """The id of this boot of the machine."""
    host: str
    started: Time

    @property
    def local(self) -> bool:
        """Whether it was started on this machine; runs may be on a shared disk."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether it runs. One on another machine counts as alive: this one cannot check it."""
        return not self.local or (self.boot == _boot_id() and self.ticks == _start_ticks(self.pid))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}


def this_launcher() -> Launcher:
    """This process."""
    return Launcher(os.getpid(), _start_ticks(os.getpid()), _boot_id(), socket.gethostname(), time.time())


def read_launcher(run_dir: RunDir) -> Launcher | None:
    """The launcher that a run's folder names; None if it does not. Anybody may have written that file."""
    try:
        launcher = from_json(read_json(run_dir.launcher), Launcher)
    except ValueError:
        return None
    return replace(launcher, host=safe_text(launcher.host))


def terminate(run_dir: RunDir, launcher: Launcher) -> None:
    """Send SIGTERM to a launcher on this machine, if it is the process of whoever wrote that it is the launcher.

    Raises:
        ProcessLookupError: it has ended, or that pid is another process.
        PermissionError: it is not ours.
    """
    if launcher.pid <= 1:
        raise ProcessLookupError
    process = os.pidfd_open(launcher.pid)  # from here on, the pid cannot become that of another process unnoticed
    try:
        owners = {run_dir.launcher.lstat().st_uid, Path(f"/proc/{launcher.pid}").stat().st_uid}
        if len(owners) > 1 or not launcher.alive:
            raise ProcessLookupError
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except FileNotFoundError:
        raise ProcessLookupError from None
    finally:
        os.close(process)


def _start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat (proc(5)); 0 if no such process runs."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if after_name[0] in ("Z", "X") else int(after_name[19])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
