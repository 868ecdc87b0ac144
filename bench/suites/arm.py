"""The arms of a suite, those of its [matrix] too: lists of values whose product makes arms. All are checked. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import product
from math import prod
from typing import Any

from tfdist.jobs.options import EXPECTED, TRAINING
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_arguments
from tfdist.launch.text import check_name, did_you_mean
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice, field_types
from tfdist.strategies.options import StrategyName, fix_of_choice

_TYPES: Mapping[str, type] = {**field_types(TrainingSpec), "global_batch_size": int}
_NOTATIONS = {option.name: option for option in TRAINING if option.parser is not None}
TRAINING_KEYS = (*_TYPES, *(name for name in _NOTATIONS if name not in (*_TYPES, "log_limit", "copy_limit")))
_IN_TURNS = "a bench trains in turns of seconds: use turn, warmup and rounds"
NOT_FOR_BENCHES = {
    **dict.fromkeys(("steps", "epochs", "warmup_steps", "steps_per_window"), _IN_TURNS),
    "log_device_placement": "its log would slow the arm down: use it with `tfdist launch`",
}
"""Training keys that an arm may not have, and why."""


def check_keys(keys: Collection[str], known: Collection[str], source: str) -> None:
    """Refuse unknown keys.

    Raises:
        TfdistError: an unknown key.
    """
    for key in keys:
        if key not in known:
            raise TfdistError(f"{source} has the unknown key {key!r}: {did_you_mean(key, known)}")


def check_choices(choices: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The choices of an arm with each value in its type.

    Raises:
        TfdistError: an unknown key, one that is not for a bench, or a value that its key does not take.
    """
    refused = next((key for key in choices if key in NOT_FOR_BENCHES), None)
    if refused:
        raise TfdistError(f"{source} has {refused}, but {NOT_FOR_BENCHES[refused]}")
    check_keys(choices, [key for key in TRAINING_KEYS if key not in NOT_FOR_BENCHES], source)
    checked = {}
    for key, value in choices.items():
        option = _NOTATIONS.get(key)
        if option is None or option.parser is None or (key in _TYPES and not isinstance(value, str)):
            checked[key] = check_value(key, value, _TYPES[key], source)
        else:  # 5s and 4M are read as on the command line
            checked[option.field] = option.in_unit(option.parser(str(value)))
    return checked


def check_value(key: str, value: Any, kind: type, source: str) -> Any:
    """`value` as a `kind`, which is a plain type or an Enum.

    Raises:
        TfdistError: it is not one, or a text with a control character.
    """
    if issubclass(kind, Enum):
        if value not in [choice.value for choice in kind]:
            fix = fix_of_choice(key, str(value), [choice.value for choice in kind])
            raise TfdistError(f"{source} has {key} = {value!r}: {fix}")
        return kind(value)
    if not of_kind(value, kind):
        raise TfdistError(f"{source} has {key} = {value!r}: {EXPECTED[kind]}")
    if isinstance(value, str):
        check_name(f"{source} has {key} =", value)
    return value


def of_kind(value: Any, kind: type) -> bool:
    """Whether a TOML value is of `kind`: a whole number is also a number, true and false are not."""
    accepted = (int, float) if kind is float else kind
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


KEYS = (*TRAINING_KEYS, "hosts")
"""Keys of an arm that a list may vary."""
MOST_ARMS = 256


def expand(matrix: Any, defaults: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    """The tables of the arms that [matrix] makes, as if each were written as [[arms]].

    Every key except `exclude` is a key of an arm with a list of values; the arms are all combinations, the first list
    varying fastest. A value may also be a table that sets several keys at once. An arm's name joins one part per list
    with `/`, in the order of the lists: a text stands alone (`mirrored`), anything else has its key (`batch_size=32`,
    `xla=true`), and a table is its `name`, or without one its values: `levels` has that part of each list. `exclude` is
    a list of tables: an arm that has all values of one of them, [defaults] included, is left out.

    Raises:
        TfdistError: an unknown key, not a list, an empty list, more than MOST_ARMS arms, a key that two lists set, an
            exclude that matches no arm, or no arm left.
    """
    source = f"{source}, [matrix],"
    if not isinstance(matrix, Mapping):
        raise TfdistError(f"{source} is {matrix!r}: make it a table of lists, as batch_size = [16, 32]")
    axes = {key: values for key, values in matrix.items() if key != "exclude"}
    check_keys(axes, KEYS, source)
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise TfdistError(f"{source} has {key} = {values!r}: give a list of values, as {key} = [...]")
    total = prod(map(len, axes.values())) if axes else 0
    if not 0 < total <= MOST_ARMS:
        raise TfdistError(f"{source} makes {total} arms: give lists that make 1 to {MOST_ARMS}")
    parts = [[_part(key, value, source) for value in values] for key, values in axes.items()]
    # product() varies the last list fastest
    arms = [_merged(dict(zip(axes, values[::-1], strict=True)), source) for values in product(*reversed(parts))]
    return _without(matrix.get("exclude", []), arms, defaults, source)


def _part(key: str, value: Any, source: str) -> dict[str, Any]:
    """What one value of a list adds to an arm: its part of the name, and the keys that it sets."""
    if not isinstance(value, Mapping):
        return {"name": _text(key, value), key: value}
    if key not in value:
        raise TfdistError(f"{source} has a table in {key} that sets no {key}: add {key} = ...")
    check_keys(value, ("name", "command", *KEYS), source)
    settings = {name: setting for name, setting in value.items() if name != "name"}
    return {"name": "/".join(_text(*setting) for setting in settings.items()), **value}


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and value[:1].isalpha():
        return value
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def _merged(parts: Mapping[str, Mapping[str, Any]], source: str) -> dict[str, Any]:
    arm: dict[str, Any] = {}
    for part in parts.values():
        twice = next((key for key in part if key in arm and key != "name"), None)
        if twice:
            raise TfdistError(f"{source} sets {twice} in two lists: set it in one of them")
        arm |= part
    levels = {axis: str(part["name"]) for axis, part in parts.items()}
    return {**arm, "name": "/".join(levels.values()), "levels": levels}


def _without(
    exclude: Any, arms: Sequence[dict[str, Any]], defaults: Mapping[str, Any], source: str
) -> list[dict[str, Any]]:
    """The arms that no table of `exclude` matches."""
    if not isinstance(exclude, list) or not all(isinstance(table, Mapping) and table for table in exclude):
        raise TfdistError(f"{source} has exclude = {exclude!r}: make it a list of tables, as exclude = [{{ ... }}]")
    for table in exclude:
        check_keys(table, KEYS, f"{source} exclude")
        check_choices({key: value for key, value in table.items() if key != "hosts"}, f"{source} exclude")
        if not any(_matches(table, arm, defaults) for arm in arms):
            raise TfdistError(f"{source} has an exclude that matches no arm: {dict(table)}; drop it or fix its values")
    kept = [arm for arm in arms if not any(_matches(table, arm, defaults) for table in exclude)]
    if not kept:
        raise TfdistError(f"{source} excludes all of its arms: drop an exclude")
    return kept


def _matches(table: Mapping[str, Any], arm: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    every = {**defaults, **arm}
    return all(key in every and every[key] == value for key, value in table.items())


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
    levels: Mapping[str, str] = field(default_factory=dict)
    """Its place in [matrix]: the name of its value in each list; empty: it is not of a matrix."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the keys of the TOML file; secrets in the command are masked."""
        hosts = {"hosts": self.hosts} if self.hosts > 1 else {}
        command = {"command": redact_arguments(self.command)} if self.command else {}
        levels = {"levels": dict(self.levels)} if self.levels else {}
        return {"name": self.name, **self.choices, **hosts, **command, **levels}


def parse_arms(table: Mapping[str, Any], source: str) -> tuple[Arm, ...]:
    """The arms of [matrix], then those of [[arms]], each with the values of [defaults] that it does not set.

    Those that describe the built-in training are not for arms with a command.

    Raises:
        TfdistError: an error in one of them, no arms, or two of one name.
    """
    defaults, explicit = table.get("defaults", {}), table.get("arms", [])
    if not isinstance(defaults, Mapping):
        raise TfdistError(f"{source} has defaults = {defaults!r}: make it a table, [defaults]")
    common = dict(defaults)
    if "command" in table:
        common.setdefault("command", table["command"])
    for_all = _check_entry(common, f"{source}, [defaults],")
    matrix = expand(table["matrix"], defaults, source) if "matrix" in table else []
    if not isinstance(explicit, list) or not all(isinstance(entry, Mapping) for entry in explicit):
        raise TfdistError(f"{source} has arms = {explicit!r}: make each a table, [[arms]]")
    if not matrix and not explicit:
        raise TfdistError(f"{source} has no arms: add [[arms]] with a name and a strategy, or a [matrix]")
    arms = tuple(_arm(entry, common, number, source) for number, entry in enumerate((*matrix, *explicit), start=1))
    twice = [name for name, count in Counter(arm.name for arm in arms).items() if count > 1]
    if twice:
        raise TfdistError(f"{source} has two arms called {twice[0]!r}: rename one")
    if all(arm.command for arm in arms):
        refuse_training(for_all, f"{source}, [defaults],")
    return arms


def refuse_training(keys: Iterable[str], source: str) -> None:
    """Refuse keys that describe the built-in training, beside a command.

    Raises:
        TfdistError: one of them does.
    """
    stray = next((key for key in keys if key not in STRATEGY_KEYS), None)
    if stray:
        raise TfdistError(f"{source} has {stray}, which is for the built-in training, and a command: omit {stray}")


def _check_entry(entry: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The training keys of an entry, each value in its type; its command must be a list of words."""
    if "command" in entry:
        command = entry["command"]
        if not isinstance(command, list | tuple) or not command or not all(isinstance(word, str) for word in command):
            raise TfdistError(f'{source} has command = {command!r}: give a list of words, as ["python", "train.py"]')
    return check_choices({key: value for key, value in entry.items() if key != "command"}, source)


def _arm(entry: Mapping[str, Any], common: Mapping[str, Any], number: int, source: str) -> Arm:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise TfdistError(f'{source}, arm number {number}, has no name: add name = "..."')
    check_name(f"{source} has an arm", name)
    if not name.isprintable():
        raise TfdistError(f"{source} has an arm {name!r}: has a character that cannot be shown; use plain spaces")
    if len(name) > LONGEST_NAME:
        raise TfdistError(f"{source}, arm {name[:40]!r}...: use a name of at most {LONGEST_NAME} characters")
    source = f"{source}, arm {name!r},"
    hosts = entry.get("hosts", 1)
    if not of_kind(hosts, int) or hosts < 1:
        raise TfdistError(f"{source} has hosts = {hosts!r}: must be an integer of at least 1")
    levels = _check_levels(entry.get("levels", {}), source)
    own = {key: value for key, value in entry.items() if key not in ("name", "hosts", "levels")}
    choices = _check_entry({**common, **own}, source)
    command = tuple({**common, **own}.get("command", ()))
    if command:
        refuse_training(_check_entry(own, source), source)
        choices = {key: value for key, value in choices.items() if key in STRATEGY_KEYS}
    if "strategy" not in choices:
        raise TfdistError(f'{source} has no strategy: add strategy = "..."')
    if choices["strategy"] is StrategyName.AUTO:
        raise TfdistError(f"{source} has strategy = 'auto', which depends on the machine: name a strategy")
    return Arm(name, choices, hosts, command, levels)


def _check_levels(levels: Any, source: str) -> dict[str, str]:
    """The place in [matrix] that `Arm.to_json` wrote."""
    if not isinstance(levels, Mapping) or not all(isinstance(value, str) for value in levels.values()):
        raise TfdistError(f"{source} has levels = {levels!r}: make it a table of texts, or omit it")
    check_keys(levels, KEYS, f"{source} levels")
    for axis, value in levels.items():
        check_name(f"{source} levels, has {axis} =", value)
    return dict(levels)
