"""Environment variables that users forward to every task."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import read_input

_OWN = (
    "TF_GRPC_REUSE_PORT", "TFDIST_SPEC", "TFDIST_STRATEGY_CHOICE", "TFDIST_TASK", "TFDIST_AGENT", "TFDIST_EVENTS_FD",
    "TFDIST_BARRIER_FD", "TFDIST_TURNS", "TFDIST_ATTEMPT", "TFDIST_ARM_DIR", "TFDIST_STACKS_FD", "TFDIST_CHECKPOINTING",
    "TFDIST_COPY_DIR",
)  # fmt: skip
COMPUTED: Mapping[str, str] = {
    "TF_CONFIG": "omit it, or use --inherit tf-config",
    "CUDA_VISIBLE_DEVICES": "choose GPUs with gpus= in the hostfile, or set it for tfdist itself",
    "TFDIST_CHECKPOINT_DIR": "use --checkpoint-dir",
    **dict.fromkeys(_OWN, "omit it"),
}
"""Variables that tfdist sets for every task, and what to do instead of forwarding them."""
SHARED = ("NCCL_", "TF_", "XLA_", "GRPC_")
"""Prefixes of variables that change how TensorFlow computes or communicates, so that all tasks need the same."""
_OF_TERRAFORM = ("TF_VAR_", "TF_CLI_", "TF_TOKEN_")
COPY_DIR = "TFDIST_COPY_DIR"
"""Variable of a task: the folder on its host of the copy that it runs in, or with which its function has come."""
BARRIER_SECRET = "TFDIST_BARRIER_SECRET"
"""What all tasks of a job that other launchers start must know, on a network that others share."""
WITHOUT_OPTION = (BARRIER_SECRET, "TFDIST_INDEX", "TFDIST_TERMINATION_LOG", "TFDIST_TEMPLATE")
"""Variables of the launcher that no option has."""
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
INTRA_OP_THREADS = "TF_NUM_INTRAOP_THREADS"
"""Size of the thread pool in which TensorFlow runs the parts of an operation."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded_variables(options: Sequence[str], file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables from `--env NAME[=VALUE]` and `--env-file`; an option overrides the file.

    A NAME without a value is copied from `environ`. It may be a glob (NCCL_*), which skips computed variables.

    Raises:
        TfdistError: a name is invalid, not set or computed by tfdist, or the file cannot be read.
    """
    variables = read_env_file(file) if file is not None else {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals and re.search(r"[*?\[]", name):
            names = [each for each in sorted(environ) if fnmatchcase(each, name) and each not in COMPUTED]
            variables |= {each: environ[each] for each in names}
            continue
        _check_name(name, "--env ")
        if not equals and name not in environ:
            raise TfdistError(f"--env {name}: not set in this environment; set it, or write NAME=VALUE")
        variables[name] = value if equals else environ[name]
    return variables


def shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that tasks on this machine inherit and those on other hosts must get too, sorted by name."""
    names = [name for name in sorted(environ) if name.startswith(SHARED) and not name.startswith(_OF_TERRAFORM)]
    return {name: environ[name] for name in names if name not in COMPUTED}


def device_order(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's order of GPUs, which replaces that of tfdist (`launch/job.py`); empty if there is none."""
    return {DEVICE_ORDER: environ[DEVICE_ORDER]} if DEVICE_ORDER in environ else {}


def read_env_file(path: Path) -> dict[str, str]:
    """The variables in a file of NAME=VALUE lines; skips empty lines and # comments, strips quotes and `export`.

    Raises:
        TfdistError: the file cannot be read, or a line is not NAME=VALUE.
    """
    try:
        lines = read_input(path).decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise TfdistError(f"--env-file {path}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise TfdistError(f"--env-file {path}: {error.strerror}; use a readable file of NAME=VALUE lines") from None
    variables = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and not line.startswith("#"):
            source = f"--env-file {path}, line {number}: "
            name, equals, value = line.removeprefix("export ").partition("=")
            if not equals:
                raise TfdistError(f"{source}not NAME=VALUE; add a value, or start a comment with #")
            _check_name(name.strip(), source)
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            variables[name.strip()] = value[1:-1] if quoted else value
    return variables


def _check_name(name: str, source: str) -> None:
    if not _NAME.fullmatch(name):
        raise TfdistError(f"{source}{name!r}: not a variable name; use letters, digits and _")
    if name in COMPUTED:
        raise TfdistError(f"{source}{name}: tfdist sets it for every task; {COMPUTED[name]}")
