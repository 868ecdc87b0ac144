"""`tfdist strategies`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from tfdist.cli.options import Json
from tfdist.cli.run_argument import argument
from tfdist.cli.show.rows import PlainConsole, aligned
from tfdist.jobs.options import KEYS, Bytes, Option, Seconds
from tfdist.launch.agent_program.description import TRAINING_PACKAGES, package_versions
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import Machine, local_machine
from tfdist.launch.text import did_you_mean
from tfdist.strategies.catalog import CATALOG, KERAS_RUNS, Refusal, Strategy, keras_refusal
from tfdist.strategies.options import Api, Keras, StrategyName, option_name

DEV = Path("/dev")


def strategies(
    strategy: Annotated[
        str | None,
        argument(
            "STRATEGY",
            "Only this strategy, with its options and the keys of --set.",
            complete=lambda: [*map(str, CATALOG)],
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the strategies, their options and their Keras support.

    \b
    Examples:
      tfdist strategies
      tfdist strategies mirrored
      tfdist strategies --json
    """
    machine = local_machine()
    if strategy is not None:
        row = next((row for row in CATALOG.values() if row.name == strategy), None)
        if row is None:
            raise TfdistError(f"{strategy}: {did_you_mean(strategy, map(str, CATALOG))}")
        if json:
            typer.echo(dumps({"format": 1, **_row(row, machine), "keys": [_key_row(key) for key in keys_of(row)]}))
        else:
            _show_one(row)
    elif json:
        typer.echo(dumps({"format": 1, "strategies": [_row(strategy, machine) for strategy in CATALOG.values()]}))
    else:
        _show(machine)


def _row(strategy: Strategy, machine: Machine) -> dict[str, Any]:
    others = "exits; workers and ps are then stopped"
    return {
        "strategy": str(strategy.name),
        "tensorflow": strategy.tf_name,
        "summary": strategy.summary,
        "exchange": str(strategy.exchange),
        "options": [option_name(name) for name in strategy.options],
        "needs": strategy.needs,
        "here": availability(strategy),
        "nccl_here": bool(machine.gpus),
        "ends_when": f"the {strategy.leader} {others}" if strategy.leader else "all tasks exit 0",
        "keras": keras_json(strategy.name),
    }


def availability(strategy: Strategy, dev: Path = DEV) -> str:
    """Whether this machine has the hardware that the strategy needs: `yes`, or `no` and what is missing."""
    files = [dev / file for file in strategy.device_files]
    if not files or os.environ.get("TPU_NAME") or any(map(Path.exists, files)):
        return "yes"
    return f"no (none of {', '.join(map(str, files))}, TPU_NAME)"


def keras_json(name: StrategyName) -> dict[str, str]:
    """`yes`, or `no: ` and the reason, for each Keras and API."""
    return {cell: "yes" if refusal is None else f"no: {refusal.reason}" for cell, refusal in _keras_cells(name).items()}


def _keras_cells(name: StrategyName) -> Mapping[str, Refusal | None]:
    """Why the strategy does not work with a Keras and an API, as `3 fit`; None if it does."""
    return {f"{keras} {api}": keras_refusal(name, keras, api) for keras in Keras for api in Api}


def _show(machine: Machine) -> None:
    console = Console(highlight=False)
    for strategy in CATALOG.values():
        console.print(f"[bold]{strategy.name}[/bold] ({strategy.exchange}, {strategy.tf_name})")
        facts = [strategy.summary, f"needs {strategy.needs}; here: {availability(strategy)}"]
        plain, keys = _options(strategy)
        facts += [f"options: {', '.join(plain)}"] if plain else []
        facts += [f"keys of --set: {', '.join(keys)}"] if keys else []
        console.print(Padding("\n".join(facts), (0, 0, 1, 4)), markup=False)
    show_keras(PlainConsole(sys.stdout))
    gpus = f"{len(machine.gpus)} GPUs" if machine.gpus else "no GPU, so no NCCL"
    console.print(f"\nThis machine: {len(machine.cores)} cores, {gpus}.")


def _options(strategy: Strategy) -> tuple[list[str], list[str]]:
    """The options that only some strategies have, and the keys of --set."""
    names = [option_name(name) for name in strategy.options]
    keys = [name.removeprefix("--set ") for name in names if name.startswith("--set ")]
    return [name for name in names if not name.startswith("--set ")], keys


def keys_of(strategy: Strategy) -> list[Option]:
    """The keys of --set that have an effect under a strategy."""
    others = {name for row in CATALOG.values() for name in row.options} - set(strategy.options)
    return [key for key in KEYS.values() if key.field not in others]


def _key_row(key: Option) -> dict[str, Any]:
    kind = {Seconds: "time", Bytes: "size", str: "text", float: "number", int: "integer", bool: "true or false"}
    text, _, default = key.text.partition(" Default: ")
    return {
        "key": key.name,
        "type": ", ".join(key.choices) or kind[key.kind],
        "default": default.removesuffix("."),
        "help": text,
    }


def _show_one(strategy: Strategy) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{strategy.name}[/bold] ({strategy.exchange}, {strategy.tf_name})")
    console.print(f"{strategy.summary}; needs {strategy.needs}", markup=False)
    plain, _ = _options(strategy)
    console.print(f"\nOptions: {', '.join(plain) or 'none of its own'}\n\nKeys of --set KEY=VALUE:", markup=False)
    for row in map(_key_row, keys_of(strategy)):
        default = f", by default {row['default']}" if row["default"] else ""
        console.print(f"[bold]{row['key']}[/bold]: {escape(row['type'] + default)}", soft_wrap=True)
        console.print(Padding(row["help"], (0, 0, 0, 4)), markup=False)


def show_keras(console: PlainConsole) -> None:
    """Print which Keras works with which strategy, then why the others do not."""
    cells = {name: _keras_cells(name) for name in CATALOG}
    rows = [
        {"": str(name), **{f"Keras {keras}": "no" if why else "yes" for keras, why in refusals.items()}}
        for name, refusals in cells.items()
    ]
    console.print_lines(aligned(rows, console.columns))
    versions = package_versions()
    here = ", ".join(f"{name} {versions[name]}" for name in (*TRAINING_PACKAGES, "keras") if name in versions)
    console.print(f"\nRun with {KERAS_RUNS}. Installed here: {here or 'none of them'}.\n")
    for name, refusals in cells.items():
        for reason in dict.fromkeys(refusal.reason for refusal in refusals.values() if refusal):
            console.print(f"{name}: {reason}")
