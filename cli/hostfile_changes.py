"""The hosts that a job may use while it runs: those of its start, and what a changed hostfile adds or removes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host


@dataclass
class HostfileChanges:
    """Reads the hostfile again when it has changed. A host that is known keeps the settings it was started with."""

    hosts: tuple[Host, ...]
    """The hosts that were read last."""
    path: Path | None
    """None: the hosts never change."""
    read: Callable[[], tuple[Host, ...]]
    """The hosts of the file, located. Raises a TfdistError if the file is wrong."""
    _seen: tuple[int, int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self._signature()

    def __call__(self) -> Sequence[Host]:
        """The hosts now.

        Raises:
            TfdistError: the file has changed and is wrong. Until it changes again, the hosts stay.
        """
        signature = self._signature()
        if signature not in (None, self._seen):
            self._seen = signature
            known = {host.name: host for host in self.hosts}
            try:
                self.hosts = tuple(known.get(host.name, host) for host in self.read())
            except TfdistError as error:
                raise TfdistError(f"{error}; the job keeps its hosts") from None
        return self.hosts

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat() if self.path is not None else None
        except OSError:  # it is being replaced
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino)
