"""An archive for a bug report: the text files of a run or a bench, without secrets and names of the user and the hosts.

Rather too much is masked than too little, but a secret that has no name and is in no variable cannot be recognized.
"""

import getpass
import json
import os
import re
import socket
import stat
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

from tfdist.launch.json_files import NEW_FILE, dumps, read_json
from tfdist.launch.redact import REDACTED, redact_text, redact_value
from tfdist.launch.typed_json import parse_json

DOCTOR = "doctor.txt"
"""The file with what `tfdist doctor` finds."""
KEPT_BYTES = 1 << 20
"""Size of the end that is kept of each file."""
_SUFFIXES = {".csv", ".json", ".jsonl", ".log", ".md", ".toml", ".txt"}
_SKIPPED = {"checkpoints", "files"}
_SHORTEST_SECRET = 6
"""Characters; shorter values of variables with secret names, as false and 4096, are also words of a log."""


def bundled_files(folder: Path) -> dict[str, int]:
    """The bytes that are kept of each text file of a run or a bench, by its path in the folder.

    Checkpoints, pictures, links, and what the user's program has written are left out.
    """
    found = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for path in (Path(parent, name) for name in sorted(names)):
            status = path.lstat()
            if path.suffix in _SUFFIXES and stat.S_ISREG(status.st_mode):
                found[str(path.relative_to(folder))] = min(status.st_size, KEPT_BYTES)
    return found


def redactor(folder: Path, environ: Mapping[str, str]) -> Callable[[str], str]:
    """Masks in a line what `redact_text` does, the values of secret variables, the home folder, and names.

    Host names of fewer than 6 letters and nothing else stay, as words of a log look like them. So does the user's name,
    except in a path, in quotes or before an @.

    Args:
        folder: of the run or the bench, which knows its hosts.
        environ: has the secrets.
    """
    values = [value for name, value in environ.items() if redact_value(name, value) == REDACTED]
    texts = {text for value in values for text in (*value.splitlines(), json.dumps(value)[1:-1])}
    secrets = {re.escape(text) for text in texts if len(text) >= _SHORTEST_SECRET}
    masks = [(each, REDACTED) for each in sorted(secrets, key=len, reverse=True)]
    with suppress(KeyError, OSError, RuntimeError):  # a user without a name or a home
        home, user = map(re.escape, (str(Path.home()), getpass.getuser()))
        masks += [(rf"{home}(?![\w.-])", "~")] if len(home) > 1 else []
        masks += [(rf"(?<=[/\"'=]){user}(?![\w.-])|(?<![\w.-]){user}(?=[/@])", "USER")] if user != "root" else []
    for number, names in enumerate(_hosts(folder), 1):
        for name in sorted(names - {"localhost"}, key=len, reverse=True):
            if re.search(r"[\d.-]|.{6}", name):
                masks.append((rf"(?<![\w.-]){re.escape(name)}(?![\w-])", f"HOST-{number}"))
    patterns = [(re.compile(pattern), mask) for pattern, mask in masks]

    def redact(line: str) -> str:
        for pattern, mask in patterns:
            line = pattern.sub(mask, line)
        return redact_text(line)

    return redact


def _hosts(folder: Path) -> list[set[str]]:
    """The names of this machine, and of each host of the run or the bench."""
    names = {"localhost": {socket.gethostname()}}
    for hellos in map(read_json, folder.rglob("hosts.json")):
        for name, hello in hellos.items() if isinstance(hellos, dict) else ():
            names.setdefault(name, set()).update((name, str(hello.get("host")) if isinstance(hello, dict) else name))
    return list(names.values())


def write_bundle(folder: Path, files: Iterable[str], doctor: str, redact: Callable[[str], str]) -> Path:
    """Write tfdist-NAME.tar.gz into the current folder, for this user only; if it exists, the name gets a number.

    Args:
        folder: of the run or the bench, called NAME.
        files: paths in it, as `bundled_files` found them, and `DOCTOR`.
        doctor: the text of that one.
        redact: is applied to each line and each path.

    Raises:
        OSError: it cannot be written, and there is nothing left of it.
    """
    for number in count(1):
        name = f"tfdist-{folder.name}" if number == 1 else f"tfdist-{folder.name}-{number}"
        path = Path(f"{name}.tar.gz")
        with suppress(FileExistsError):
            descriptor = os.open(path, NEW_FILE, 0o600)
            break
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for member in files:
                text = doctor if member == DOCTOR else _end(folder / member)
                data = _redacted(member, text, redact).encode("utf-8", "replace")
                info = tarfile.TarInfo(redact(f"{name}/{member}"))
                info.size, info.mtime = len(data), int(time.time())
                archive.addfile(info, BytesIO(data))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _redacted(name: str, text: str, redact: Callable[[str], str]) -> str:
    """The text of a file; JSON stays JSON."""
    if name.endswith(".jsonl"):
        return "\n".join(_redacted(".json", line, redact) for line in text.split("\n"))
    if name.endswith(".json"):
        with suppress(ValueError, RecursionError):  # what is cut off, and empty lines
            return dumps(_redacted_json(parse_json(text), redact), indent=1 if "\n" in text else None)
    return "\n".join(map(redact, text.split("\n")))


def _redacted_json(value: Any, redact: Callable[[str], str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {redact(key): _redacted_json(item, redact, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted_json(item, redact, name) for item in value]
    return redact(redact_value(name, value)) if isinstance(value, str) else value


def _end(path: Path) -> str:
    """The end of a file, from the start of a line on: half a secret could not be recognized."""
    try:
        with path.open("rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - KEPT_BYTES)
            file.seek(start)
            data = file.read(KEPT_BYTES)
    except OSError as error:  # a run that runs may delete it
        return f"[tfdist: cannot be read: {error.strerror}]"
    note = ""
    if start:
        first, newline, data = data.partition(b"\n")
        note = f"[tfdist: without the first {start + len(first + newline):,} bytes]\n"
    return note + data.decode("utf-8", "replace")
