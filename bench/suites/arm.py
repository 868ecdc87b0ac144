"""The arms in the tables of a suite. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tfdist.bench.suites.check import check_choices, check_command, of_kind
from tfdist.bench.suites.matrix import expand
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_arguments
from tfdist.launch.text import check_name
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

STRATEGY_KEYS = frozenset(field.name for field in fields(StrategyChoice))
"""Keys that also apply to an arm with a command; the others describe the built-in training."""

LONGEST_NAME = 120
"""Characters of an arm's name: more have no room beside a chart."""


@dataclass(frozen=True)
class Arm:
    """One configuration that a bench measures."""

    name: str
    choices: Mapping[str, Any]
    """TrainingSpec's field names and `global_batch_size`, the suite's defaults included."""
    hosts: int = 1
    """Number of hosts it runs on: the first ones of the bench."""
    command: tuple[str, ...] = ()
    """The user's own program; empty: the built-in training."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the keys of the TOML file; secrets in the command are masked."""
        hosts = {"hosts": self.hosts} if self.hosts > 1 else {}
        command = {"command": redact_arguments(self.command)} if self.command else {}
        return {"name": self.name, **self.choices, **hosts, **command}


def parse_arms(table: Mapping[str, Any], source: str) -> tuple[Arm, ...]:
    """The arms of [matrix], then those of [[arms]], each with the values of [defaults] that it does not set.

    Raises:
        TfdistError: an error in one of them, no arms, or two of one name.
    """
    defaults, explicit = table.get("defaults", {}), table.get("arms", [])
    if not isinstance(defaults, Mapping):
        raise TfdistError(f"{source} has defaults = {defaults!r}: make it a table, [defaults]")
    common = {**({"command": table["command"]} if "command" in table else {}), **defaults}
    _check_entry(common, f"{source}, [defaults],")
    matrix = expand(table["matrix"], defaults, source) if "matrix" in table else []
    if not isinstance(explicit, list) or not all(isinstance(entry, Mapping) for entry in explicit):
        raise TfdistError(f"{source} has arms = {explicit!r}: make each a table, [[arms]]")
    if not matrix and not explicit:
        raise TfdistError(f"{source} has no arms: add [[arms]] with a name and a strategy, or a [matrix]")
    arms = tuple(_arm(entry, common, number, source) for number, entry in enumerate((*matrix, *explicit), start=1))
    twice = [name for name, count in Counter(arm.name for arm in arms).items() if count > 1]
    if twice:
        raise TfdistError(f"{source} has two arms called {twice[0]!r}: rename one")
    return arms


def _check_entry(entry: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The training keys of an entry, each value in its type; its command is checked."""
    if "command" in entry:
        check_command(entry["command"], source)
    return check_choices({key: value for key, value in entry.items() if key != "command"}, source)


def _arm(entry: Mapping[str, Any], common: Mapping[str, Any], number: int, source: str) -> Arm:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise TfdistError(f'{source}, arm number {number}, has no name: add name = "..."')
    check_name(f"{source} has an arm", name)
    if len(name) > LONGEST_NAME:
        raise TfdistError(f"{source}, arm {name[:40]!r}...: use a name of at most {LONGEST_NAME} characters")
    source = f"{source}, arm {name!r},"
    hosts = entry.get("hosts", 1)
    if not of_kind(hosts, int) or hosts < 1:
        raise TfdistError(f"{source} has hosts = {hosts!r}: must be an integer of at least 1")
    every = {**common, **{key: value for key, value in entry.items() if key not in ("name", "hosts")}}
    choices = _check_entry(every, source)
    if "strategy" not in choices:
        raise TfdistError(f'{source} has no strategy: add strategy = "..."')
    if choices["strategy"] is StrategyName.AUTO:
        raise TfdistError(f"{source} has strategy = 'auto', which depends on the machine: name a strategy")
    command = tuple(every.get("command", ()))
    stray = next((key for key in choices if key not in STRATEGY_KEYS), None) if command else None
    if stray:
        raise TfdistError(f"{source} has {stray}, which is for the built-in training, and a command: omit {stray}")
    return Arm(name, choices, hosts, command)
