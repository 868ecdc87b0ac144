"""The command line of a bench, and the suite that it asks for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.suites.command import with_command
from tfdist.bench.suites.suite import Suite, adjust, built_in_suites, load_suite, narrow


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
    command: str = ""
    """The whole command line, without secrets."""
    turn_s: float | None = None
    incarnations: int | None = None
    isolated: bool = False
    budget_s: float | None = None
    program: tuple[str, ...] = ()
    """The user's own program; empty: that of the suite, or the built-in training."""
    strategy: str | None = None
    """Only the arms of this strategy; None: all."""
    explain: bool = False
    trace: bool = False
    """One more turn of each arm under tf.profiler."""
    collectives: Path | None = None
    """A folder of `tfdist collectives`, for the ceiling of the network; None: the measured links, if there are any."""

    @property
    def changes(self) -> dict[str, Any]:
        """Fields of the suite with the values that the user gave."""
        given = {
            "rounds": self.rounds,
            "seed": self.seed,
            "turn_s": self.turn_s,
            "incarnations": self.incarnations,
            "isolated": self.isolated or None,
            "explain": self.explain or None,
        }
        return {key: value for key, value in given.items() if value is not None}


def requested_suite(options: BenchOptions, default: str) -> tuple[Suite, tuple[str, ...]]:
    """The suite with the options applied, and notes about it.

    Raises:
        TfdistError: an error in the suite or an option.
    """
    return changed_suite(load_suite(options.suite or default), options)


def changed_suite(suite: Suite, options: BenchOptions) -> tuple[Suite, tuple[str, ...]]:
    """`suite` with the options applied, and notes about it.

    Raises:
        TfdistError: an option is wrong.
    """
    built_in = options.suite is None or options.suite in built_in_suites()
    narrowed, notes = with_command(narrow(suite, options.patterns, options.strategy), options.program, built_in)
    return adjust(narrowed, options.changes), notes
