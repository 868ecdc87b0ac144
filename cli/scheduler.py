"""What the commands sbatch and manifest, which print how a scheduler runs another command, expect of that one."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from tfdist.jobs.plan import Planned
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machines
from tfdist.strategies.options import option_text

HOST_NAMES = ("hosts", "hostfile", "exclude", "transport", "ssh", "remote_prefix")
"""Options that name hosts, or how to reach them."""
WITHOUT_EFFECT = ("dry_run", "detach", "json", "inherit")


@dataclass(frozen=True)
class BenchPlan:
    """The plan of a bench, which saves no checkpoints."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpointing: None = None


PlanOn = Callable[[Machines], Planned | BenchPlan]
"""Raises a TfdistError if these machines cannot run the command."""


def check_parameters(ctx: Any, scheduler: str, others: Collection[str] = ()) -> None:
    """Refuse options that are about the running of a command, and `others`.

    Raises:
        TfdistError: one was given.
    """
    refuse(ctx, WITHOUT_EFFECT, f"{scheduler} prints how to run the command, and starts nothing")
    refuse(ctx, others, f"has no effect with {scheduler}")


def refuse(ctx: Any, names: Collection[str], reason: str) -> None:
    """Refuse these options. Variables may set them: they are for other commands.

    Raises:
        TfdistError: one was given.
    """
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            raise TfdistError(f"{option_text(name, ctx.params[name])}: {reason}; omit it")
