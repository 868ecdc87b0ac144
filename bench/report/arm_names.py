"""Lists of arms in sentences: arms that differ only in an option that does not matter are one phrase. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.report.arm_records import effective_spec, same_work
from tfdist.bench.report.summary import ArmRow

_WORDS = {
    "communication": "exchange",
    "cross_device": "exchange",
    "bytes_per_pack": "size of packs",
    "packs": "number of packs",
    "ps": "number of servers",
    "batch_size": "batch",
}
"""Fields of a spec -> what sentences call them."""
_NAMED = ("strategy", "workers", "devices", "command")
"""Fields in which the arms of a phrase never differ."""
_MOST = 6
"""Phrases of a list; the table has the rest."""


@dataclass(frozen=True)
class _Phrase:
    """Some arms under one name."""

    rows: tuple[ArmRow, ...]
    spec: Mapping[str, str]
    """What they have in common."""
    name: str
    options: tuple[str, ...] = ()
    """Fields in which they differ."""

    def __str__(self) -> str:
        return f"{self.name} (any {', any '.join(self.options)})" if self.options else self.name


def phrases(arms: Sequence[ArmRow], every: Sequence[ArmRow]) -> list[str]:
    """The names of measured arms: `multiworker/ring`, or `mirrored (any exchange)` of arms that differ in that alone.

    Of equal arms only the first is named. Arms are one phrase only if they are all arms of `every` that differ so,
    those without figures included.
    """
    specs = {row.arm: effective_spec(row) for row in every}
    found = [_Phrase(rows, effective_spec(rows[0]), rows[0].arm) for rows in _equal(arms, list(specs))]
    for key in dict.fromkeys(key for phrase in found for key in phrase.spec if key not in _NAMED):
        if len({phrase.spec.get(key) for phrase in found}) > 1:
            found = _merged(found, key, specs)
    return list(map(str, found))


def _equal(arms: Sequence[ArmRow], order: Sequence[str]) -> list[tuple[ArmRow, ...]]:
    """Groups of equal arms, each in the order of the suite: `multiworker` before `multiworker/again`."""
    groups: dict[tuple[object, ...], list[ArmRow]] = {}
    for row in arms:
        groups.setdefault(same_work(row), []).append(row)
    return [tuple(sorted(group, key=lambda row: order.index(row.arm))) for group in groups.values()]


def _merged(found: Sequence[_Phrase], key: str, specs: Mapping[str, Mapping[str, str]]) -> list[_Phrase]:
    """The phrases, with those that differ only in `key` as one if no other arm of `specs` does.

    Their common name must not be part of the name of another arm.
    """
    groups: dict[tuple[object, ...], list[_Phrase]] = {}
    for phrase in found:
        rest = (item for item in sorted(phrase.spec.items()) if item[0] != key)
        groups.setdefault((phrase.rows[0].hosts, phrase.options, *rest), []).append(phrase)
    merged: list[_Phrase] = []
    for group in groups.values():
        spec = {name: value for name, value in group[0].spec.items() if name != key}
        # the spec of an arm that never ran has only what its suite says
        alike = [
            arm for arm, other in specs.items() if all(other.get(name, value) == value for name, value in spec.items())
        ]
        name = common_name(phrase.name for phrase in group)
        unique = name in specs or not any(arm.startswith(f"{name}/") for arm in specs if arm not in alike)
        whole = {specs[arm].get(key) for arm in alike} == {phrase.spec.get(key) for phrase in group}
        if len(group) == 1 or not name or not unique or not whole:
            merged += group
            continue
        rows = tuple(row for phrase in group for row in phrase.rows)
        word = _WORDS.get(key, key.replace("_", " "))
        merged.append(_Phrase(rows, spec, name, (*group[0].options, word)))
    return merged


def common_name(names: Iterable[str]) -> str:
    """The parts, between slashes, that all names have."""
    first, *others = [name.split("/") for name in names]
    return "/".join(part for part in first if all(part in other for other in others))


def strategies_or_phrases(arms: Sequence[ArmRow], every: Sequence[ArmRow]) -> list[str]:
    """`phrases`, but all arms of a strategy whose names begin alike, as with `multiworker/`, are that part."""
    chosen = {row.arm for row in arms}
    families: dict[str, list[ArmRow]] = {}
    for row in every:
        families.setdefault(row.arm.partition("/")[0] or row.arm, []).append(row)
    whole = {
        part: family
        for part, family in families.items()
        if len({row.strategy for row in family}) == 1 and all(row.arm in chosen for row in family)
    }
    named = {row.arm for family in whole.values() for row in family}
    rest = [row for row in arms if row.arm not in named]
    return [*whole, *(phrases(rest, every) if rest else ())]


def alternatives(names: Sequence[str], word: str) -> str:
    """`a, b or c` with the word `or`; of many the first ones and how many more; `batch=1, 2 or 4` of values of one."""
    keys = {name.rpartition("=")[0] for name in names}
    values = sorted((name.rpartition("=")[2] for name in names), key=lambda value: (len(value), value))
    if len(names) > 1 and len(keys) == 1 and (key := keys.pop()) and not any("/" in value for value in values):
        return f"{key}={alternatives(values, word)}"
    if len(names) > _MOST:
        names = [*names[: _MOST - 1], f"{len(names) - _MOST + 1} more"]
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))
