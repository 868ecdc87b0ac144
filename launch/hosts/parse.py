"""Where hosts come from: `--hosts` with entries `[user@]host[:slots]`, or a hostfile."""

import ipaddress
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfdist.launch.cluster import ROLES
from tfdist.launch.errors import TfdistError
from tfdist.launch.host_list import FORBIDDEN_IN_NAMES, MAX_HOSTS, entries, expand
from tfdist.launch.hosts.host import Host
from tfdist.launch.json_files import read_input
from tfdist.launch.text import check_name, shortened

KEYS = ("slots", "role", "addr", "port", "gpus", "python", "chdir")
"""Settings of a line in a hostfile."""
SLOTS = "number of slots"


def parse_hosts(text: str, source: str = "--hosts") -> tuple[Host, ...]:
    """The hosts in a list like `a,b:2,user@c,node[01-03,10]`, as in `--hosts`.

    Raises:
        TfdistError: the list or an entry is empty or invalid. The message starts with `source`.
    """
    return check_unique((f"{source} {text}", _parse_target(target, source)) for target in entries(text, source))


def check_unique(hosts: Iterable[tuple[str, Host]]) -> tuple[Host, ...]:
    """The hosts of these (source, host) pairs.

    Raises:
        TfdistError: two have the same name. The message starts with the source of the second.
    """
    unique: dict[str, Host] = {}
    for source, host in hosts:
        if host.name.lower() in unique:  # as DNS
            raise TfdistError(f"{source}: duplicate host {host.name}; list it once, with {host.name}:2 for two workers")
        unique[host.name.lower()] = host
    return tuple(unique.values())


def _parse_target(text: str, source: str) -> Host:
    user, at, rest = text.rpartition("@")
    inside, bracket, after = rest[1:].partition("]")
    if rest.startswith("[") and bracket and is_ipv6(inside):
        name = inside
        colon = after[:1]
        slots = after[1:]
    elif rest.count(":") > 1:
        raise TfdistError(f"{source} {text}: not [user@]host[:slots]; put an IPv6 address in brackets, as [::1]:2")
    else:
        name, colon, slots = rest.partition(":")
    for part in (name, *([user] if at else [])):
        if not part or part.startswith("-") or FORBIDDEN_IN_NAMES.search(part):
            raise TfdistError(f"{source} {text!r}: invalid name {part!r}; use [user@]host[:slots]")
    if colon not in ("", ":"):
        raise TfdistError(f"{source} {text!r}: not [user@]host[:slots]; correct it")
    return Host(name, user=user, slots=_parse_integer(slots, f"{source} {text}", SLOTS, MAX_HOSTS) if colon else None)


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address, with or without a zone, as in fe80::1%eth0."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _parse_integer(value: str, source: str, noun: str, maximum: int) -> int:
    """An integer from 1 to `maximum`, in ASCII digits."""
    if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= maximum:
        raise TfdistError(f"{source}: invalid {noun} {value!r}; use 1 to {maximum}")
    return int(value)


def parse_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts in a file. `#` starts a comment, and quotes work as in a shell.

    Raises:
        TfdistError: the file is not readable or has no hosts, or a line is invalid. The message names file and line.
    """
    data = b""
    try:
        data = read_input(path)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line_number = data[: error.start].count(b"\n") + 1
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
        if key not in KEYS or not equals:
            raise TfdistError(f"{source} {setting!r}: unknown setting; use {', '.join(f'{key}=' for key in KEYS)}")
        field = "address" if key == "addr" else key
        if field in values:
            raise TfdistError(f"{source} {setting}: {key}= is set twice; remove one")
        values[field] = _parse_setting(key, value, f"{source} {setting}")
    hosts = [_parse_target(target, source) for target in expand(entry, source)]
    if "slots" in values and hosts[0].slots is not None:
        raise TfdistError(f"{source} {entry} already sets the slots; remove slots={values['slots']}")
    if "address" in values and len(hosts) > 1:
        raise TfdistError(
            f"{source} addr={values['address']}: {len(hosts)} hosts cannot share it; write a line for each"
        )
    return [replace(host, **values) for host in hosts]


def _parse_setting(key: str, value: str, source: str) -> Any:
    if key == "slots":
        return _parse_integer(value, source, SLOTS, MAX_HOSTS)
    if key == "port":
        return _parse_integer(value, source, "port", 65535)
    if key == "role" and value not in ROLES:
        raise TfdistError(f"{source}: unknown role; use one of {', '.join(ROLES)}")
    if key == "addr":
        unwrapped = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        is_name = unwrapped == value != "" and ":" not in value
        if FORBIDDEN_IN_NAMES.search(unwrapped) or not (is_name or is_ipv6(unwrapped)):
            raise TfdistError(f"{source}: invalid address {value!r}; use a host name or an IP address, without a port")
        return unwrapped
    if key == "gpus":
        gpus = tuple(gpu.strip() for gpu in value.split(","))
        if not all(gpus) or len(set(gpus)) < len(gpus):
            raise TfdistError(f"{source}: empty or duplicate GPU; list each GPU once, for example gpus=0,1")
        return gpus
    if not value:
        raise TfdistError(f"{source}: empty value; set one, or remove the setting")
    return value


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


def with_groups(hosts: Sequence[Host], groups: Mapping[str, int]) -> tuple[Host, ...]:
    """These hosts with their groups, if the current job is heterogeneous.

    Args:
        hosts: some hosts of the job.
        groups: the group of each host of the job; empty if it has only one.

    Raises:
        TfdistError: a host is in none of the groups.
    """
    if not groups:
        return tuple(hosts)
    for host in hosts:
        if host.name not in groups:
            raise TfdistError(f"{host.name}: not a node of this heterogeneous job; use {', '.join(groups)}")
    return tuple(replace(host, het_group=groups[host.name]) for host in hosts)
