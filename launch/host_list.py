"""Lists of host names as in `--hosts` and in Slurm, `a,node[01-03,10]`, and places in them. Pure."""

import re
from collections.abc import Mapping

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import CONTROLS

MAX_HOSTS = 10_000
"""Upper limit of hosts and of slots, to catch typos like `node[1-99999999]`."""
FORBIDDEN_IN_NAMES = re.compile(rf"[\s{CONTROLS}\[\]'\"\\;|&$`<>(){{}}!*?,=#]")
"""Characters that no host name and no user name may contain."""


def entries(text: str, source: str) -> list[str]:
    """The entries of a list, with each range expanded.

    Raises:
        TfdistError: the list or an entry is empty, or a range is invalid. The message starts with `source`.
    """
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    if not any(parts):
        raise TfdistError(f"{source} {text!r}: no hosts; list at least one, for example h1,h2:2")
    if not all(parts):
        raise TfdistError(f"{source} {text!r}: empty entry; remove the extra comma")
    return [entry for part in parts for entry in expand(part, source)]


def node_names(text: str, variable: str) -> tuple[str, ...]:
    """The names in a list of nodes, which a scheduler has set as a variable.

    Raises:
        TfdistError: the list or a name is empty or invalid.
    """
    names = tuple(entries(text, variable))
    for name in names:
        if name.startswith("-") or "@" in name or ":" in name or FORBIDDEN_IN_NAMES.search(name):
            raise TfdistError(f"{variable} {text!r}: invalid name {name!r}; it must be a list of nodes, as n[1-3],m1")
    return names


def expand(entry: str, source: str) -> list[str]:
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
        end = min(int(last), int(first) + MAX_HOSTS)  # more are refused below
        numbers += [str(number).zfill(len(first)) for number in range(int(first), end + 1)]
    tails = expand(entry[match.end() :], source)
    if len(numbers) * len(tails) > MAX_HOSTS:
        raise TfdistError(f"{source} {entry}: more than {MAX_HOSTS} hosts; shorten the ranges")
    return [entry[: match.start()] + number + tail for number in numbers for tail in tails]


def place_in(environ: Mapping[str, str], variable: str, count: int, what: str) -> int:
    """The index in a list of `count` entries that a variable has; `what` names the entries in the message.

    Raises:
        TfdistError: it is no number, or too large.
    """
    text = environ[variable]
    if not text.isdecimal() or int(text) >= count:
        raise TfdistError(f"{variable}={text}: not one of the {count} {what}")
    return int(text)
