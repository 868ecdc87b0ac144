"""The hosts that `--hosts`, `--hostfile` and `--exclude` select.

A hostfile has one host per line: `[user@]host[:slots]`, then settings `key=value`.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfdist.launch.cluster import ROLES
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import (
    FORBIDDEN_IN_NAMES,
    check_unique,
    is_ipv6,
    parse_entry,
    parse_hosts,
    parse_integer,
    parse_slots,
)
from tfdist.launch.text import check_name, shortened


def parse_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts in a file. `#` starts a comment, and quotes work as in a shell.

    Raises:
        TfdistError: the file is not readable or has no hosts, or a line is invalid. The message names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line_number = path.read_bytes()[: error.start].count(b"\n") + 1
        raise TfdistError(f"--hostfile {path}, line {line_number}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise TfdistError(f"--hostfile {path}: {error.strerror}; use a file with one host per line") from None
    hosts: list[tuple[str, Host]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        source = f"--hostfile {path}, line {number}:"
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise TfdistError(f"{source} {line.strip()!r}: {error}; correct the quotes") from None
        for word in words:
            check_name(source, word)
        if words:
            hosts += [(f"{source} {words[0]}", host) for host in _parse_line(words[0], words[1:], source)]
    if not hosts:
        raise TfdistError(f"--hostfile {path}: no hosts; write one per line")
    return check_unique(hosts)


def _parse_line(entry: str, settings: Sequence[str], source: str) -> list[Host]:
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in _KEYS or not equals:
            raise TfdistError(f"{source} {setting!r}: unknown setting; use {', '.join(f'{key}=' for key in _KEYS)}")
        field = "address" if key == "addr" else key
        if field in values:
            raise TfdistError(f"{source} {setting}: {key}= is set twice; remove one")
        values[field] = _KEYS[key](value, f"{source} {setting}")
    hosts = parse_entry(entry, source)
    if "slots" in values and hosts[0].slots is not None:
        raise TfdistError(f"{source} {entry} already sets the slots; remove slots={values['slots']}")
    if "address" in values and len(hosts) > 1:
        raise TfdistError(
            f"{source} addr={values['address']}: {len(hosts)} hosts cannot share it; write a line for each"
        )
    return [replace(host, **values) for host in hosts]


def _parse_role(value: str, source: str) -> str:
    if value not in ROLES:
        raise TfdistError(f"{source}: unknown role; use one of {', '.join(ROLES)}")
    return value


def _parse_port(value: str, source: str) -> int:
    return parse_integer(value, source, "port", 65535)


def _parse_address(value: str, source: str) -> str:
    unwrapped = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    is_name = unwrapped == value != "" and ":" not in value
    if FORBIDDEN_IN_NAMES.search(unwrapped) or not (is_name or is_ipv6(unwrapped)):
        raise TfdistError(f"{source}: invalid address {value!r}; use a host name or an IP address, without a port")
    return unwrapped


def _parse_gpus(value: str, source: str) -> tuple[str, ...]:
    gpus = tuple(gpu.strip() for gpu in value.split(","))
    if not all(gpus) or len(set(gpus)) < len(gpus):
        raise TfdistError(f"{source}: empty or duplicate GPU; list each GPU once, for example gpus=0,1")
    return gpus


def _parse_text(value: str, source: str) -> str:
    if not value:
        raise TfdistError(f"{source}: empty value; set one, or remove the setting")
    return value


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "slots": parse_slots,
    "role": _parse_role,
    "addr": _parse_address,
    "port": _parse_port,
    "gpus": _parse_gpus,
    "python": _parse_text,
    "chdir": _parse_text,
}


def read_hosts(hosts: str | None, hostfile: Path | None, exclude: Sequence[str] = ()) -> tuple[Host, ...]:
    """The hosts of the list or the file whose names match no pattern, in order; none if neither option is given.

    Raises:
        TfdistError: an option is invalid, or no host is left. The message has the value, or file and line.
    """
    if hosts is None and hostfile is None:
        return ()
    listed = parse_hostfile(hostfile) if hostfile is not None else parse_hosts(hosts or "")
    selected = tuple(host for host in listed if not any(fnmatchcase(host.name, pattern) for pattern in exclude))
    if not selected:
        patterns = " ".join(f"--exclude {one}" for one in exclude)
        names = shortened(host.name for host in listed)
        raise TfdistError(f"{patterns}: no host is left of {names}; change the patterns")
    return selected
