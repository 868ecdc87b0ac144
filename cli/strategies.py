"""`tfdist strategies`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfdist.cli.options import option
from tfdist.launch.json_files import dumps
from tfdist.strategies.catalog import CATALOG, Strategy
from tfdist.strategies.options import Api, Keras, StrategyName
from tfdist.strategies.refusals import keras_refusal

if TYPE_CHECKING:
    from rich.console import Console

from tfdist.launch.machine import Machine

DEV = Path("/dev")
CELLS = [(keras, api) for keras in Keras for api in Api]


def strategies(
    json: Annotated[bool, option("--json", "The table as JSON.")] = False,
) -> None:
    """List the strategies: what each is, its options, what it needs, and which Keras it works with.

    \b
    Examples:
      tfdist strategies
      tfdist strategies --json
    """
    from tfdist.launch.machine import local_machine

    machine = local_machine()
    rows = [row_of(strategy, machine) for strategy in CATALOG.values()]
    if json:
        typer.echo(dumps(rows, indent=1))
    else:
        show(rows, machine)


def row_of(strategy: Strategy, machine: "Machine") -> dict[str, Any]:
    """One strategy as plain JSON values."""
    return {
        "strategy": str(strategy.name),
        "tensorflow": strategy.tf_name,
        "summary": strategy.summary,
        "exchange": str(strategy.exchange),
        "options": list(strategy.options),
        "needs": strategy.needs,
        "here": here(strategy),
        "nccl_here": bool(machine.gpus),
        "ends_when": str(strategy.ends),
        "keras": keras_cells(strategy.name),
    }


def here(strategy: Strategy, dev: Path = DEV) -> str:
    """Whether this machine has what the strategy needs: `yes`, or what is missing."""
    files = [dev / file for file in strategy.device_files]
    if not files or os.environ.get("TPU_NAME") or any(file.exists() for file in files):
        return "yes"
    return f"no (none of {', '.join(map(str, files))}, TPU_NAME)"


def cell(name: StrategyName, keras: Keras, api: Api) -> str:
    """`yes`, or why that Keras cannot train this way."""
    refusal = keras_refusal(name, keras, api)
    return "yes" if refusal is None else f"no: {refusal.reason}"


def show(rows: list[dict[str, Any]], machine: "Machine") -> None:
    """For a person: what each is, then one table of what works."""
    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False)
    for row in rows:
        console.print(f"[bold]{row['strategy']}[/bold] ({row['exchange']}, {row['tensorflow']})")
        facts = [row["summary"], f"needs {row['needs']}; here: {row['here']}"]
        facts += [f"options: {' '.join(row['options'])}"] if row["options"] else []
        console.print(Padding("\n".join(facts), (0, 0, 1, 4)), markup=False)
    show_keras({row["strategy"]: row["keras"] for row in rows}, console)
    gpus = f"{len(machine.gpus)} GPUs" if machine.gpus else "no GPU, so no NCCL"
    console.print(f"\nThis machine: {len(machine.cores)} cores, {gpus}.")


def keras_cells(name: StrategyName) -> dict[str, str]:
    """`yes`, or why not, for each Keras and API."""
    return {f"{keras} {api}": cell(name, keras, api) for keras, api in CELLS}


def show_keras(cells: Mapping[str, Mapping[str, str]], console: "Console") -> None:
    """Which strategy works with which Keras and API, and below why not."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for keras, api in CELLS:
        table.add_column(f"Keras {keras} {api}")
    for name, values in cells.items():
        table.add_row(name, *(value.split(":")[0] for value in values.values()))
    console.print(table)
    reasons = {value: name for name, values in cells.items() for value in values.values() if value != "yes"}
    console.print()
    for reason, name in reasons.items():
        console.print(f"{name}: {reason.removeprefix('no: ')}", markup=False)
