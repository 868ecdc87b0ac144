"""`tfdist strategies`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfdist.cli.options import option
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import Machine, local_machine
from tfdist.strategies.catalog import CATALOG, Strategy
from tfdist.strategies.options import Api, Keras, StrategyName
from tfdist.strategies.refusals import Refusal, keras_refusal

if TYPE_CHECKING:
    from rich.console import Console


DEV = Path("/dev")
KerasCells = Mapping[str, Refusal | None]
"""Why a strategy does not work with a Keras and an API, as `3 fit`; None if it does."""


def strategies(
    json: Annotated[bool, option("--json", "Print the table as JSON.")] = False,
) -> None:
    """List the strategies, their options and their Keras support.

    \b
    Examples:
      tfdist strategies
      tfdist strategies --json
    """
    machine = local_machine()
    if json:
        typer.echo(dumps([_row(strategy, machine) for strategy in CATALOG.values()], indent=1))
    else:
        _show(machine)


def _row(strategy: Strategy, machine: Machine) -> dict[str, Any]:
    return {
        "strategy": str(strategy.name),
        "tensorflow": strategy.tf_name,
        "summary": strategy.summary,
        "exchange": str(strategy.exchange),
        "options": list(strategy.options),
        "needs": strategy.needs,
        "here": availability(strategy),
        "nccl_here": bool(machine.gpus),
        "ends_when": f"the {strategy.leader} exits; workers and ps are then stopped"
        if strategy.leader
        else "all tasks exit 0",
        "keras": keras_json(strategy.name),
    }


def availability(strategy: Strategy, dev: Path = DEV) -> str:
    """Whether this machine has the hardware that the strategy needs: `yes`, or `no` and what is missing."""
    files = [dev / file for file in strategy.device_files]
    if not files or os.environ.get("TPU_NAME") or any(map(Path.exists, files)):
        return "yes"
    return f"no (none of {', '.join(map(str, files))}, TPU_NAME)"


def _keras_cells(name: StrategyName) -> KerasCells:
    return {f"{keras} {api}": keras_refusal(name, keras, api) for keras in Keras for api in Api}


def keras_json(name: StrategyName) -> dict[str, str]:
    """`yes`, or `no: ` and the reason, for each Keras and API."""
    return {cell: "yes" if refusal is None else f"no: {refusal.reason}" for cell, refusal in _keras_cells(name).items()}


def _show(machine: Machine) -> None:
    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False)
    for strategy in CATALOG.values():
        console.print(f"[bold]{strategy.name}[/bold] ({strategy.exchange}, {strategy.tf_name})")
        facts = [strategy.summary, f"needs {strategy.needs}; here: {availability(strategy)}"]
        facts += [f"options: {' '.join(strategy.options)}"] if strategy.options else []
        console.print(Padding("\n".join(facts), (0, 0, 1, 4)), markup=False)
    show_keras(console)
    gpus = f"{len(machine.gpus)} GPUs" if machine.gpus else "no GPU, so no NCCL"
    console.print(f"\nThis machine: {len(machine.cores)} cores, {gpus}.")


def show_keras(console: "Console") -> None:
    """Print which Keras works with which strategy, then why the others do not."""
    from rich.table import Table

    cells = {name: _keras_cells(name) for name in CATALOG}
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for keras_api in cells[StrategyName.ONE_DEVICE]:
        table.add_column(f"Keras {keras_api}")
    for name, refusals in cells.items():
        table.add_row(name, *("no" if refusal else "yes" for refusal in refusals.values()))
    console.print(table)
    console.print()
    for name, refusals in cells.items():
        for reason in dict.fromkeys(refusal.reason for refusal in refusals.values() if refusal):
            console.print(f"{name}: {reason}", markup=False)
