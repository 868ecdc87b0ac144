"""sys.stdout and sys.stderr of the commands that run jobs or connect to hosts: writing to them never blocks.

Otherwise a terminal or pager that is not read would block the command, so that it ignores signals and time limits.
"""

import shutil
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

import typer

from tfdist.launch.console.stream import Stream, streams_of, wait_until_read
from tfdist.launch.errors import TfdistError

READER_PATIENCE_S = 1.5
"""How long a command waits at its end for a reader that reads nothing."""

_streams: dict[str, Stream] = {}
"""Streams by name, while they replace sys.stdout and sys.stderr."""


def never_block() -> None:
    """Replace sys.stdout and sys.stderr until `finish_output`. Streams without a file descriptor stay (in tests)."""
    try:
        streams = streams_of(sys.stdout, sys.stderr)
    except OSError:
        return
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        _streams[name] = stream
        setattr(sys, name, stream)


def wait_for_reader() -> None:
    """Wait until everything is read, as a command does whose only purpose is its output."""
    wait_until_read(_streams.values())


def finish(run: Callable[[], int], *, until_read: bool) -> NoReturn:
    """Run a command that must not be blocked, and exit with the code that it returns. `until_read`: not before
    everything is read."""
    never_block()
    code = run()
    if until_read:
        wait_for_reader()
    raise typer.Exit(code)


def columns_of(stream: TextIO) -> int | None:
    """The width of the terminal that shows a stream; None: no terminal does."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def agrees(question: str, refusal: str, *, err: bool) -> bool:
    """Whether the user answers with yes, on the terminal.

    Args:
        question: without its `[y/N]`.
        refusal: the message if there is no terminal.
        err: ask on stderr.

    Raises:
        TfdistError: there is no terminal to ask on.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise TfdistError(refusal)
    typer.echo(f"{question} [y/N] ", nl=False, err=err)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def finish_output() -> OSError | None:
    """Wait for the readers, but at most `READER_PATIENCE_S` without progress, and restore sys.stdout and sys.stderr.

    Returns:
        Why stdout could not be written, if so.
    """
    try:
        wait_until_read(_streams.values(), READER_PATIENCE_S)
        return _streams["stdout"].queue.error if _streams else None
    finally:
        for name, stream in _streams.items():
            setattr(sys, name, stream.file)
        _streams.clear()
