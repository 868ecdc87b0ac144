"""Variables that are forwarded to every task, and what of them may be shown."""

import re
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tfdist.launch.errors import TfdistError

SECRET = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PRIVATE|COOKIE|API[_-]?KEY|ACCESS[_-]?KEY|AUTH"
    r"|[_-](KEY|PASS|PWD)$",
    re.IGNORECASE,
)
"""Names whose values are shown as ***."""
HIDDEN = "***"
OURS: Mapping[str, str] = {
    "TF_CONFIG": "omit it, or use --inherit-tf-config",
    "CUDA_VISIBLE_DEVICES": "choose GPUs with gpus= in the hostfile, or set it for tfdist itself",
    **dict.fromkeys(
        (
            "TF_GRPC_REUSE_PORT",
            "TFDIST_SPEC",
            "TFDIST_STRATEGY_CHOICE",
            "TFDIST_TASK",
            "TFDIST_EVENTS_FD",
            "TFDIST_BARRIER_FD",
        ),
        "omit it",
    ),
}
"""What is computed for every task, and what to do instead of setting it."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"((?:--env=)?[\w-]+)=", re.DOTALL)


def forwarded(options: Sequence[str], file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `--env NAME[=VALUE]` and `--env-file` name; an option wins over the file.

    A name may be a glob, as NCCL_*, which stands for all such variables of `environ`.

    Raises:
        TfdistError: a name that cannot be one, is not set, or is ours; a file that cannot be read.
    """
    found = read_file(file) if file is not None else {}
    for text in options:
        name, equals, value = text.partition("=")
        if equals:
            found[checked(name, f"--env {name}=")] = value
        elif re.search(r"[*?\[]", name):
            found |= {each: environ[each] for each in sorted(environ) if fnmatchcase(each, name) and each not in OURS}
        elif checked(name, f"--env {name}") in environ:
            found[name] = environ[name]
        else:
            raise TfdistError(f"--env {name}: it is not set here; set it, or give a value, as in --env {name}=1")
    return found


def read_file(path: Path) -> dict[str, str]:
    """Lines of NAME=VALUE; empty ones and those that begin with # are left out, quotes around a value are taken off.

    Raises:
        TfdistError: it cannot be read, or a line is none such.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise TfdistError(f"--env-file {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise TfdistError(
            f"--env-file {path}: {error.strerror}; give the path of a file with NAME=VALUE a line"
        ) from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and not line.startswith("#"):
            name, equals, value = line.removeprefix("export ").partition("=")
            if not equals:
                raise TfdistError(f"--env-file {path}, line {number}: it is not NAME=VALUE")
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[checked(name.strip(), f"--env-file {path}, line {number}:")] = value[1:-1] if quoted else value
    return found


def checked(name: str, where: str) -> str:
    """The name, if it can be a variable's and is not computed by us.

    Raises:
        TfdistError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise TfdistError(f"{where} {name!r} cannot be a variable's name: use letters, digits and _")
    if name in OURS:
        raise TfdistError(f"{where} {name} is computed for every task: {OURS[name]}")
    return name


def shown(name: str, value: str) -> str:
    """The value, or stars if its name looks secret."""
    return HIDDEN if SECRET.search(name) else value


def command_shown(words: Sequence[str]) -> str:
    """A command line for a log: of NAME=VALUE the value is hidden where the name looks secret."""
    return shlex.join(map(word_shown, words))


def word_shown(word: str) -> str:
    """One word of a command line for a log."""
    match = _ASSIGNED.match(word)
    return f"{match[1]}={HIDDEN}" if match and SECRET.search(match[1].removeprefix("--env=")) else word
