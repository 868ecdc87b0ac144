"""The file in which Kubernetes expects why a container ended.

`kubectl describe pod` shows it, and it outlives the container
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure).
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.diagnosis.outcome_lines import Label, lines_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import overwrite, replace_file
from tfdist.launch.redact import safe_text
from tfdist.launch.text import duration


@contextmanager
def refusals_logged() -> Iterator[None]:
    """Write why nothing was started, if a TfdistError says so."""
    try:
        yield
    except TfdistError as error:
        write(ended(error.exit_code, str(error)))
        raise


VARIABLE = "TFDIST_TERMINATION_LOG"
"""Names another file; it is written outside of Kubernetes, too."""
DEFAULT = Path("/dev/termination-log")
_NOT_REPLACED = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors for a file that is mounted, or whose folder may not be written to."""
LIMIT = 4096
"""Bytes that Kubernetes keeps."""

_SHORTENED = (Label.LOG, Label.CASUALTIES)
"""Lines that make room for the others, the first of them first."""
_KEPT = (*_SHORTENED, Label.HINT, Label.NOT_RESTARTED, Label.LOGS)
"""What `kubectl describe pod` shows of a failure, below the sentence."""
_KEPT_OF_SUCCESS = (Label.HINT, Label.LOGS)


def find(environ: Mapping[str, str], default: Path = DEFAULT) -> Path | None:
    """The file to write; None outside of a pod."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    return default if "KUBERNETES_SERVICE_HOST" in environ and default.is_file() else None


def write(text: str) -> None:
    """Replace the content of the file, if there is one; warn if that fails."""
    path = find(os.environ)
    try:
        if path is not None:
            _replace(path, _encoded(text))
    except OSError as error:
        typer.echo(f"warning: {path}: {error.strerror}: cannot write how the job ended", err=True)


def _replace(path: Path, data: bytes) -> None:
    """Replace the content of a file. That of Kubernetes is mounted into the container, so it is written in place."""
    if path.exists() and not path.is_file():  # a terminal, /dev/null, a pipe: whoever runs tfdist has chosen it
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return
    try:
        if path != DEFAULT:
            replace_file(path, data)
            return
    except OSError as error:
        if error.errno not in _NOT_REPLACED or not path.is_file():
            raise
    overwrite(path, data)


def short_form(outcome: Outcome, exit_code: int, reason: str) -> str:
    """How a job ended, in at most LIMIT bytes: of a long traceback, the end. Its lines are those of the terminal.

    Args:
        outcome: of the job.
        exit_code: that of the launcher.
        reason: one sentence; empty if the job succeeded.
    """
    head = ended(exit_code, reason or f"done in {duration(outcome.wall_s)}")
    lines = [line for line in lines_of(outcome) if line.label in (_KEPT if exit_code else _KEPT_OF_SUCCESS)]
    while len(_encoded(text := "\n".join([head, *map(str, lines), ""]))) > LIMIT:
        less = min(lines, key=lambda line: _KEPT.index(line.label))
        if less.label not in _SHORTENED:
            break
        lines.remove(less)
    return _cut(text, LIMIT)


def ended(exit_code: int, reason: str) -> str:
    """`exit code 1: worker-1 ...`, in at most half of LIMIT."""
    return _cut(f"exit code {exit_code}: {safe_text(reason)}", LIMIT // 2)


def _cut(text: str, limit: int) -> str:
    """The text in at most `limit` bytes."""
    return _encoded(text)[:limit].decode(errors="ignore")


def _encoded(text: str) -> bytes:
    """UTF-8, with ? in place of bytes that are not: tasks and arguments have them as lone surrogates."""
    return text.encode(errors="replace")
