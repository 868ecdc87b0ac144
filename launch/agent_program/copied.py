"""The copy of the program's folder on a host: received in parts, unpacked once. Part of the agent."""

import os
import time
from collections.abc import Iterator
from typing import Any

MOST_NAMED = 4
"""Written files that are named; more are counted."""


class Copied:
    """The copy in a folder that does not exist yet, in the agent's own one, with which it is removed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.archive = f"{folder}.tar.gz"
        self.reason = ""  # why it cannot be unpacked
        self.unpacked_ns = 0

    def add(self, data: str) -> None:
        """Write the next part of the archive, in base64, to the disk."""
        from base64 import b64decode  # only jobs with a copy need it

        if not self.reason:
            try:
                with open(self.archive, "ab") as archive:
                    archive.write(b64decode(data))
            except OSError as error:
                self.reason = os.strerror(error.errno or 0)

    def unpack(self) -> dict[str, str]:
        """Unpack the archive, unless that was done; returns the folder, or the reason why that failed."""
        import tarfile

        try:
            if not self.reason and not self.unpacked_ns:
                os.mkdir(self.folder, 0o700)
                with tarfile.open(self.archive) as archive:
                    # of Pythons that have it: it refuses links out of the folder, which the launcher has refused before
                    has_filter = hasattr(tarfile, "data_filter")
                    archive.extractall(self.folder, **({"filter": "data"} if has_filter else {}))  # type: ignore[arg-type]
                os.unlink(self.archive)
                self.unpacked_ns = time.time_ns()
        except (OSError, tarfile.TarError, EOFError) as error:
            self.reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return {"reason": self.reason} if self.reason else {"copied": self.folder}

    def written(self) -> dict[str, Any]:
        """The files that were written since: the first names, and their number."""
        names = sorted(self._written())
        return {"names": names[:MOST_NAMED], "count": len(names)}

    def _written(self) -> Iterator[str]:
        for parent, folders, names in os.walk(self.folder):
            folders[:] = [folder for folder in folders if folder != "__pycache__"]
            for name in names:
                path = os.path.join(parent, name)
                try:
                    if os.lstat(path).st_ctime_ns > self.unpacked_ns:  # the time of writing may be set, this one not
                        yield os.path.relpath(path, self.folder)
                except FileNotFoundError:
                    continue
