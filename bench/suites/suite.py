"""A TOML file -> a Suite: the arms that a bench compares, checked as far as that is possible without a machine."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tfdist.bench.suites.check import check_choices, check_keys, of_kind
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean
from tfdist.models.presets import PRESETS
from tfdist.strategies.options import StrategyName

_toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
Scaling = Literal["weak", "strong"]
BUILT_IN = Path(__file__).parent
_KEYS = ("name", "description", "preset", "rounds", "scaling", "timeout", "seed", "defaults", "arms")


@dataclass(frozen=True)
class Arm:
    """One configuration: a name and the training choices that make it."""

    name: str
    choices: Mapping[str, Any]
    """TrainingSpec's field names and `global_batch_size`; the suite's defaults are already in it."""
    hosts: int = 1
    """On how many hosts it runs: the first of those that the bench was given."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, in the words of the TOML file."""
        return {"name": self.name, **self.choices, **({"hosts": self.hosts} if self.hosts > 1 else {})}


@dataclass(frozen=True)
class Suite:
    """What a bench compares and how often."""

    name: str
    description: str
    preset: str | None
    """What the arms leave open; None lets the machine decide."""
    rounds: int
    scaling: Scaling
    """weak: the batch per device is fixed; strong: the global batch is."""
    timeout_s: float | None
    """Of each run."""
    seed: int
    """Of the order of the runs within a round."""
    arms: tuple[Arm, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, in the words of the TOML file."""
        return {
            "name": self.name,
            "description": self.description,
            "preset": self.preset,
            "rounds": self.rounds,
            "scaling": self.scaling,
            "timeout": self.timeout_s,
            "seed": self.seed,
            "arms": [arm.to_json() for arm in self.arms],
        }


def built_in_suites() -> tuple[str, ...]:
    """The names of the suites that come with tfdist."""
    return tuple(sorted(path.stem for path in BUILT_IN.glob("*.toml")))


def load_suite(name_or_file: str) -> Suite:
    """A built-in suite by its name, or the one in a TOML file.

    Raises:
        TfdistError: there is no such suite, or something in it is wrong; the sentence says where.
    """
    path = BUILT_IN / f"{name_or_file}.toml" if name_or_file in built_in_suites() else Path(name_or_file)
    try:
        with path.open("rb") as stream:
            return parse_suite(_toml.load(stream), str(name_or_file))
    except ValueError as error:
        raise TfdistError(f"the suite {name_or_file} is not TOML: {error}") from None
    except OSError as error:
        hint = did_you_mean(name_or_file, built_in_suites())
        raise TfdistError(f"--suite {name_or_file}: {error.strerror}; {hint}, or a .toml file") from None


def parse_suite(table: Mapping[str, Any], where: str) -> Suite:
    """The suite that a TOML table, or `Suite.to_json`, describes.

    Raises:
        TfdistError: an unknown key, a value of the wrong type, no arms, or two of one name.
    """
    where = f"the suite {where}"
    check_keys(table, _KEYS, where)
    scaling = _scaling(table, where)
    suite = Suite(
        name=_plain(table, "name", str, "suite", where),
        description=_plain(table, "description", str, "", where),
        preset=_plain(table, "preset", str, None, where),
        rounds=_plain(table, "rounds", int, 3, where),
        scaling=scaling,
        timeout_s=_plain(table, "timeout", float, None, where),
        seed=_plain(table, "seed", int, 0, where),
        arms=_arms(table, where),
    )
    _check_amounts(suite, where)
    _check_scaling(suite, where)
    return suite


def narrow(suite: Suite, patterns: Sequence[str], rounds: int | None, seed: int | None) -> Suite:
    """The suite with only the arms that match one of `patterns` (fnmatch; none: all), and other rounds or seed.

    Raises:
        TfdistError: nothing matches, or there is no round.
    """
    if rounds is not None and rounds < 1:
        raise TfdistError(f"--rounds {rounds}: make it 1 or more (3 or more for a verdict)")
    arms = tuple(arm for arm in suite.arms if not patterns or any(fnmatchcase(arm.name, p) for p in patterns))
    if not arms:
        asked = ", ".join(repr(pattern) for pattern in patterns)
        names = ", ".join(arm.name for arm in suite.arms)
        raise TfdistError(f"no arm of the suite {suite.name} matches {asked}: it has {names}")
    return replace(
        suite,
        arms=arms,
        rounds=suite.rounds if rounds is None else rounds,
        seed=suite.seed if seed is None else seed,
    )


def _plain(table: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    value = table.get(key)
    if value is None:
        return default
    if not of_kind(value, kind):
        words = {int: "a whole number", float: "a number of seconds", str: "a text"}[kind]
        raise TfdistError(f"{where} has {key} = {value!r}: it takes {words}")
    return value


def _scaling(table: Mapping[str, Any], where: str) -> Scaling:
    value = table.get("scaling", "weak")
    if value == "weak" or value == "strong":
        return value  # type: ignore[no-any-return]
    raise TfdistError(
        f"{where} has scaling = {value!r}: choose weak (batch per device fixed) or strong (global batch fixed)"
    )


def _arms(table: Mapping[str, Any], where: str) -> tuple[Arm, ...]:
    entries, defaults = table.get("arms"), table.get("defaults", {})
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise TfdistError(f"{where} has no arms: add at least one [[arms]] table with a name and a strategy")
    if not isinstance(defaults, Mapping):
        raise TfdistError(f"{where} has defaults = {defaults!r}: make it a table, [defaults]")
    common = check_choices(defaults, f"{where}, [defaults],")
    arms = tuple(_arm(entry, common, number, where) for number, entry in enumerate(entries, start=1))
    twice = [name for name, count in Counter(arm.name for arm in arms).items() if count > 1]
    if twice:
        raise TfdistError(f"{where} has two arms called {twice[0]!r}: give each a name of its own")
    return arms


def _arm(entry: Mapping[str, Any], common: Mapping[str, Any], number: int, where: str) -> Arm:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise TfdistError(f'{where}, arm number {number}, has no name: add name = "..."')
    where = f"{where}, arm {name!r},"
    hosts = entry.get("hosts", 1)
    if not of_kind(hosts, int) or hosts < 1:
        raise TfdistError(f"{where} has hosts = {hosts!r}: make it a whole number of at least 1")
    training = {key: value for key, value in entry.items() if key not in ("name", "hosts")}
    choices = {**common, **check_choices(training, where)}
    if "strategy" not in choices:
        raise TfdistError(f'{where} has no strategy: add strategy = "..."')
    if choices["strategy"] is StrategyName.AUTO:
        raise TfdistError(f"{where} has strategy = 'auto', which is another one on every machine: name one")
    return Arm(name, choices, hosts)


def _check_amounts(suite: Suite, where: str) -> None:
    if suite.preset is not None and suite.preset not in PRESETS:
        raise TfdistError(f"{where} has preset = {suite.preset!r}: {did_you_mean(suite.preset, PRESETS)}")
    if suite.rounds < 1:
        raise TfdistError(f"{where} has rounds = {suite.rounds}: make it 1 or more (3 or more for a verdict)")
    if suite.timeout_s is not None and suite.timeout_s <= 0:
        raise TfdistError(
            f"{where} has timeout = {suite.timeout_s}: make it the seconds that a run may take, or leave it out"
        )


_FIXED: Mapping[Scaling, str] = {"weak": "batch_size", "strong": "global_batch_size"}


def _check_scaling(suite: Suite, where: str) -> None:
    """Each scaling fixes one of the two batch sizes; an arm that sets the other would do other work than the rest."""
    fixed = _FIXED[suite.scaling]
    for arm in suite.arms:
        other = next((key for key in _FIXED.values() if key != fixed and key in arm.choices), None)
        if other:
            raise TfdistError(
                f"{where}, arm {arm.name!r}, has {other}, but {suite.scaling} scaling fixes {fixed}: use that instead"
            )
        if suite.scaling == "strong" and fixed not in arm.choices:
            raise TfdistError(f"{where}, arm {arm.name!r}, has no {fixed} to fix: set it in [defaults]")
