"""The command line that this process carries out, which `tfdist.cli.command.run` gets: it need not be sys.argv."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_entered: list[Sequence[str]] = []
"""One for each `carried_out` that has not ended; seen by all threads, which a context variable is not."""


@contextmanager
def carried_out(words: Sequence[str]) -> Iterator[None]:
    """Make these words, `tfdist` first, the command line of this process until the context ends."""
    entered = list(words)
    _entered.append(entered)
    try:
        yield
    finally:
        _entered[:] = [each for each in _entered if each is not entered]  # another thread may have entered later


def this_command() -> Sequence[str]:
    """The words of the command line, `tfdist` first; those of a program that calls tfdist from Python."""
    return _entered[-1] if _entered else [Path(sys.argv[0]).name, *sys.argv[1:]]
