"""A TOML file -> a Suite: the arms that a bench compares, checked as far as that is possible without a machine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

from tfdist.bench.suites.arm import Arm, check_keys, check_value, parse_arms
from tfdist.jobs.presets import PRESETS
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import read_toml
from tfdist.launch.quantities import parse_seconds
from tfdist.launch.text import did_you_mean
from tfdist.strategies.choice import field_types
from tfdist.strategies.options import option_text

MOST_ROUNDS = 100_000
_BUILT_IN = Path(__file__).parent
_IN_SECONDS = ("turn", "warmup", "window", "timeout")
"""Keys whose field ends with `_s`."""
_FIXED: Mapping[str, str] = {"weak": "batch_size", "strong": "global_batch_size"}
"""The batch size that each scaling fixes."""
QUICK = "quick"
"""The built-in suite for a rough answer."""
BASE = " (base)"
"""End of the name of an arm that runs the earlier version."""


@dataclass(frozen=True)
class Suite:
    """What a bench compares, how often and for how long."""

    arms: tuple[Arm, ...]
    name: str = "suite"
    """The file's name by default."""
    description: str = ""
    """What it is for; shown when a bench starts."""
    preset: str | None = None
    """Preset of everything that the arms do not set; None: by machine."""
    rounds: int = 12
    """Turns of each arm."""
    incarnations: int = 4
    """Starts of each arm's processes, over which the rounds are spread evenly; at most `rounds`."""
    turn_s: float = 2.5
    """Timed seconds of a turn."""
    warmup_s: float = 3.0
    """Seconds that each incarnation trains before its first turn."""
    window_s: float = 0.5
    """Seconds of a timed window, which has at least 3 steps."""
    isolated: bool = False
    """No other arm's processes exist during a turn: an incarnation for each turn."""
    timeout_s: float = 600.0
    """Limit of the start of an arm, and of each turn."""
    scaling: str = "weak"
    """weak: the batch per device is fixed; strong: the global batch is."""
    seed: int = 0
    """Seed of the order of the arms: of the starts in an incarnation, and of the turns in a round."""
    explain: bool = False
    """Measure what is needed to say where time is lost: step times, and the arms of `suites/explain.py`."""
    until_accuracy: float | None = None
    """An incarnation of an arm gets no more turns once its accuracy on the held-out examples, 0..1, has reached this;
    None: each arm gets all its turns."""
    baseline: str | None = None
    """The arm that all others are compared with, and beside which they are measured; None: the one-device arm."""
    all: bool = False
    """Every arm is measured to the end; False: those that are slower for sure are dropped after a start."""
    equal: float = 0.05
    """An arm is as fast as the best if it is surely not faster by more than this share."""
    against: str | None = None
    """An earlier version of the program, which each arm runs a second time; see `against.pinned`."""

    @property
    def version_pairs(self) -> tuple[tuple[str, str], ...]:
        """Each arm with the one that runs the earlier version; empty: `against` is None, or `with_base` not called."""
        if not self.against:
            return ()
        names = [arm.name for arm in self.arms]
        return tuple((name, name + BASE) for name in names if name + BASE in names)

    def partners(self, arms: Iterable[str], baseline: str) -> Mapping[str, str]:
        """The arm with which each of `arms` is compared: its other version, or the baseline."""
        versions = {one: two for pair in self.version_pairs for one, two in (pair, pair[::-1])}
        return versions or dict.fromkeys(arms, baseline)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the keys of the TOML file; the arms of [matrix] are written out."""
        return {**{key: getattr(self, _field(key)) for key in _TYPES}, "arms": [arm.to_json() for arm in self.arms]}


_TYPES = {name.removesuffix("_s"): kind for name, kind in field_types(Suite).items() if name != "arms"}
"""The type of each key of a suite."""


def built_in_suites() -> tuple[str, ...]:
    """The names of the suites that come with tfdist."""
    return tuple(sorted(path.stem for path in _BUILT_IN.glob("*.toml")))


def load_suite(name_or_file: str) -> Suite:
    """A built-in suite by its name, or the one in a TOML file, by default named like it; see `parse_suite`.

    A file's name ends with .toml or has a slash.

    Raises:
        TfdistError: no such suite, or an error in it.
    """
    is_file = "/" in name_or_file or name_or_file.endswith(".toml")
    path = Path(name_or_file) if is_file else _BUILT_IN / f"{name_or_file}.toml"  # whatever is in the current folder
    try:
        return parse_suite({"name": path.stem, **read_toml(path)}, str(name_or_file))
    except ValueError as error:
        raise TfdistError(f"the suite {name_or_file} is not TOML: {error}") from None
    except OSError as error:
        hint = did_you_mean(name_or_file, built_in_suites())
        fix = f"or for the file write ./{name_or_file}" if Path(name_or_file).is_file() else "or a .toml file"
        raise TfdistError(f"--suite {name_or_file}: {error.strerror}; {hint}, {fix}") from None


def parse_suite(table: Mapping[str, Any], source: str) -> Suite:
    """The suite in a TOML table, or in `Suite.to_json`.

    Its arms are those of [matrix] (`arm.expand` has the rules), then those of [[arms]]; both are optional, but one
    arm is required. Each arm takes the keys of [defaults], and the suite's command, if it does not set them itself.
    Names must be unique.

    Args:
        source: the file or name, for messages.

    Raises:
        TfdistError: an unknown key, a value of the wrong type or out of range, no arms, or two of one name.
    """
    source = f"the suite {source}"
    check_keys(table, (*_TYPES, "command", "defaults", "matrix", "arms"), source)
    values = {}
    for key, kind in _TYPES.items():
        value = table.get(key)
        if key in _IN_SECONDS and isinstance(value, str):
            value = parse_seconds(value, f"{source} has {key} =")
        if value is not None:
            values[_field(key)] = check_value(key, value, kind, source)
    suite = _with_incarnations(Suite(parse_arms(table, source), **values), "incarnations" in values)
    if suite.isolated and suite.incarnations != values.get("incarnations", suite.incarnations):
        raise TfdistError(f"{source} is isolated, so each turn starts the processes again: omit incarnations")
    check_baseline(suite, f"{source} has baseline = {suite.baseline!r}")
    if suite.preset is not None and suite.preset not in PRESETS:
        raise TfdistError(f"{source} has preset = {suite.preset!r}: {did_you_mean(suite.preset, PRESETS)}")
    _check_amounts(suite, lambda key, value: f"{source} has {key} = {value}")
    _check_scaling_and_accuracy(suite, source)
    return suite


def _check_amounts(suite: Suite, set_by: Callable[[str, Any], str]) -> None:
    """Refuse numbers that are out of range or contradict each other.

    Args:
        suite: its numbers.
        set_by: how a key was set to a value: `the suite x has rounds = 0`, `--rounds 0`.

    Raises:
        TfdistError: for the first one.
    """
    seconds = {key: getattr(suite, _field(key)) for key in ("turn", "window", "timeout")}
    for key, holds, must in (
        ("rounds", suite.rounds >= 1, "at least 1 (3 for a verdict)"),
        ("rounds", suite.rounds <= MOST_ROUNDS, f"at most {MOST_ROUNDS:,}"),
        ("incarnations", 1 <= suite.incarnations <= suite.rounds, f"1 to the number of rounds, {suite.rounds}"),
        *((key, 0 < value < inf, "a positive number of seconds") for key, value in seconds.items()),
        ("warmup", 0 <= suite.warmup_s < inf, "0 seconds or more"),
        ("turn", suite.turn_s < suite.timeout_s, f"shorter than the timeout of a turn, {suite.timeout_s:g}"),
        ("equal", 0 < suite.equal < 1, "a share between 0 and 1, as 0.05"),
        ("turn", suite.turn_s >= suite.window_s, f"at least as long as a window, {suite.window_s:g}"),
    ):
        if not holds:
            raise TfdistError(f"{set_by(key, getattr(suite, _field(key)))}: must be {must}")


def check_baseline(suite: Suite, source: str) -> None:
    """Refuse a baseline that is no arm of the suite.

    Raises:
        TfdistError: starting with `source`, which names it.
    """
    names = [arm.name for arm in suite.arms]
    if suite.baseline is not None and suite.baseline not in names:
        raise TfdistError(f"{source}: {did_you_mean(suite.baseline, names)}")


def narrow(suite: Suite, patterns: Sequence[str], strategy: str | None = None) -> Suite:
    """The suite with only the arms that match one of `patterns` (fnmatch; none: all), and of this strategy (None: all).

    Raises:
        TfdistError: no arm matches.
    """
    arms = tuple(arm for arm in suite.arms if not patterns or any(fnmatchcase(arm.name, p) for p in patterns))
    if not arms:
        names = ", ".join(arm.name for arm in suite.arms)
        raise TfdistError(f"--arm {', '.join(map(repr, patterns))} matches no arm of {suite.name}: choose from {names}")
    of_strategy = tuple(arm for arm in arms if strategy in (None, arm.choices["strategy"]))
    if not of_strategy:
        others = dict.fromkeys(str(arm.choices["strategy"]) for arm in arms)
        raise TfdistError(f"--strategy {strategy}: no arm of suite {suite.name}; {did_you_mean(str(strategy), others)}")
    return replace(suite, arms=of_strategy)


def adjust(suite: Suite, changes: Mapping[str, Any]) -> Suite:
    """The suite with other values for these of its fields; None counts as not given.

    Raises:
        TfdistError: a value is out of range.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    if given.get("isolated") and "incarnations" in given:
        raise TfdistError("--isolated: starts the processes again for each turn; omit --incarnations")
    if given.get("isolated") and suite.until_accuracy is not None:
        raise TfdistError(f"--isolated: arms of suite {suite.name} continue their training in each turn; omit it")
    if "rounds" in given and suite.incarnations == suite.rounds:  # limited by them
        suite = replace(suite, incarnations=max(suite.incarnations, Suite.incarnations))
    adjusted = _with_incarnations(replace(suite, **given), "incarnations" in given)
    _check_amounts(adjusted, option_text)
    return adjusted


def _field(key: str) -> str:
    return f"{key}_s" if key in _IN_SECONDS else key


def _with_incarnations(suite: Suite, chosen: bool) -> Suite:
    """The suite with an incarnation for each isolated turn; else, unless `chosen`, with no more of them than rounds."""
    if suite.isolated:
        return replace(suite, incarnations=suite.rounds)
    if chosen:
        return suite
    return replace(suite, incarnations=min(suite.incarnations, suite.rounds))


def _check_scaling_and_accuracy(suite: Suite, source: str) -> None:
    if suite.scaling not in _FIXED:
        fix = "choose weak (batch per device fixed) or strong (global batch fixed)"
        raise TfdistError(f"{source} has scaling = {suite.scaling!r}: {fix}")
    fixed = _FIXED[suite.scaling]
    for arm in (arm for arm in suite.arms if not arm.command):  # the batch size of a program is its own
        # an arm that sets the batch size which its suite's scaling does not fix would do other work than the rest
        other = next((key for key in _FIXED.values() if key != fixed and key in arm.choices), None)
        if other:
            what = f"has {other}, but {suite.scaling} scaling fixes {fixed}"
            raise TfdistError(f"{source}, arm {arm.name!r}, {what}: use that instead")
        if suite.scaling == "strong" and fixed not in arm.choices:
            raise TfdistError(f"{source}, arm {arm.name!r}, has no {fixed} to fix: set it in [defaults]")
    if suite.until_accuracy is None:
        return
    if not 0 < suite.until_accuracy <= 1:
        raise TfdistError(f"{source} has until_accuracy = {suite.until_accuracy:g}: must be above 0 and at most 1")
    if suite.isolated:
        raise TfdistError(f"{source} is isolated, so that each turn starts over: omit until_accuracy")
    unknown = next((arm.name for arm in suite.arms if not (arm.command or arm.choices.get("evaluate_turns"))), None)
    if unknown is not None:
        fix = "set evaluate_turns = true in [defaults]"
        raise TfdistError(f"{source} has until_accuracy, but arm {unknown!r} is not evaluated: {fix}")
