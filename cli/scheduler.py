"""What the commands sbatch and manifest, which print how a scheduler runs another command, expect of that one."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machines
from tfdist.models.checkpoints import Checkpointing
from tfdist.strategies.options import option_text

_HOST_OPTIONS = ("hosts", "hostfile", "exclude", "transport", "ssh", "remote_prefix")
_WITHOUT_EFFECT = ("dry_run", "detach", "json", "inherit")


class Plan(Protocol):
    """What a command would run on some machines."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages to print."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Other messages."""

    @property
    def checkpointing(self) -> Checkpointing | None:
        """Where it is saved; None: it is not."""


@dataclass(frozen=True)
class BenchPlan:
    """The plan of a bench, which saves no checkpoints."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpointing: None = None


PlanOn = Callable[[Machines], Plan]
"""Raises a TfdistError if these machines cannot run the command."""


def check_hosts(ctx: Any, reason: str) -> None:
    """Refuse options that name hosts or how to reach them. Variables may: they are for other commands.

    Raises:
        TfdistError: one was given.
    """
    _refuse(ctx, _HOST_OPTIONS, reason)


def check_parameters(ctx: Any, scheduler: str, others: Collection[str] = ()) -> None:
    """Refuse options that are about the running of a command, and `others`.

    Raises:
        TfdistError: one was given.
    """
    _refuse(ctx, _WITHOUT_EFFECT, f"{scheduler} prints how to run the command, and starts nothing")
    _refuse(ctx, others, f"has no effect with {scheduler}")


def _refuse(ctx: Any, names: Collection[str], reason: str) -> None:
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            raise TfdistError(f"{option_text(name, ctx.params[name])}: {reason}; omit it")
