"""What is masked in an archive for a bug report: secrets, the home folder, and names and addresses of user and hosts.

Rather too much is masked than too little: strangers read the archive. `redact.py` masks less, for messages.
"""

import getpass
import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from tfdist.launch.json_files import dumps
from tfdist.launch.redact import REDACTED, is_count, is_secret, redact_forms, redact_names, redact_value
from tfdist.launch.text import plain
from tfdist.launch.typed_json import parse_json

_SHORTEST_SECRET = 6
"""Characters; shorter values of variables with secret names, as false and 4096, are also words of a log."""

_STEM = re.compile(
    r"secret|token|pass|pwd|cred|private|cookie|key|auth|pat(?!h|t|c)|jwt|sig(?!n(?!at))|webhook|bearer|session|curl|@",
    re.I,
)
"""What is in each line in which a name of a secret may be."""
_ALSO_SECRET = re.compile(
    r"(?:^|[._ -])key$|(?-i:[a-z]Key$)|key[_-]?data|(?<!^)(?<!^old)pwd$|pass(?:code|key|phrase)?\d*$|(?:^|[_-])creds?$"
    r"|signature$|^sig$|webhook|session[_-]?id|bearer|connection[_-]?string|(?:api|access|account|secret)[ _-]key",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(
    r"(?:Error|Exception|Warning|Failure)$|(?:by|com|sur|tres)pass$|\.(?:cc|cpp|csv|cu|go|h|ini|js|json|log|md|proto|py|sh"
    r"|so|toml|ts|txt|ya?ml)$",
    re.IGNORECASE,
)
_NAME = r"(?:(?<![\w/.-])|(?<=\\[nrt]))((?:(?:api|access|account|private|secret)[ ])?[\w.-]{1,100})"
_WORD_BEFORE_VALUE = re.compile(
    rf"{_NAME}(\\{{0,4}}['\"`]?\]?(?:(?:\s{{1,20}}(?:is|was))?\s{{0,20}}(?::=|=>|==?|:(?!:))\s{{0,20}}"
    r"|\s{1,20}(?:(?:is|was)\s{1,20})?))(?=\S)",
    re.IGNORECASE,
)
_BARE = re.compile(  # names after which a space is enough
    r"^-{0,2}(?:password|passwd|passphrase|passcode|secret|token|api[ _-]?key|(?:access|secret|private)[ _-]key)$"
    r"|(?=[\w.-]{0,99}[_-]).{0,99}(?:key|token|secret|pass|passwd|password|pwd|key[_-]data)\d?$",
    re.IGNORECASE,
)
_PROSE = re.compile(
    r"(?:a|an|and|are|as|at|authentication|by|cannot|could|does|expected|expired|failed|file|for|from|has|have|if|in|is|must"
    r"|not|of|on|or|required|should|that|the|to|was|were|will|with|without)(?![\w-])",
    re.IGNORECASE,
)
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,100}")
_OPENING = re.compile(r"\\{0,4}(?:\"\"\"|'''|[\"'`])")
_MORE = re.compile(r"[^\s,;}\])]*")
_BLOCK = re.compile(r"[|>][-+]?\d?[ \t]*$")
_INDENT = re.compile(r"[ \t]*")

_QUOTED = r"(?:\"(?:[^\"\\\n]|\\.){0,300}\"|'(?:[^'\\\n]|\\.){0,300}'|[^\s,}\]]{1,300})"
_SPACE = r"[\s\\]{0,100}"
_PAIRS = (  # where a name is, and what is masked if that is a secret one
    re.compile(rf"\b(?:name|key)['\"]?{_SPACE}[:=]{_SPACE}['\"]?(?P<name>[\w.-]{{1,100}})['\"]?,?{_SPACE}"
               rf"['\"]?value['\"]?{_SPACE}[:=]{_SPACE}(?P<value>{_QUOTED})", re.I),
    re.compile(rf"\bvalue['\"]?{_SPACE}[:=]{_SPACE}(?P<value>{_QUOTED}),?{_SPACE}"
               rf"['\"]?(?:name|key)['\"]?{_SPACE}[:=]{_SPACE}['\"]?(?P<name>[\w.-]{{1,100}})", re.I),
    re.compile(rf"(?P<quote>['\"])(?P<name>--?[A-Za-z][\w-]{{0,100}})(?P=quote){_SPACE},{_SPACE}"
               rf"(?!['\"]--?[A-Za-z])(?P<value>{_QUOTED})"),
    re.compile(r"^[ \t]*-[ \t]+['\"]?(?P<name>--?[A-Za-z][\w-]{0,100})['\"]?[ \t]*\n[ \t]*-[ \t]+"
               r"(?!['\"]?--?[A-Za-z])(?P<value>[^\n]+)", re.M),
)  # fmt: skip
_USER_AT_HOST = re.compile(r"(?<![\w:/@.-])([\w.-]{1,64}):[^\s:@/'\"]{1,200}@(?=[\w\[])")
_PGPASS = re.compile(r"^([\w.*-]{1,200}:(?:\d{1,5}|\*):[^\s:]{1,100}:[^\s:]{1,100}:)[^\s:]+$", re.MULTILINE)

_LOCAL = re.compile(r"(?:localhost.*|ip6-.*|\*|(?:chief|worker|ps|evaluator|launcher)(?:-\d+)?|)")
"""Host names that say nothing, or that are names of tasks."""
_STAYS = re.compile(r"127\..*|0\.0\.0\.0|::1?")
"""Addresses that every host has."""
_ADDRESS = re.compile(
    r"(?P<v6>(?:(?<![\w:.])|(?<=\\[nrt])|(?<=%[0-9a-f]{2})|(?<=ipv6:))[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?<!\w:)"
    r"(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?![\w.]))"
    r"|(?P<v4>(?:(?<![\w.])|(?<=\\[nrt])|(?<=%[0-9a-f]{2}))\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))"
    r"|(?P<name>(?:(?<![\w.%-])(?!(?<=\\)[nrt])|(?<=\\[nrt])|(?<=%[0-9a-f]{2}))\w[\w-]*(?:\.[\w-]+)*)",
    re.IGNORECASE,
)
_VERSION_BEFORE = re.compile(
    r"(?:[=<>~!]=|[A-Za-z_][\w.]*-|(?:version|release|library|driver|nvidia|cuda|cudnn|cublas|nccl|tensorrt)[\w-]*:?\s+)$",
    re.IGNORECASE,
)
_IN_NAME = re.compile(r"ip((?:-\d{1,3}){4})(?=\.|$)", re.IGNORECASE)
"""First part of a name as clouds give them: ip-10-0-0-7.ec2.internal."""
_PORT = re.compile(r":\d{2,5}(?!\w)")


@dataclass(frozen=True)
class HostNames:
    """What one host is called."""

    names: frozenset[str]
    """Each of them is that of no other host."""
    addresses: frozenset[str] = frozenset()
    """Addresses of its interfaces: some, as those of a bridge, are on other hosts, too."""


class Hosts:
    """HOST-n for names and addresses of hosts: the same n for all those of one host, in all texts.

    An address that belongs to no known host gets a number of its own. Host names of up to 5 letters and nothing else
    stay except before a port and after an @, as words of a log look like them.
    """

    def __init__(self, hosts: Iterable[HostNames]) -> None:
        groups: list[tuple[set[str], set[str]]] = []
        at: dict[str, int] = {}
        for host in hosts:
            names = set(map(_canonical, host.names))
            number = min((at[name] for name in names if name in at), default=len(groups))
            if number == len(groups):
                groups.append((set(), set()))
            groups[number][0].update(names)
            groups[number][1].update(map(_canonical, host.addresses))
            at.update((name, number) for name in names if name not in at)
        self._number = {name: number + 1 for name, number in at.items() if _says_something(name)}
        others: dict[str, set[int]] = {}
        for number, (names, addresses) in enumerate(groups, 1):
            first = {name.partition(".")[0] for name in names if not _is_address(name)}
            for name in filter(_says_something, addresses | {name for name in first if re.search(r"[\d-]", name)}):
                others.setdefault(name, set()).add(number)
        for name, numbers in others.items():
            if len(numbers) == 1:
                self._number.setdefault(name, *numbers)
        self._last = len(groups)

    def mask(self, text: str) -> str:
        """The text with HOST-n in place of names and addresses."""
        return _ADDRESS.sub(self._masked, text)

    def mask_name(self, text: str) -> str:
        """HOST-n if the whole text is the name of a host, however short."""
        number = self._number.get(_canonical(text))
        return f"HOST-{number}" if number else text

    def _masked(self, match: "re.Match[str]") -> str:
        if match["name"]:
            return self._name(match)
        address = _canonical(match[0])
        if address in self._number:
            return f"HOST-{self._number[address]}"
        if not _is_address(address) or _STAYS.fullmatch(address):
            return match[0]
        if match["v4"]:
            before = match.string[max(0, match.start() - 40) : match.start()]
            return match[0] if _VERSION_BEFORE.search(before) else self._new(address)
        is_address = re.search(r"\d", address) and re.search(r"\w:+\w", address)  # a::b is C++
        return self._new(address) if is_address else match[0]

    def _new(self, address: str) -> str:
        self._last += 1
        return f"HOST-{self._number.setdefault(address, self._last)}"

    def _name(self, match: "re.Match[str]") -> str:
        word = match[0]
        labels = word.lower().split(".", 8)
        for size in range(len(labels), 0, -1):
            name = ".".join(labels[:size])
            number = self._number.get(name)
            if number and (re.search(r"[\d.-]|.{6}", name) or _is_host(match, match.start() + len(name))):
                rest = word[len(name) :]  # ".log", not the domain
                return f"HOST-{number}{rest if rest.count('.') < 2 else ''}"
        if in_name := _IN_NAME.match(word):
            address = in_name[1][1:].replace("-", ".")
            number = self._number.get(address)
            return f"HOST-{number}" if number else self._new(address)
        return word


def _is_host(match: "re.Match[str]", end: int) -> bool:
    """Whether a port is after the word or an @ before it."""
    return match.string[max(0, match.start() - 1) : match.start()] == "@" or bool(_PORT.match(match.string, end))


def _says_something(name: str) -> bool:
    return not _LOCAL.fullmatch(name) and not _STAYS.fullmatch(name)


def _canonical(name: str) -> str:
    """Name or address as they are compared: addresses in their shortest form."""
    name = name.strip().strip("[]").lower().rstrip(".")
    with suppress(ValueError):
        return str(IPv6Address(name.partition("%")[0]))
    return name


def _is_address(name: str) -> bool:
    for kind in (IPv4Address, IPv6Address):
        with suppress(ValueError):
            kind(name)
            return True
    return False


def hosts_of(member: str, value: Any) -> Iterator[HostNames]:
    """Names and addresses of each host in a JSON file of tfdist.

    Args:
        member: path of the file.
        value: its content, whatever that is.
    """
    if member.endswith("hosts.json"):
        yield from _described(value)
    elif isinstance(value, dict) and member.endswith("cluster.json"):
        tasks, cluster = value.get("tasks"), value.get("cluster")
        yield from (_planned(task, cluster) for task in (tasks if isinstance(tasks, list) else ()))
    elif isinstance(value, dict):
        yield from _described(value.get("hosts"))
        yield HostNames(_texts([value.get("host")]))


def host_names(name: str, hello: Any, *others: str) -> HostNames:
    """What a host is called: as the user writes it, and by the description of its agent, whatever that is."""
    if not isinstance(hello, dict):
        return HostNames(_texts([name, *others]))
    own, interfaces = hello.get("host"), hello.get("interfaces")
    own = None if isinstance(own, str) and _LOCAL.fullmatch(own) else own
    lists = interfaces.values() if isinstance(interfaces, dict) else ()
    return HostNames(
        _texts([name, own, *others]), _texts(each for some in lists if isinstance(some, list) for each in some)
    )


def _described(hellos: Any) -> Iterator[HostNames]:
    if isinstance(hellos, list):
        yield from (HostNames(_texts([name])) for name in hellos)
    for name, hello in hellos.items() if isinstance(hellos, dict) else ():
        yield host_names(name, hello)


def _planned(task: Any, cluster: Any) -> HostNames:
    """Name of a task's host, and the address of the task."""
    found = []
    with suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
        found.append(task["host"])
        role, _, index = task["task"].rpartition("-")
        address = cluster[role][int(index)].rpartition(":")[0]
        if not _STAYS.fullmatch(address):
            found.append(address)
    return HostNames(_texts(found))


def _texts(values: Iterable[Any]) -> frozenset[str]:
    return frozenset(each for each in values if isinstance(each, str) and each)


class Redactor:
    """Masks secrets, the home folder, the user's name and the hosts in texts.

    The user's name stays except in a path, in quotes or before an @.

    Args:
        hosts: of the run or the bench.
        environ: has secrets that are masked wherever they are.
    """

    def __init__(self, hosts: Iterable[HostNames], environ: Mapping[str, str]) -> None:
        self._hosts = Hosts([HostNames(frozenset({"localhost", socket.gethostname()})), *hosts])
        values = [value for name, value in environ.items() if redact_value(name, value) == REDACTED]
        lines = [line for value in values for line in value.splitlines()]
        texts = {text for line in lines for text in _forms(line)}
        texts |= {json.dumps(value)[1:-1] for value in values}
        secrets = sorted((text for text in texts if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, secrets))) if secrets else None
        self._user: list[tuple[re.Pattern[str], str]] = []
        with suppress(KeyError, OSError, RuntimeError):  # a user without a name or a home
            home, user = map(re.escape, (str(Path.home()), getpass.getuser()))
            masks = [(rf"{home}(?![\w.-])", "~")] if len(home) > 1 else []
            if user != "root":
                masks.append((rf"(?<=[/\"'=]){user}(?![\w.-])|(?<![\w.-]){user}(?=[/@])", "USER"))
            self._user = [(re.compile(pattern), mask) for pattern, mask in masks]

    def text(self, text: str) -> str:
        """A text without its secrets, names and control characters. The number of lines stays, if it has no \\r."""
        text = self._without_environment(text)
        text = self._without_environment(plain(text.replace("\r\n", "\n").replace("\r", "\n")))
        for pattern, mask in self._user:
            text = pattern.sub(mask, text)
        return self._hosts.mask(_strictly_redacted(text))

    def path(self, path: str) -> str:
        """A relative path without secrets and names in its parts."""
        return "/".join(self.text(part).replace("/", "_").replace("\n", "_") for part in path.split("/"))

    def file(self, name: str, text: str) -> str:
        """The text of a file; JSON stays JSON."""
        if name.endswith(".jsonl"):
            return "\n".join(self.file(".json", line) for line in text.split("\n"))
        if name.endswith(".json"):
            with suppress(ValueError, RecursionError):  # what is cut off, and empty lines
                field = "hosts" if name.endswith("hosts.json") else ""
                return dumps(self._json(parse_json(text), field), indent=1 if "\n" in text else None)
        return self.text(text)

    def _without_environment(self, text: str) -> str:
        return self._secrets.sub(REDACTED, text) if self._secrets else text

    def _json(self, value: Any, name: str = "") -> Any:
        """A value without secrets; `name` is that of its field, or of one around it if that is the name of a secret."""
        if isinstance(value, dict):
            return self._object(value, name)
        if isinstance(value, list):
            return self._list(value, name)
        if isinstance(value, str):
            masked = REDACTED if value and _is_secret(name) else self.text(value)
            return self._hosts.mask_name(masked) if name in ("host", "hosts") else masked
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and _is_secret(name) and not is_count(name, str(value)):
            return REDACTED
        return value

    def _object(self, value: dict[str, Any], name: str) -> dict[str, Any]:
        labels = [each for each in value if each in ("name", "Name", "key", "Key") and isinstance(value[each], str)]
        contents = [each for each in value if each in ("value", "Value")]
        names = {key: name if _is_secret(name) else key for key in value}
        if labels and contents and not _is_secret(name):  # {"name": "API_TOKEN", "value": "X"}
            names.update({**dict.fromkeys(labels, ""), **dict.fromkeys(contents, value[labels[0]])})
        of_key = self._hosts.mask_name if name == "hosts" else str
        return {of_key(self.text(key)): self._json(item, names[key]) for key, item in value.items()}

    def _list(self, values: list[Any], name: str) -> list[Any]:
        if (
            _is_secret(name)
            or name == "hosts"
            or not all(isinstance(each, str) and "\n" not in each for each in values)
        ):
            return [self._json(each, name) for each in values]
        lines = self.text("\n".join(values)).split("\n")  # lines of a log, with a key over several of them
        if len(lines) != len(values):
            lines = [self.text(each) for each in values]
        pairs = zip(["", *values], values, lines, strict=False)
        return [REDACTED if _is_secret_option(before, word) else line for before, word, line in pairs]


def _forms(secret: str) -> set[str]:
    """The secret as it is, as JSON, and as what is left of it without control characters."""
    return {secret, json.dumps(secret)[1:-1], plain(secret)}


def _is_secret_option(before: str, word: str) -> bool:
    return _OPTION.fullmatch(before) is not None and _is_secret(before) and not _OPTION.match(word)


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    """Whether values with this name are masked, more of them than in messages."""
    if _NOT_SECRET.search(name):
        return False
    return is_secret(name.replace(" ", "_")) or _ALSO_SECRET.search(name) is not None


def _strictly_redacted(text: str) -> str:
    """What `redact_text` masks and the rest of each line after the name of a secret."""
    text = redact_forms(text)
    for pattern in _PAIRS:
        text = pattern.sub(_without_value, text)
    text = _PGPASS.sub(rf"\1{REDACTED}", text)
    return "\n".join(_redacted_lines(text.split("\n")))


def _without_value(match: "re.Match[str]") -> str:
    if not _is_secret(match["name"]):
        return match[0]
    start, end = match.start("value") - match.start(), match.end("value") - match.start()
    quote = match["value"][0] if match["value"][0] in "\"'" else ""
    return f"{match[0][:start]}{quote}{REDACTED}{quote}{match[0][end:]}"


def _redacted_lines(lines: Iterable[str]) -> Iterator[str]:
    indent = -1  # of the line above a block of YAML that is masked
    for line in lines:
        own = _INDENT.match(line).end()  # type: ignore[union-attr]
        if indent >= 0 and (own > indent or not line.strip()):
            yield f"{line[:own]}{REDACTED}" if line.strip() else line
            continue
        indent = -1
        if _STEM.search(line):
            if _BLOCK.search(line) and (name := _WORD_BEFORE_VALUE.search(line)) and _is_secret(name[1]):
                indent = own
            else:
                line = redact_names(_USER_AT_HOST.sub(rf"\1:{REDACTED}@", "".join(_parts(line))))
        yield line


def _parts(line: str) -> Iterator[str]:
    """The parts of a line, with *** in place of the values of secret names: up to their closing quote, or its end."""
    done = 0
    while match := _WORD_BEFORE_VALUE.search(line, done):
        name, between = match.groups()
        has_sign = re.search("[:=]", between) is not None
        value = match.end()
        if not _is_secret(name) or not (has_sign or _BARE.search(name)) or is_count(name, line, value):
            end = match.end() if has_sign else match.end(1)
            yield line[done:end]
            done = end
            continue
        yield line[done:value]
        opening = _OPENING.match(line, value)
        if opening:
            done = _closing(line, value)
            closing = opening[0] if line[done - len(opening[0]) : done] == opening[0] else ""
            yield f"{opening[0]}{REDACTED}{closing}"
        elif has_sign:
            yield REDACTED
            done = len(line)
        elif _PROSE.match(line, value) or _OPTION.match(line, value):
            done = value
        else:
            done = _MORE.match(line, value).end()  # type: ignore[union-attr]
            yield REDACTED if done > value else ""
    yield line[done:]


def _closing(line: str, start: int) -> int:
    """End of a quoted value, and of what follows without a space, as 'it'"'"'s'."""
    end = start
    while opening := _OPENING.match(line, end):
        mark = opening[0]
        quote = mark.lstrip("\\")
        slashes = len(mark) - len(mark.lstrip("\\"))
        pattern = _closing_mark(slashes, quote)
        find = pattern.search if slashes or len(quote) > 1 else pattern.match
        found = find(line, opening.end())
        if found is None:
            return len(line)
        end = found.end()
        more = _MORE.match(line, end) if not slashes else None
        if more and not more[0].startswith(('"', "'", "`")) and not more[0].startswith(("\\", ":")):
            end = more.end()
    return end


@lru_cache(4096)
def _closing_mark(slashes: int, quote: str) -> "re.Pattern[str]":
    if slashes or len(quote) > 1:
        return re.compile(rf"(?<!\\)\\{{{slashes}}}{quote}")
    return re.compile(rf"(?:[^{quote}\\]|\\.|{quote}{quote})*{quote}")  # YAML and SQL write it twice
