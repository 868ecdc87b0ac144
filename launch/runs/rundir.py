"""The paths in a run's folder."""

import errno
import glob
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tfdist.launch.agent_program.folders import make_folder, why_unsafe
from tfdist.launch.errors import TfdistError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder, and no link to one."""
_STAMP = "%Y%m%dT%H%M%SZ"
"""The UTC time at the start of a folder's name."""


@dataclass(frozen=True)
class FileIn:
    """An attribute of an object with a `path`, a folder: the path of the file with this name in it."""

    name: str

    def __get__(self, folder: Any, _: object) -> Path:
        return Path(folder.path, self.name)


@dataclass(frozen=True)
class RunDir:
    """The folder of one run."""

    path: Path
    spec = FileIn("spec.json")
    """The training spec, or the strategy and the user's command."""
    cluster = FileIn("cluster.json")
    """The addresses of the cluster; host, cores, environment and command of each task."""
    hosts = FileIn("hosts.json")
    """Each host's description from its agent."""
    commands = FileIn("commands.txt")
    """The tfdist command, then the command of each task."""
    events = FileIn("events.jsonl")
    """All messages except output and heartbeats, one JSON object per line."""
    outcome = FileIn("outcome.json")
    """The `Outcome`."""
    records = FileIn("records.jsonl")
    """The measurements for `tfdist report`, a line each."""
    copy = FileIn("copy.tar.gz")
    """The copy of the program's folder, in which its tasks run."""
    checkpoints = FileIn("checkpoints")
    """The folder of checkpoints, unless another one was chosen."""
    traces = FileIn("traces")
    """What tf.profiler has traced, for TensorBoard."""
    files = FileIn("files")
    """TFDIST_ARM_DIR: what the user's program writes."""
    launcher = FileIn("launcher.json")
    """Which process the launcher is."""
    launcher_log = FileIn("launcher.log")
    """What a launcher in the background prints."""
    control = FileIn("control.sock")
    """The unix socket of a running launcher."""
    placement = FileIn("placement.csv")
    """Where operations were placed: task, operation, device and number of nodes, as CSV."""
    reserved = FileIn(".reserved")
    """Disk space that is kept free for `outcome`."""

    @property
    def created(self) -> float | None:
        """Seconds since 1970, from the folder's name; None if `create_run_dir` did not choose that name."""
        try:
            stamp = datetime.strptime(self.path.name.partition("-")[0], _STAMP)
        except ValueError:
            return None
        return stamp.replace(tzinfo=timezone.utc).timestamp()

    def attempts(self, task: str = "") -> list[tuple[int, str]]:
        """Attempt and task of each folder with logs, sorted; without a task, those of all tasks."""
        folders = self.path.glob(f"attempt-*/{glob.escape(task) or '*'}")
        found = ((folder.parent.name.removeprefix("attempt-"), folder.name) for folder in folders)
        return sorted((int(number), task) for number, task in found if re.fullmatch("[0-9]{1,9}", number))

    def log(self, task: str, stream: str, attempt: int = 0) -> Path:
        """The log of a task's `stdout` or `stderr`, or its `stacks`."""
        return self.path / f"attempt-{attempt}" / task / f"{stream}.{'txt' if stream == 'stacks' else 'log'}"


def create_run_dir(runs_dir: Path, name: str, now: datetime | None = None) -> RunDir:
    """Create the folder `<UTC time>-<name>` in `runs_dir`, for this user only; if it exists, the name gets a number.

    Raises:
        TfdistError: the folder cannot be created.
    """
    stamp = (now or datetime.now(timezone.utc)).strftime(_STAMP)
    base = f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-.')[:100] or 'run'}"
    for number in range(1, 1000):
        path = runs_dir / (base if number == 1 else f"{base}-{number}")
        try:
            check_runs_dir(runs_dir)
            make_folder(str(runs_dir))
            path.mkdir(0o700)  # logs and commands may hold secrets
            os.close(open_folder(path))
        except FileExistsError:
            if not runs_dir.is_dir():
                raise TfdistError(f"--runs-dir {runs_dir}: a file, not a folder; choose another one") from None
            continue
        except OSError as error:
            raise TfdistError(
                f"--runs-dir {runs_dir}: cannot be written ({error.strerror}); choose another one"
            ) from None
        return RunDir(path)
    raise TfdistError(f"--name {name!r}: {runs_dir} has 999 runs of this name from this second; choose another one")


def open_folder(path: Path) -> int:
    """A descriptor of a folder of ours. Whoever renames the folder then, or puts a link in its place, changes nothing.

    Raises:
        OSError: it is missing, a link or no folder, or another user could exchange it or what is in it.
    """
    descriptor = open_folder_of(os.geteuid(), path)
    reason = why_unsafe(str(path))
    if not reason:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, reason, str(path))


def open_folder_of(owner: int, path: Path | str, parent: int | None = None) -> int:
    """A descriptor of a folder that belongs to this user, and is no link to one.

    Args:
        owner: number of the user.
        path: relative to `parent`, if that is given.
        parent: descriptor of a folder.

    Raises:
        OSError: it is missing, a link or no folder, or belongs to another user.
    """
    descriptor = os.open(path, FOLDER, dir_fd=parent)
    if os.fstat(descriptor).st_uid == owner:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "it belongs to another user", str(path))


def is_ours(path: Path) -> bool:
    """Whether a folder belongs to this user, and a link in its place, too."""
    with suppress(OSError):
        return {path.lstat().st_uid, path.stat().st_uid} == {os.geteuid()}
    return False


def check_runs_dir(runs_dir: Path) -> None:
    """Refuse a folder in which another user may exchange the folder of a run; it may not exist yet.

    Raises:
        TfdistError: it is such a folder.
    """
    reason = why_unsafe(str(runs_dir))
    if reason:
        raise TfdistError(f"--runs-dir {runs_dir}: {reason}, or choose another one")
