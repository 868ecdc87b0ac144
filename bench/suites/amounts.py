"""Checks of a bench's numbers: rounds, incarnations and seconds. Pure."""

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from tfdist.launch.errors import TfdistError

MOST_ROUNDS = 100_000
SetBy = Callable[[str, Any], str]
"""How a key was set to a value: `the suite x has rounds = 0`, `--rounds 0`."""


class Amounts(Protocol):
    """The numbers of a Suite."""

    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def incarnations(self) -> int: ...  # noqa: D102
    @property
    def turn_s(self) -> float: ...  # noqa: D102
    @property
    def warmup_s(self) -> float: ...  # noqa: D102
    @property
    def window_s(self) -> float: ...  # noqa: D102
    @property
    def timeout_s(self) -> float: ...  # noqa: D102


def check_amounts(amounts: Amounts, set_by: SetBy) -> None:
    """Refuse numbers that are out of range or contradict each other.

    Raises:
        TfdistError: for the first one.
    """
    if amounts.rounds < 1:
        raise TfdistError(f"{set_by('rounds', amounts.rounds)}: must be at least 1 (3 for a verdict)")
    if amounts.rounds > MOST_ROUNDS:
        raise TfdistError(f"{set_by('rounds', amounts.rounds)}: must be at most {MOST_ROUNDS:,}")
    if not 1 <= amounts.incarnations <= amounts.rounds:
        raise TfdistError(
            f"{set_by('incarnations', amounts.incarnations)}: must be 1 to the number of rounds, {amounts.rounds}"
        )
    for key in ("turn", "window", "timeout"):
        value = getattr(amounts, f"{key}_s")
        if not 0 < value < inf:
            raise TfdistError(f"{set_by(key, value)}: must be a positive number of seconds")
    if not 0 <= amounts.warmup_s < inf:
        raise TfdistError(f"{set_by('warmup', amounts.warmup_s)}: must be 0 seconds or more")
    if amounts.timeout_s <= amounts.turn_s:
        raise TfdistError(
            f"{set_by('turn', amounts.turn_s)}: must be shorter than the timeout of a turn, {amounts.timeout_s:g}"
        )
    if amounts.window_s > amounts.turn_s:
        raise TfdistError(
            f"{set_by('turn', amounts.turn_s)}: must be at least as long as a window, {amounts.window_s:g}"
        )
