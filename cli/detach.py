"""`tfdist launch --detach`: what the process in the foreground prints, and the one in the background."""

import shlex
from collections.abc import Callable
from typing import TextIO

import typer

from tfdist.cli.output import never_block
from tfdist.launch.agents.inbox import Message, Note
from tfdist.launch.console.lines import PrefixedLines
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.background import Background, DetachedRun, fork_launcher


class BackgroundLines(PrefixedLines):
    """Prints the launcher's notes, but no output of tasks: their logs have it."""

    def __init__(self, background: Background, out: TextIO, err: TextIO) -> None:
        super().__init__(out, err)
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
        never_block()
        return launch(process)
    result = process.wait()
    if isinstance(result, int):
        return result if result >= 0 else 128 - result
    if json:
        typer.echo(dumps({"format": 1, "run_dir": result.run_dir, "pid": result.pid}))
    elif not quiet:
        typer.echo(_announcement(result))
    return 0


def _announcement(run: DetachedRun) -> str:
    path = shlex.quote(run.run_dir)
    return (
        f"{run.run_dir} runs in the background (process {run.pid})\n"
        f"  see it:    tfdist logs {path} --follow\n"
        f"  stop it:   tfdist stop {path}"
    )
