"""A TOML file -> a Suite: the arms that a bench compares, checked as far as that is possible without a machine."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

from tfdist.bench.suites.check import check_choices, check_keys, check_value, of_kind
from tfdist.bench.suites.matrix import expand
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean
from tfdist.models.presets import PRESETS
from tfdist.strategies.options import StrategyName

_toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_BUILT_IN = Path(__file__).parent
_TYPES: Mapping[str, type] = {
    "name": str, "description": str, "preset": str, "rounds": int, "scaling": str, "timeout": float, "seed": int,
}  # fmt: skip
_FIXED: Mapping[str, str] = {"weak": "batch_size", "strong": "global_batch_size"}
"""The batch size that each scaling fixes."""


@dataclass(frozen=True)
class Arm:
    """One configuration that a bench measures."""

    name: str
    choices: Mapping[str, Any]
    """TrainingSpec's field names and `global_batch_size`, the suite's defaults included."""
    hosts: int = 1
    """Number of hosts it runs on: the first ones of the bench."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the keys of the TOML file."""
        return {"name": self.name, **self.choices, **({"hosts": self.hosts} if self.hosts > 1 else {})}


@dataclass(frozen=True)
class Suite:
    """What a bench compares and how often."""

    arms: tuple[Arm, ...]
    name: str = "suite"
    description: str = ""
    """What it is for; shown when a bench starts."""
    preset: str | None = None
    """For everything that the arms do not set; None: by machine."""
    rounds: int = 3
    scaling: str = "weak"
    """weak: the batch per device is fixed; strong: the global batch is."""
    timeout_s: float | None = None
    """Of each run."""
    seed: int = 0
    """Of the order of the runs within a round."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the keys of the TOML file; the arms of [matrix] are written out."""
        scalars = {key: getattr(self, "timeout_s" if key == "timeout" else key) for key in _TYPES}
        return {**scalars, "arms": [arm.to_json() for arm in self.arms]}


def built_in_suites() -> tuple[str, ...]:
    """The names of the suites that come with tfdist."""
    return tuple(sorted(path.stem for path in _BUILT_IN.glob("*.toml")))


def load_suite(name_or_file: str) -> Suite:
    """A built-in suite by its name, or the one in a TOML file, by default named like it; see `parse_suite`.

    Raises:
        TfdistError: no such suite, or an error in it.
    """
    path = _BUILT_IN / f"{name_or_file}.toml" if name_or_file in built_in_suites() else Path(name_or_file)
    try:
        with path.open("rb") as stream:
            return parse_suite({"name": path.stem, **_toml.load(stream)}, str(name_or_file))
    except ValueError as error:
        raise TfdistError(f"the suite {name_or_file} is not TOML: {error}") from None
    except OSError as error:
        hint = did_you_mean(name_or_file, built_in_suites())
        raise TfdistError(f"--suite {name_or_file}: {error.strerror}; {hint}, or a .toml file") from None


def parse_suite(table: Mapping[str, Any], source: str) -> Suite:
    """The suite in a TOML table, or in `Suite.to_json`.

    Its arms are those of [matrix] (`matrix.expand` has the rules), then those of [[arms]]; both are optional, but one
    arm is required. Each arm takes the keys of [defaults] that it does not set. Names must be unique.

    Args:
        source: the file or name, for messages.

    Raises:
        TfdistError: an unknown key, a value of the wrong type, no arms, or two of one name.
    """
    source = f"the suite {source}"
    check_keys(table, (*_TYPES, "defaults", "matrix", "arms"), source)
    values = {
        key: check_value(key, table[key], kind, source) for key, kind in _TYPES.items() if table.get(key) is not None
    }
    suite = Suite(timeout_s=values.pop("timeout", None), arms=_arms(table, source), **values)
    _check_amounts(suite, source)
    _check_scaling(suite, source)
    return suite


def narrow(suite: Suite, patterns: Sequence[str], rounds: int | None, seed: int | None) -> Suite:
    """The suite with only the arms that match one of `patterns` (fnmatch; none: all), and other rounds or seed.

    Raises:
        TfdistError: no arm matches, or `rounds` is less than 1.
    """
    if rounds is not None and rounds < 1:
        raise TfdistError(f"--rounds {rounds}: must be at least 1 (3 for a verdict)")
    arms = tuple(arm for arm in suite.arms if not patterns or any(fnmatchcase(arm.name, p) for p in patterns))
    if not arms:
        names = ", ".join(arm.name for arm in suite.arms)
        raise TfdistError(f"--arm {', '.join(map(repr, patterns))} matches no arm of {suite.name}: choose from {names}")
    return replace(
        suite,
        arms=arms,
        rounds=suite.rounds if rounds is None else rounds,
        seed=suite.seed if seed is None else seed,
    )


def _arms(table: Mapping[str, Any], source: str) -> tuple[Arm, ...]:
    defaults, explicit = table.get("defaults", {}), table.get("arms", [])
    if not isinstance(defaults, Mapping):
        raise TfdistError(f"{source} has defaults = {defaults!r}: make it a table, [defaults]")
    common = check_choices(defaults, f"{source}, [defaults],")
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


def _arm(entry: Mapping[str, Any], common: Mapping[str, Any], number: int, source: str) -> Arm:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise TfdistError(f'{source}, arm number {number}, has no name: add name = "..."')
    source = f"{source}, arm {name!r},"
    hosts = entry.get("hosts", 1)
    if not of_kind(hosts, int) or hosts < 1:
        raise TfdistError(f"{source} has hosts = {hosts!r}: must be an integer of at least 1")
    training = {key: value for key, value in entry.items() if key not in ("name", "hosts")}
    choices = {**common, **check_choices(training, source)}
    if "strategy" not in choices:
        raise TfdistError(f'{source} has no strategy: add strategy = "..."')
    if choices["strategy"] is StrategyName.AUTO:
        raise TfdistError(f"{source} has strategy = 'auto', which depends on the machine: name a strategy")
    return Arm(name, choices, hosts)


def _check_amounts(suite: Suite, source: str) -> None:
    if suite.preset is not None and suite.preset not in PRESETS:
        raise TfdistError(f"{source} has preset = {suite.preset!r}: {did_you_mean(suite.preset, PRESETS)}")
    if suite.rounds < 1:
        raise TfdistError(f"{source} has rounds = {suite.rounds}: must be at least 1 (3 for a verdict)")
    if suite.timeout_s is not None and suite.timeout_s <= 0:
        raise TfdistError(f"{source} has timeout = {suite.timeout_s}: must be positive; omit it for no limit")


def _check_scaling(suite: Suite, source: str) -> None:
    """An arm that sets the batch size which its suite's scaling does not fix would do other work than the rest."""
    if suite.scaling not in _FIXED:
        raise TfdistError(
            f"{source} has scaling = {suite.scaling!r}: "
            "choose weak (batch per device fixed) or strong (global batch fixed)"
        )
    fixed = _FIXED[suite.scaling]
    for arm in suite.arms:
        other = next((key for key in _FIXED.values() if key != fixed and key in arm.choices), None)
        if other:
            raise TfdistError(
                f"{source}, arm {arm.name!r}, has {other}, but {suite.scaling} scaling fixes {fixed}: use that instead"
            )
        if suite.scaling == "strong" and fixed not in arm.choices:
            raise TfdistError(f"{source}, arm {arm.name!r}, has no {fixed} to fix: set it in [defaults]")
