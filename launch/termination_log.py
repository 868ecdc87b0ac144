"""The file in which Kubernetes expects why a container ended.

`kubectl describe pod` shows it, and it outlives the container
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfdist.launch.diagnosis.outcome import Outcome
from tfdist.launch.redact import safe_text
from tfdist.launch.text import duration

VARIABLE = "TFDIST_TERMINATION_LOG"
"""Names another file; it is written outside of Kubernetes, too."""
DEFAULT = Path("/dev/termination-log")
LIMIT = 4096
"""Bytes that Kubernetes keeps."""


def find(environ: Mapping[str, str], default: Path = DEFAULT) -> Path | None:
    """The file to write; None outside of a pod."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    return default if "KUBERNETES_SERVICE_HOST" in environ and default.is_file() else None


def write(path: Path | None, text: str) -> str:
    """Replace the content of the file, if there is one; returns why that failed, empty if it did not."""
    if path is None:
        return ""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def short_form(outcome: Outcome, exit_code: int, reason: str) -> str:
    """How a job ended, in at most LIMIT bytes: of a long traceback, the end.

    Args:
        outcome: of the job.
        exit_code: that of the launcher.
        reason: one sentence; empty if the job succeeded.
    """
    head = ended(exit_code, reason or f"done in {duration(outcome.wall_s)}")
    tail = [*(f"hint: {hint}" for hint in outcome.hints), f"logs: {outcome.run_dir}"]
    return _fitted([head], [f"| {line}" for line in outcome.log] if exit_code else [], tail)


def ended(exit_code: int, reason: str) -> str:
    """`exit code 1: worker-1 ...`, in at most half of LIMIT."""
    text = f"exit code {exit_code}: {safe_text(reason)}"
    return text.encode()[: LIMIT // 2].decode(errors="ignore")


def _fitted(head: Sequence[str], log: Sequence[str], tail: Sequence[str]) -> str:
    """The lines, with as many of the last ones of `log` as fit."""
    lines = list(log)
    while lines and len(_text([*head, *lines, *tail])) > LIMIT:
        lines.pop(0)
    return _text([*head, *lines, *tail])[:LIMIT].decode(errors="ignore")


def _text(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode(errors="replace")
