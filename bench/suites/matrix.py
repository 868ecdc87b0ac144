"""[matrix] of a suite: lists of values whose product makes arms. Pure."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from tfdist.bench.suites.check import TRAINING_KEYS, check_choices, check_keys
from tfdist.launch.errors import TfdistError

KEYS = (*TRAINING_KEYS, "hosts")
"""Keys of an arm that a list may vary."""
MOST_ARMS = 256


def expand(matrix: Any, defaults: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    """The tables of the arms that [matrix] makes, as if each were written as [[arms]].

    Every key except `exclude` is a key of an arm with a list of values; the arms are all combinations, the first list
    varying fastest. A value may also be a table that sets several keys at once. An arm's name joins one part per list
    with `/`, in the order of the lists: a text stands alone (`mirrored`), anything else has its key (`batch_size=32`,
    `xla=true`), and a table is its `name`, or without one its values. `exclude` is a list of tables: an arm that has
    all values of one of them, [defaults] included, is left out.

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
    arms = [_merged(combination[::-1], source) for combination in product(*reversed(parts))]
    return _without(matrix.get("exclude", []), arms, defaults, source)


def _part(key: str, value: Any, source: str) -> dict[str, Any]:
    """What one value of a list adds to an arm: its part of the name, and the keys that it sets."""
    if not isinstance(value, Mapping):
        return {"name": _text(key, value), key: value}
    if key not in value:
        raise TfdistError(f"{source} has a table in {key} that sets no {key}: add {key} = ...")
    settings = {name: setting for name, setting in value.items() if name != "name"}
    return {"name": "/".join(_text(*setting) for setting in settings.items()), **value}


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and value[:1].isalpha():
        return value
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def _merged(parts: Sequence[Mapping[str, Any]], source: str) -> dict[str, Any]:
    arm: dict[str, Any] = {}
    for part in parts:
        twice = next((key for key in part if key in arm and key != "name"), None)
        if twice:
            raise TfdistError(f"{source} sets {twice} in two lists: set it in one of them")
        arm |= part
    return {**arm, "name": "/".join(str(part["name"]) for part in parts)}


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
