"""The command line of a bench, and the suite that it asks for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfdist.bench.against import pinned, with_base
from tfdist.bench.suites.command import with_command
from tfdist.bench.suites.suite import Suite, adjust, built_in_suites, check_baseline, load_suite, narrow, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.quantities import parse_counts
from tfdist.launch.text import did_you_mean
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

_COUNTS = {name: "workers" if row.many_processes else "devices" for name, row in CATALOG.items()}
SWEPT = {name: key for name, key in _COUNTS.items() if key == "workers" or key in CATALOG[name].options}
"""What a scaling sweep of each strategy varies."""


@dataclass(frozen=True)
class ScalingSweep:
    """A strategy on several numbers of devices or workers, each compared with one device."""

    strategy: StrategyName
    counts: tuple[int, ...]

    def suite(self, hosts: int) -> Suite:
        """Its arms; those with several workers are spread over as many of this number of hosts as they can use."""
        key = SWEPT[self.strategy]
        one = StrategyName.ONE_DEVICE
        arms = [
            {"name": f"{self.strategy}/{count}", "strategy": self.strategy, key: count}
            | ({"hosts": min(count, hosts)} if key == "workers" else {})
            for count in self.counts
        ]
        table = {
            "name": f"{self.strategy}-scaling",
            "description": f"Compares {self.strategy} on {', '.join(map(str, self.counts))} {key} with one device.",
            "baseline": one,
            "all": True,
            "defaults": {"evaluate": False, "dataset": "synthetic"},
            "arms": [{"name": one, "strategy": one}, *arms],
        }
        return parse_suite(table, f"--strategy {self.strategy}")


def read_sweep(strategy: str | None, devices: str | None, workers: str | None) -> ScalingSweep | None:
    """The sweep that --strategy, and --devices or --workers, describe; None without them.

    Raises:
        TfdistError: an unknown strategy, one that takes other counts, or no counts.
    """
    given = {key: text for key, text in (("devices", devices), ("workers", workers)) if text is not None}
    if strategy is None:
        for key, text in given.items():
            raise TfdistError(f"--{key} {text}: name the strategy, too, as --strategy multiworker")
        return None
    if strategy not in SWEPT:
        raise TfdistError(f"--strategy {strategy}: {did_you_mean(strategy, SWEPT)}")
    name = StrategyName(strategy)
    key = SWEPT[name]
    for other in given.keys() - {key}:
        raise TfdistError(f"--{other} {given[other]}: a sweep of {strategy} takes --{key} instead")
    if not given:
        fix = f"add --{key} 1,2,4 for a sweep; or use --arm to choose arms of a suite"
        raise TfdistError(f"--strategy {strategy}: {fix}")
    return ScalingSweep(name, parse_counts(given[key], f"--{key}"))


@dataclass(frozen=True)
class BenchOptions:
    """The command line; None: the suite's value."""

    suite: str | None = None
    """None: hosts for several hosts, gpu on a machine with GPUs, else cpu."""
    rounds: int | None = None
    patterns: tuple[str, ...] = ()
    out: Path | None = None
    resume: Path | None = None
    seed: int | None = None
    baseline: str | None = None
    """The arm that all others are compared with."""
    against: str | None = None
    """An earlier version of the program, as `pinned` reads it."""
    fail_slower: float | None = None
    """Fail if an arm is slower than its earlier version by more than this share."""
    command: str = ""
    """The whole command line, without secrets."""
    turn_s: float | None = None
    incarnations: int | None = None
    isolated: bool = False
    budget_s: float | None = None
    all: bool = False
    """Measure every arm to the end."""
    equal: float | None = None
    """The share within which arms count as equally fast, see `Suite.equal`."""
    precision: float | None = None
    """Add starts until half of each ratio's interval is at most this share of it."""
    program: tuple[str, ...] = ()
    """The user's own program; empty: that of the suite, or the built-in training."""
    copy: ProgramCopy | None = None
    """The folder in whose copy programs of the user run."""
    strategy: str | None = None
    """Only the arms of this strategy; None: all."""
    sweep: ScalingSweep | None = None
    """Its arms are the suite."""
    explain: bool = False
    trace: bool = False
    """One more turn of each arm under tf.profiler."""
    collectives: Path | None = None
    """A folder of `tfdist collectives`, for the ceiling of the network; None: the measured links, if there are any."""

    @property
    def is_default(self) -> bool:
        """Whether the suite and its length are left to tfdist; the program and the folder may be the user's."""
        free = replace(self, command="", program=(), copy=None, out=None, seed=None, trace=False, collectives=None)
        return free == BenchOptions()

    @property
    def changes(self) -> dict[str, Any]:
        """Fields of the suite with the values that the user gave."""
        names = ("rounds", "seed", "turn_s", "incarnations", "isolated", "explain", "baseline", "all", "equal")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None and value is not False}


def requested_suite(options: BenchOptions, default: str, hosts: int) -> tuple[Suite, tuple[str, ...]]:
    """The suite with the options applied, and notes about it; `default` without a suite, for this number of hosts.

    Raises:
        TfdistError: an error in the suite or an option.
    """
    if options.sweep and options.suite is not None:
        raise TfdistError(f"--suite {options.suite}: a sweep with --strategy has arms of its own; omit one of them")
    suite = options.sweep.suite(hosts) if options.sweep else load_suite(options.suite or default)
    return changed_suite(suite, options)


def changed_suite(suite: Suite, options: BenchOptions) -> tuple[Suite, tuple[str, ...]]:
    """`suite` with the options applied, and notes about it.

    Raises:
        TfdistError: an option is wrong.
    """
    built_in = options.suite is None or options.suite in built_in_suites()
    narrowed, notes = with_command(narrow(suite, options.patterns, options.strategy), options.program, built_in)
    if options.strategy is not None:  # its first arm is the default of the others
        narrowed = replace(narrowed, baseline=None, against=None, explain=False)
    if against := options.against or narrowed.against:
        narrowed = replace(narrowed, against=pinned(against))
    suite = with_base(adjust(narrowed, options.changes))
    if suite.version_pairs and options.baseline:
        raise TfdistError(f"--baseline {options.baseline}: with --against each arm is compared with itself; omit one")
    left_out = f"suite {suite.name} has baseline = {suite.baseline!r}, which is left out; give another with --baseline"
    check_baseline(suite, left_out if options.baseline is None else f"--baseline {options.baseline}")
    return suite, notes
