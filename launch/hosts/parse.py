"""Where tasks can be: `--hosts` and `--hostfile` become a tuple of hosts. Pure but for reading the file."""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfdist.launch.cluster import ROLES
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

MOST_HOSTS = 10_000
"""More hosts, or slots of one, than any job has: `node[1-99999999]` is a slip."""
NO_NAME = re.compile(r"[\s\x00-\x1f\x7f\[\]'\"\\;|&$`<>(){}!*?,=#]")
"""What no host's and no user's name has in it."""


def read_hosts(
    hosts: str | None, hostfile: Path | None, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[Host, ...]:
    """The hosts that the options name, in their order; none if neither option is given.

    Raises:
        TfdistError: something in them is wrong; the sentence names the option or file and line, and the value.
    """
    if hosts is not None and hostfile is not None:
        raise TfdistError(f"--hosts {hosts} and --hostfile {hostfile}: give one of them")
    if hosts is None and hostfile is None:
        if include or exclude:
            flag, pattern = ("--include", include[0]) if include else ("--exclude", exclude[0])
            raise TfdistError(f"{flag} {pattern}: there are no hosts to choose from; give --hosts or --hostfile")
        return ()
    found = parse_hostfile(hostfile) if hostfile is not None else parse_hosts(hosts or "")
    chosen = tuple(
        host for host in found if (not include or _matches(host.name, include)) and not _matches(host.name, exclude)
    )
    if not chosen:
        names = ", ".join(host.name for host in found[:8]) + (", ..." if len(found) > 8 else "")
        patterns = " ".join([*(f"--include {one}" for one in include), *(f"--exclude {one}" for one in exclude)])
        raise TfdistError(f"{patterns} leaves no host of {names}: change the pattern")
    return chosen


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def parse_hosts(text: str, where: str = "--hosts") -> tuple[Host, ...]:
    """`a,b:2,user@c,node[01-03,10]`, as `--hosts` and Slurm write it.

    Raises:
        TfdistError: it is empty, or one of them is wrong.
    """
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", text)]
    if not any(words):
        raise TfdistError(f"{where} {text!r} names no host: give at least one, as in --hosts h1,h2:2")
    if not all(words):
        raise TfdistError(f"{where} {text!r} has an empty place between two commas: take one comma out")
    return _without_duplicates([(f"{where} {text}", host) for word in words for host in _entry(word, [], where)])


def parse_hostfile(path: Path) -> tuple[Host, ...]:
    """A file of lines `[user@]host[:slots] [slots=N] [role=R] [addr=A] [port=P] [gpus=0,1] [python=P] [chdir=D]`.

    Raises:
        TfdistError: it cannot be read, names no host, or a line is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        bad = path.read_bytes()[: error.start].count(b"\n") + 1
        raise TfdistError(f"--hostfile {path}, line {bad}: it is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise TfdistError(f"--hostfile {path}: {error.strerror}; give the path of a file with a host a line") from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"--hostfile {path}, line {number}:"
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise TfdistError(f"{where} {line.strip()!r} cannot be read ({error}): close the quote") from None
        if words:
            found += [(f"{where} {words[0]}", host) for host in _entry(words[0], words[1:], where)]
    if not found:
        raise TfdistError(f"--hostfile {path} names no host: write one a line")
    return _without_duplicates(found)


def _without_duplicates(found: Sequence[tuple[str, Host]]) -> tuple[Host, ...]:
    seen: set[str] = set()
    for where, host in found:
        if host.name in seen:
            raise TfdistError(f"{where}: the host {host.name} is there twice; name it once, as {host.name}:2 for two")
        seen.add(host.name)
    return tuple(host for _, host in found)


def _entry(word: str, settings: Sequence[str], where: str) -> list[Host]:
    """The hosts of one entry: several if the name has a range in it."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in _KEYS or not equals:
            raise TfdistError(f"{where} {setting!r} is none of the keys {', '.join(f'{key}=' for key in _KEYS)}")
        field = {"addr": "address"}.get(key, key)
        if field in values:
            raise TfdistError(f"{where} {key}= is there twice")
        values[field] = _KEYS[key](value, f"{where} {setting}")
    hosts = [replace(_target(name, where), **values) for name in expand(word, where)]
    if "slots" in values and _target(expand(word, where)[0], where).slots is not None:
        raise TfdistError(f"{where} {word} has its slots behind the colon already: leave slots= away")
    if len(hosts) > 1 and "address" in values:
        raise TfdistError(f"{where} addr={values['address']} cannot be the address of {len(hosts)} hosts")
    return hosts


def expand(word: str, where: str = "--hosts") -> list[str]:
    """`node[01-03,10]` as its names, zeros kept; several brackets multiply. An IPv6 address in brackets is none.

    Raises:
        TfdistError: a range that counts down, or too many hosts.
    """
    match = re.search(r"\[([0-9]{1,18}(?:-[0-9]{1,18})?(?:,[0-9]{1,18}(?:-[0-9]{1,18})?)*)\]", word)
    if match is None:
        return [word]
    numbers: list[str] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if int(first) > int(last):
            raise TfdistError(f"{where} {word}: the range {part} counts down; write {last}-{first}")
        if int(last) - int(first) >= MOST_HOSTS:
            raise TfdistError(f"{where} {word}: the range {part} is more than {MOST_HOSTS} hosts; shorten it")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    tails = expand(word[match.end() :], where)
    if len(numbers) * len(tails) > MOST_HOSTS:
        raise TfdistError(f"{where} {word}: that is more than {MOST_HOSTS} hosts; shorten it")
    return [word[: match.start()] + number + tail for number in numbers for tail in tails]


def _target(text: str, where: str) -> Host:
    """`[user@]host[:slots]`."""
    user, at, rest = text.rpartition("@")
    inside, bracket, after = rest[1:].partition("]")
    if rest.startswith("[") and bracket and is_ipv6(inside):
        name, colon, slots = inside, after[:1], after[1:]
    elif rest.count(":") > 1:
        raise TfdistError(f"{where} {text} is not [user@]host[:slots]: an IPv6 address belongs in brackets, as [::1]:2")
    else:
        name, colon, slots = rest.partition(":")
    for part in (name, *([user] if at else [])):
        if not part or part.startswith("-") or NO_NAME.search(part):
            raise TfdistError(f"{where} {text!r} is not [user@]host[:slots]: {part!r} cannot be a name")
    if colon not in ("", ":"):
        raise TfdistError(f"{where} {text!r} is not [user@]host[:slots]")
    return Host(name, user=user, slots=_slots(slots, f"{where} {text}") if colon else None)


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address, perhaps with a zone, as fe80::1%eth0."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _slots(value: str, where: str) -> int:
    number = _whole(value)
    if not 1 <= number <= MOST_HOSTS:
        raise TfdistError(f"{where}: {value!r} slots; use a whole number from 1 to {MOST_HOSTS}")
    return number


def _whole(value: str) -> int:
    """The number that these digits say; -1 if it is something else, or longer than any that is of use."""
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else -1


def _role(value: str, where: str) -> str:
    if value not in ROLES:
        raise TfdistError(f"{where}: choose the role {', '.join(ROLES)}")
    return value


def _port(value: str, where: str) -> int:
    if not 1 <= _whole(value) <= 65535:
        raise TfdistError(f"{where}: {value!r} is not a port; use 1024 to 65535")
    return int(value)


def _address(value: str, where: str) -> str:
    """A name, an IPv4 address, or an IPv6 address with or without brackets."""
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if NO_NAME.search(bare) or not (is_ipv6(bare) or (bare == value != "" and ":" not in value)):
        raise TfdistError(f"{where}: {value!r} is not an address; write a name or an IP address, without a port")
    return bare


def _gpus(value: str, where: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise TfdistError(f"{where}: name each GPU once, as in gpus=0,1")
    return names


def _text(value: str, where: str) -> str:
    if not value:
        raise TfdistError(f"{where}: write a value behind the equals sign, or leave it away")
    return value


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "slots": _slots,
    "role": _role,
    "addr": _address,
    "port": _port,
    "gpus": _gpus,
    "python": _text,
    "chdir": _text,
}
