"""The text of a batch script for Slurm's sbatch. Pure."""

import math
import re
import shlex
from dataclasses import dataclass

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import check_name

SAVE_S = 180
"""Seconds before the time limit, to save a checkpoint. Slurm may send the signal up to 60 s early
(https://slurm.schedmd.com/sbatch.html#OPT_signal)."""
EARLY_S = 60
# Options of sbatch that the script has from an option of tfdist with the same name.
_OURS = ("nodes", "exclusive", "gpus-per-node", "requeue", "partition", "time")


@dataclass(frozen=True)
class BatchScript:
    """A Slurm job that runs one command on its first node."""

    name: str
    command: tuple[str, ...]
    nodes: int
    exclusive: bool = True
    gpus_per_node: int = 0
    requeue: bool = False
    """Slurm may start the job again, with the same log."""
    signal_s: int | None = None
    """The command gets SIGUSR2 this many seconds before the time limit; None: it does not."""
    options: tuple[str, ...] = ()
    """Other options of sbatch, without `--`."""

    def __post_init__(self) -> None:
        for text in (self.name, *self.options):  # each is in a comment, which ends with its line
            check_name("sbatch", text)

    def __str__(self) -> str:
        named = any(option.startswith("job-name=") for option in self.options)
        lines = [] if named else [f"job-name={shlex.quote(self.name)}"]
        lines += [f"nodes={self.nodes}"]
        lines += ["exclusive"] if self.exclusive else []
        lines += [f"gpus-per-node={self.gpus_per_node}"] if self.gpus_per_node else []
        lines += ["requeue", "open-mode=append"] if self.requeue else []
        lines += [f"signal=B:USR2@{self.signal_s}"] if self.signal_s is not None else []
        options = "".join(f"#SBATCH --{line}\n" for line in (*lines, *self.options))
        return f"#!/bin/bash\n{options}exec {shlex.join(self.command)}\n"


def signal_time_s(grace_s: float) -> int:
    """Seconds before the time limit at which a job is signalled, so that a save of `grace_s` seconds fits."""
    return max(SAVE_S, EARLY_S + math.ceil(grace_s))


def parse_option(text: str) -> str:
    """An option of sbatch such as `--qos=high`, without `--`.

    Raises:
        TfdistError: it is not a long option, or tfdist has an option for it.
    """
    match = re.fullmatch(r"(?:--)?([a-z][a-z0-9-]*)(=[^\n]+)?", text)
    if match is None:
        raise TfdistError(f"--sbatch-option {text!r}: not NAME or NAME=VALUE; use a long option of sbatch, as qos=high")
    if match[1] in _OURS:
        raise TfdistError(f"--sbatch-option {text}: use --{match[1]}")
    return text.removeprefix("--")
