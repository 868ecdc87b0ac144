"""An archive for a bug report: the text files of a run or a bench, without secrets and names of the user and the hosts.

Others may write to the folder, now or while the user reads the list of files. So everything is reached from the
descriptor of the folder, without following links, and only files and folders that belong to its owner are read.
"""

import errno
import os
import stat
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from itertools import chain, count
from pathlib import Path, PurePath
from typing import BinaryIO

from tfdist.launch.json_files import LARGEST, NEW_FILE, at_most, open_regular, parse_bounded
from tfdist.launch.runs.bundle_masks import HostNames, Redactor, hosts_of
from tfdist.launch.runs.rundir import FOLDER, open_folder_of

DOCTOR = "doctor.txt"
"""The file with what `tfdist doctor` finds."""
KEPT_BYTES = 1 << 20
"""Size of the end that is kept of each file."""
MAX_DEPTH = 16
"""Folders in each other; those of tfdist are fewer."""
_SUFFIXES = {".csv", ".json", ".jsonl", ".log", ".md", ".toml", ".txt"}
_SKIPPED = {"checkpoints", "files"}
_WITH_HOSTS = ("hosts.json", "cluster.json", "outcome.json", "launcher.json", "bench.json")


class Source:
    """The folder of a run or a bench.

    Attributes:
        name: of the folder.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        self._owner = os.fstat(descriptor).st_uid

    def files(self) -> dict[str, int]:
        """The bytes that are kept of each text file, by its path in the folder.

        Checkpoints, pictures, links, files and folders of another owner, and what the user's program has written are
        left out.

        Raises:
            OSError: the folder cannot be read.
        """
        return dict(self._listed(self._descriptor, PurePath()))

    def _listed(self, folder: int, path: PurePath) -> Iterator[tuple[str, int]]:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        folders = []
        for name in names:
            with suppress(OSError):  # it was deleted
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and name not in _SKIPPED:
                    folders.append(name)
                elif PurePath(name).suffix in _SUFFIXES and self._may_read(status):
                    yield str(path / name), min(status.st_size, KEPT_BYTES)
        for name in folders if len(path.parts) < MAX_DEPTH else ():
            with suppress(OSError), self._subfolder(folder, name) as descriptor:
                yield from self._listed(descriptor, path / name)

    @contextmanager
    def _subfolder(self, folder: int, name: str) -> Iterator[int]:
        descriptor = open_folder_of(self._owner, name, folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _may_read(self, status: os.stat_result) -> bool:
        """Whether it is a file of the folder's owner with one name: somebody else may have linked another file here."""
        return stat.S_ISREG(status.st_mode) and status.st_uid == self._owner and status.st_nlink == 1

    @contextmanager
    def _opened(self, member: str) -> Iterator[BinaryIO]:
        """Raises: OSError: it cannot be opened, or is not what `files` lists."""
        *parents, name = PurePath(member).parts
        with ExitStack() as stack:
            folder = self._descriptor
            for parent in parents:
                folder = stack.enter_context(self._subfolder(folder, parent))
            file = stack.enter_context(open_regular(name, folder=folder, follow=False))
            if not self._may_read(os.fstat(file.fileno())):
                raise OSError(errno.EPERM, "it belongs to another user or has several names", member)
            yield file

    def end(self, member: str) -> str:
        """The end of a file, from the start of a line on: half a secret could not be recognized."""
        try:
            with self._opened(member) as file:
                start = max(0, os.fstat(file.fileno()).st_size - KEPT_BYTES)
                file.seek(start)
                data = file.read(KEPT_BYTES)
        except OSError as error:  # a run that runs may delete it
            return f"[tfdist: cannot be read: {error.strerror}]"
        note = ""
        if start:
            first, newline, data = data.partition(b"\n")
            note = f"[tfdist: without the first {start + len(first + newline):,} bytes]\n"
        return note + data.decode("utf-8", "replace")

    def hosts(self, files: Iterable[str]) -> list[HostNames]:
        """The hosts of the run or the bench, by these files of it."""
        found: list[HostNames] = []
        for member in sorted(files, key=lambda member: _rank(PurePath(member).name)):
            if PurePath(member).name in _WITH_HOSTS:
                with suppress(OSError, ValueError), self._opened(member) as file:
                    found += hosts_of(member, parse_bounded(at_most(file, LARGEST, member), LARGEST))
        return found


def _rank(name: str) -> int:
    return _WITH_HOSTS.index(name) if name in _WITH_HOSTS else len(_WITH_HOSTS)


@contextmanager
def open_source(folder: Path) -> Iterator[Source]:
    """The folder, opened: whoever renames it then, or puts a link in its place, changes nothing.

    Raises:
        OSError: it is missing, a link or no folder.
    """
    descriptor = os.open(folder, FOLDER)
    try:
        yield Source(folder.name, descriptor)
    finally:
        os.close(descriptor)


def write_bundle(source: Source, files: Iterable[str], doctor: str, redact: Redactor) -> Path:
    """Write tfdist-NAME.tar.gz into the current folder, for this user only; if it exists, the name gets a number.

    Args:
        source: the folder, called NAME.
        files: paths in it, as `Source.files` found them, and `DOCTOR`.
        doctor: the text of that one.
        redact: is applied to each file and each path.

    Raises:
        OSError: it cannot be written, and there is nothing left of it.
    """
    for number in count(1):
        name = f"tfdist-{source.name}" if number == 1 else f"tfdist-{source.name}-{number}"
        path = Path(f"{name}.tar.gz")
        with suppress(FileExistsError):
            descriptor = os.open(path, NEW_FILE, 0o600)
            break
    try:
        names: set[str] = set()
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for member in files:
                text = doctor if member == DOCTOR else source.end(member)
                data = redact.file(member, text).encode("utf-8", "replace")
                info = tarfile.TarInfo(_unused(redact.path(f"{name}/{member}"), names))
                info.size = len(data)
                info.mtime = int(time.time())
                archive.addfile(info, BytesIO(data))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _unused(name: str, names: set[str]) -> str:
    """The name of a member that no other one has: two may have been the same but for a secret."""
    path = PurePath(name)
    numbered = (str(path.with_name(f"{path.stem}-{number}{path.suffix}")) for number in count(2))
    unused = next(each for each in chain([name], numbered) if each not in names)
    names.add(unused)
    return unused
