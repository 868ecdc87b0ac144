"""The hosts that the options `--hosts`, `--hostfile`, `--include` and `--exclude` select."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.hostfile import parse_hostfile
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.text import shortened


def read_hosts(
    hosts: str | None, hostfile: Path | None, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[Host, ...]:
    """The hosts of the list or the file whose names match the patterns, in order; none if neither option is given.

    Raises:
        TfdistError: an option is invalid, or the patterns match no host. The message has the value, or file and line.
    """
    if hosts is None and hostfile is None:
        return ()
    listed = parse_hostfile(hostfile) if hostfile is not None else parse_hosts(hosts or "")
    selected = tuple(
        host for host in listed if (not include or _matches(host.name, include)) and not _matches(host.name, exclude)
    )
    if not selected:
        patterns = " ".join([*(f"--include {one}" for one in include), *(f"--exclude {one}" for one in exclude)])
        names = shortened(host.name for host in listed)
        raise TfdistError(f"{patterns}: no host is left of {names}; change the patterns")
    return selected


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
