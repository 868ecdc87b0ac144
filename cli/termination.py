"""Tells Kubernetes why a launch in a pod has ended."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tfdist.launch import termination_log
from tfdist.launch.diagnosis.outcome import Outcome
from tfdist.launch.errors import TfdistError


@contextmanager
def refusals_logged() -> Iterator[None]:
    """Write why nothing was started, if a TfdistError says so."""
    try:
        yield
    except TfdistError as error:
        _write(termination_log.ended(error.exit_code, str(error)))
        raise


def log_outcome(outcome: Outcome, exit_code: int, reason: str) -> None:
    """Write how a job ended; arguments as for `termination_log.short_form`."""
    _write(termination_log.short_form(outcome, exit_code, reason))


def _write(text: str) -> None:
    problem = termination_log.write(termination_log.find(os.environ), text)
    if problem:
        typer.echo(f"warning: {problem}: not written how the job ended", err=True)
