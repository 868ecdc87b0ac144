"""The notation of `--hosts`: `[user@]host[:slots]` with ranges, separated by commas."""

import ipaddress
import re
from collections.abc import Iterable

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.text import CONTROLS

MAX_HOSTS = 10_000
"""Upper limit of hosts and of slots, to catch typos like `node[1-99999999]`."""
FORBIDDEN_IN_NAMES = re.compile(rf"[\s{CONTROLS}\[\]'\"\\;|&$`<>(){{}}!*?,=#]")
"""Characters that no host name and no user name may contain."""


def parse_hosts(text: str, source: str = "--hosts") -> tuple[Host, ...]:
    """The hosts in a list like `a,b:2,user@c,node[01-03,10]`, as in `--hosts` and in Slurm.

    Raises:
        TfdistError: the list or an entry is empty or invalid. The message starts with `source`.
    """
    entries = [entry.strip() for entry in re.split(r",(?![^\[]*\])", text)]
    if not any(entries):
        raise TfdistError(f"{source} {text!r}: no hosts; list at least one, for example h1,h2:2")
    if not all(entries):
        raise TfdistError(f"{source} {text!r}: empty entry; remove the extra comma")
    return check_unique((f"{source} {text}", host) for entry in entries for host in parse_entry(entry, source))


def parse_entry(entry: str, source: str) -> list[Host]:
    """The hosts of one entry `[user@]host[:slots]`: several if it contains a range.

    Raises:
        TfdistError: the entry is invalid. The message starts with `source`.
    """
    return [_parse_target(target, source) for target in expand(entry, source)]


def check_unique(hosts: Iterable[tuple[str, Host]]) -> tuple[Host, ...]:
    """The hosts of these (source, host) pairs.

    Raises:
        TfdistError: two have the same name. The message starts with the source of the second.
    """
    unique: dict[str, Host] = {}
    for source, host in hosts:
        if host.name in unique:
            raise TfdistError(f"{source}: duplicate host {host.name}; list it once, with {host.name}:2 for two workers")
        unique[host.name] = host
    return tuple(unique.values())


def expand(entry: str, source: str = "--hosts") -> list[str]:
    """The names in `node[01-03,10]`: leading zeros are kept, several ranges multiply. `[::1]` is not a range.

    Raises:
        TfdistError: a range is descending, or there are more than MAX_HOSTS names.
    """
    match = re.search(r"\[([0-9]{1,18}(?:-[0-9]{1,18})?(?:,[0-9]{1,18}(?:-[0-9]{1,18})?)*)\]", entry)
    if match is None:
        return [entry]
    numbers: list[str] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if int(first) > int(last):
            raise TfdistError(f"{source} {entry}: the range {part} is descending; write {last}-{first}")
        if int(last) - int(first) >= MAX_HOSTS:
            raise TfdistError(f"{source} {entry}: the range {part} has more than {MAX_HOSTS} hosts; shorten it")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    tails = expand(entry[match.end() :], source)
    if len(numbers) * len(tails) > MAX_HOSTS:
        raise TfdistError(f"{source} {entry}: more than {MAX_HOSTS} hosts; shorten the ranges")
    return [entry[: match.start()] + number + tail for number in numbers for tail in tails]


def _parse_target(text: str, source: str) -> Host:
    user, at, rest = text.rpartition("@")
    inside, bracket, after = rest[1:].partition("]")
    if rest.startswith("[") and bracket and is_ipv6(inside):
        name, colon, slots = inside, after[:1], after[1:]
    elif rest.count(":") > 1:
        raise TfdistError(
            f"{source} {text}: not [user@]host[:slots]; put an IPv6 address in brackets, for example [::1]:2"
        )
    else:
        name, colon, slots = rest.partition(":")
    for part in (name, *([user] if at else [])):
        if not part or part.startswith("-") or FORBIDDEN_IN_NAMES.search(part):
            raise TfdistError(f"{source} {text!r}: invalid name {part!r}; use [user@]host[:slots]")
    if colon not in ("", ":"):
        raise TfdistError(f"{source} {text!r}: not [user@]host[:slots]; correct it")
    return Host(name, user=user, slots=parse_slots(slots, f"{source} {text}") if colon else None)


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address, with or without a zone, as in fe80::1%eth0."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def parse_integer(value: str, source: str, noun: str, maximum: int) -> int:
    """An integer from 1 to `maximum`, in ASCII digits.

    Raises:
        TfdistError: anything else. The message starts with `source` and calls the value `noun`.
    """
    if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= maximum:
        raise TfdistError(f"{source}: invalid {noun} {value!r}; use 1 to {maximum}")
    return int(value)


def parse_slots(value: str, source: str) -> int:
    """A number of slots. Raises like `parse_integer`."""
    return parse_integer(value, source, "number of slots", MAX_HOSTS)
