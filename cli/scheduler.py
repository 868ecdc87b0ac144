"""What passes from sbatch and manifest, which print how a scheduler runs another command, to that command."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import typer

from tfdist.jobs.host_selection import HostSelection
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.strategies.options import option_text

if TYPE_CHECKING:  # commands that have no plan import this module, too
    from tfdist.jobs.plan import Planned
    from tfdist.jobs.request import Request

HOST_NAMES = ("hosts", "hostfile", "exclude", "transport", "ssh", "remote_prefix")
"""Options that name hosts, or how to reach them."""
WITHOUT_EFFECT = ("dry_run", "detach", "json", "inherit")


@dataclass(frozen=True)
class BenchPlan:
    """The plan of a bench, which saves no checkpoints."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpointing: None = None


PlanOn = Callable[[Machines], "Planned | BenchPlan"]
"""Raises a TfdistError if these machines cannot run the command."""


class Scheduler(Protocol):
    """Prints how a scheduler runs the command whose context is `ctx`."""

    def select(self, ctx: typer.Context, values: Mapping[str, Any]) -> HostSelection:
        """The hosts of the job, for the options about hosts by name. Raises a TfdistError if one has no effect."""
        ...

    def submit(self, ctx: typer.Context, plan: PlanOn, policy: Policy, job: "Request | None" = None) -> None:
        """Print the job; `job` is that of a launch. Raises a TfdistError if it cannot run."""
        ...


def schedule(ctx: typer.Context, scheduler: Scheduler) -> None:
    """Let a scheduler run the command that follows."""
    ctx.obj = scheduler


def scheduler_of(ctx: typer.Context) -> Scheduler | None:
    """The scheduler that runs the command; None: it runs here and now."""
    return cast(Scheduler | None, ctx.obj)


def check_parameters(ctx: typer.Context, scheduler: str, others: Collection[str] = ()) -> None:
    """Refuse options that are about the running of a command, and `others`.

    Raises:
        TfdistError: one was given.
    """
    refuse(ctx, WITHOUT_EFFECT, f"{scheduler} prints how to run the command, and starts nothing")
    refuse(ctx, others, f"has no effect with {scheduler}")


def refuse(ctx: typer.Context, names: Collection[str], reason: str) -> None:
    """Refuse these options. Variables may set them: they are for other commands.

    Raises:
        TfdistError: one was given.
    """
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            raise TfdistError(f"{option_text(name, ctx.params[name])}: {reason}; omit it")
