"""What travels to all hosts: a folder, in whose copy tasks run (`--copy`, packed by `packing.py`), and a function that
tasks call (`function.py`)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, one_line, plain, replace_surrogates

IGNORE_FILE = ".tfdistignore"
"""The file in a folder that names what does not travel, in the syntax of .gitignore."""
_NAMED = 3
"""Files that a message names."""


@dataclass(frozen=True)
class Origin:
    """Where a copy comes from."""

    folder: str = ""
    """An absolute path; empty: only a function travels, and tasks run in the folder itself."""
    files: int = 0
    size: int = 0
    """Bytes of all files."""
    digest: str = ""
    """SHA-256 of all names, modes and contents; empty: they were not read."""
    commit: str = ""
    """The git commit that was checked out; empty: none."""
    changed: bool = False
    """The folder differs from the commit."""
    function: str = ""
    """The name of the function that travels, too; empty: none."""

    def __str__(self) -> str:
        """`/home/me/project (git 1a2b3c4d5e6f, changed): 12 files, 34.5 kB`."""
        version = f" (git {self.commit[:12]}{', changed' if self.changed else ''})" if self.commit else ""
        return f"{shown(self.folder)}{version}: {counted(self.files, 'file')}, {decimal(self.size)}"


@dataclass(frozen=True)
class ProgramCopy:
    """The files of a folder, and a function, as they were when the job was asked for."""

    origin: Origin
    sizes: Mapping[str, int] = field(repr=False, compare=False)
    """Bytes of each file by its name, relative to the folder; a link has none."""
    archive: bytes = field(repr=False, compare=False)
    """A compressed tar; empty: of a dry run."""

    @property
    def folder(self) -> str:
        """`Origin.folder`."""
        return self.origin.folder

    def __str__(self) -> str:
        """`copy of /home/me/project: 12 files, 34.5 kB; the largest: data.csv (30 kB), train.py (2 kB)`."""
        if not self.folder:
            return f"function {self.origin.function}: {decimal(len(self.archive))}"
        return f"copy of {self.origin}" + (f"; the largest: {largest(self.sizes)}" if self.sizes else "")

    def check_file(self, file: str) -> None:
        """Refuse the file of a command that is not in the copy.

        Raises:
            TfdistError: the reason.
        """
        name = os.path.normpath(file)
        if name in self.sizes:
            return
        inside = os.path.relpath(file, self.folder) if file.startswith("/") else ""
        if inside in self.sizes:
            raise TfdistError(f"{file!r} is not a file of the copy of {shown(self.folder)}: write {inside!r}")
        exists = Path(self.folder, name).exists()
        fix = f"git or {IGNORE_FILE} ignores it, so it does not travel" if exists else "give its path in that folder"
        raise TfdistError(f"{file!r} is not in the copy of {shown(self.folder)}: {fix}")


NOTHING = ProgramCopy(Origin(), {}, b"")
"""A copy of no folder, for a function alone."""


def decimal(size: int) -> str:
    """`34.5 kB`."""
    from rich import filesize  # a moment, which only copies take

    return filesize.decimal(size)


def shown(name: str) -> str:
    """A name of a file or folder for a message."""
    return one_line(plain(replace_surrogates(name)))


def largest(sizes: Mapping[str, int]) -> str:
    """`data.csv (30 kB), train.py (2 kB)`."""
    first = sorted(sizes.items(), key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{shown(name)} ({decimal(size)})" for name, size in first)
