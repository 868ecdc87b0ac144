"""`tfdist strategies`."""

import json as _json
from typing import Annotated, Any

import typer

from tfdist.launch.machine import Machine, local_machine
from tfdist.strategies.catalog import CATALOG, Api, CrossDevice, Keras, Strategy, StrategyName, keras_refusal

CELLS = [(keras, api) for keras in Keras for api in Api]


def strategies(
    json: Annotated[bool, typer.Option("--json", help="The table as JSON.", envvar="TFDIST_JSON")] = False,
) -> None:
    """List the strategies: what each is, its options, what it needs, and which Keras it works with.

    \b
    Examples:
      tfdist strategies
      tfdist strategies --json
    """
    machine = local_machine()
    rows = [row_of(strategy, machine) for strategy in CATALOG.values()]
    if json:
        typer.echo(_json.dumps(rows, indent=1))
    else:
        show(rows, machine)


def row_of(strategy: Strategy, machine: Machine) -> dict[str, Any]:
    """One strategy as plain JSON values."""
    return {
        "strategy": str(strategy.name),
        "tensorflow": strategy.tf_name,
        "summary": strategy.summary,
        "synchronous": strategy.synchronous,
        "options": list(strategy.options),
        "needs": strategy.needs,
        "here": here(strategy, machine),
        "nccl_here": bool(machine.gpus),
        "ends_when": str(strategy.ends),
        "keras": {f"{keras} {api}": cell(strategy.name, keras, api) for keras, api in CELLS},
    }


def here(strategy: Strategy, machine: Machine) -> str:
    """Whether this machine has what the strategy needs: `yes`, or what is missing."""
    if strategy.name is StrategyName.TPU:
        return "asked of the TPU when it is used"
    if machine.gpus:
        return f"yes, {len(machine.gpus)} GPUs"
    return f"yes, {len(machine.cores)} CPU cores; no GPU, so no NCCL"


def cell(name: StrategyName, keras: Keras, api: Api) -> str:
    """`yes`, or why that Keras cannot train this way."""
    refusal = keras_refusal(name, CrossDevice.AUTO, keras, api)
    return "yes" if refusal is None else f"no: {refusal.reason}"


def show(rows: list[dict[str, Any]], machine: Machine) -> None:
    """The table for a person: one for what they are, one for Keras."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("strategy", "kind", "what it is", "options", "needs"):
        table.add_column(name, overflow="fold", no_wrap=name == "strategy")
    for row in rows:
        kind = "sync" if row["synchronous"] else "async"
        table.add_row(row["strategy"], kind, row["summary"], " ".join(row["options"]), row["needs"])
    console.print(table)
    keras = Table(box=None, pad_edge=False)
    keras.add_column("strategy", no_wrap=True)
    for version, api in CELLS:
        keras.add_column(f"Keras {version} {api}")
    for row in rows:
        keras.add_row(row["strategy"], *(value.split(":")[0] for value in row["keras"].values()))
    console.print()
    console.print(keras)
    reasons = sorted({value[4:] for row in rows for value in row["keras"].values() if value != "yes"})
    console.print("\n".join(["", *(f"no: {reason}" for reason in reasons)]), soft_wrap=False)
    gpus = f"{len(machine.gpus)} GPUs" if machine.gpus else "no GPU (so NCCL is refused)"
    console.print(f"\nThis machine: {len(machine.cores)} cores, {gpus}.")
