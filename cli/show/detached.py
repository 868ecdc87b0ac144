"""A launch in the background: what it prints, and what the command says about it."""

import shlex
from collections.abc import Callable
from typing import TextIO

import typer

from tfdist.launch.agents.inbox import Message, Note
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.background import Background, fork_launcher


class BackgroundLines(PrefixedLines):
    """Prints the launcher's notes, but no output of tasks: their logs have it."""

    def __init__(self, background: Background, out: TextIO, err: TextIO, options: LineOptions) -> None:
        super().__init__(out, err, options)
        self.background = background

    def handle(self, message: Message) -> None:
        """Print a note; detach with the start of the last task."""
        if isinstance(message, Note):
            super().handle(message)
        self.background.handle(message)


def launch_detached(launch: Callable[[Background], int], *, json: bool, quiet: bool) -> int:
    """Call `launch` in a process that goes into the background; returns the exit code of either process."""
    process = fork_launcher()
    if isinstance(process, Background):
        return launch(process)
    result = process.wait()
    if isinstance(result, int):
        return result if result >= 0 else 128 - result
    run_dir, pid = result
    if json:
        typer.echo(dumps({"format": 1, "run_dir": run_dir, "pid": pid}))
    elif not quiet:
        path = shlex.quote(run_dir)
        typer.echo(f"{run_dir} runs in the background (process {pid})")
        typer.echo(f"  see it:    tfdist logs {path} --follow\n  stop it:   tfdist stop {path}")
    return 0
