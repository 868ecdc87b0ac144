"""Which turns were measured, and what they say about each arm: the design of the two-way model. Pure."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tfdist.bench.projection import Projection, connected_sets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Codes = NDArray[np.intp]


@dataclass(frozen=True, order=True)
class Block:
    """The turns of different arms that were measured one after the other: the machine's drift hits all alike."""

    group: int
    """Number of the group of arms that are alive at the same time."""
    round: int
    incarnation: int
    """The start of the processes that the turns belong to; if each turn has fresh processes, the round."""
    folder: str = ""
    """Folder, in a report over several: turns of different folders did not alternate."""


@dataclass(frozen=True)
class BlockTurn:
    """One arm's turn in a block."""

    arm: str
    block: Block


@dataclass(frozen=True)
class Design:
    """Turns of arms that are connected through common blocks, for log throughput = arm + block + rest."""

    turns: tuple[BlockTurn, ...]

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, in the order of their first turn."""
        return tuple(dict.fromkeys(turn.arm for turn in self.turns))

    @cached_property
    def arm_of(self) -> "Codes":
        """The index of each turn's arm."""
        return _codes(turn.arm for turn in self.turns)

    @cached_property
    def start_of(self) -> "Codes":
        """A number for the start of processes that each turn belongs to, counted from 0."""
        return _codes((turn.arm, turn.block.group, turn.block.incarnation) for turn in self.turns)

    @cached_property
    def rest(self) -> Projection:
        """`fit` for equal spreads."""
        return self.fit(None, within_starts=False)

    @cached_property
    def rest_within_starts(self) -> Projection:
        """`fit` for equal spreads, with an effect of each start."""
        return self.fit(None, within_starts=True)

    def fit(self, spreads: "Array | None", within_starts: bool) -> Projection:
        """The model arm + block, with a spread for each arm; within starts: each start of each arm + block.

        Of a single arm the drift cannot be told from the rest: its blocks have no effect of their own.
        """
        import numpy as np

        levels = self.start_of if within_starts else self.arm_of
        of_turns = np.ones(len(self.turns)) if spreads is None else spreads[self.arm_of]
        return Projection(levels, self._block_of if len(self.arms) > 1 else None, of_turns)

    def figures(self, logs: "Array") -> "Array":
        """Each arm's log figure, its mean over all blocks.

        In a balanced design that is the mean of the arm's own turns. Otherwise the model fills what is missing.
        """
        arms, blocks = self.rest.effects(logs)
        means: Array = arms + blocks.mean()
        return means

    def weights(self, arm: int) -> "Array":
        """What each turn counts in an arm's log figure."""
        import numpy as np

        fit = self.rest
        own = np.zeros(len(self.arms))
        own[arm] = 1 / fit.level_weights[arm]
        if fit.blocks is None:
            return own[self.arm_of]
        blocks = fit.inverse @ (1 / len(fit.inverse) - fit.shares[arm])
        weights: Array = (own - fit.shares @ blocks)[self.arm_of] + blocks[fit.blocks]
        return weights

    @cached_property
    def _block_of(self) -> "Codes":
        return _codes(turn.block for turn in self.turns)


def connected(rounds: Mapping[str, Mapping[Block, float]]) -> tuple[Design, ...]:
    """One design for each set of arms that are connected through common blocks; arms without a turn are in none."""
    turns = [BlockTurn(arm, block) for arm, blocks in rounds.items() for block in sorted(blocks)]
    if not turns:
        return ()
    arm_of, block_of = _codes(turn.arm for turn in turns), _codes(turn.block for turn in turns)
    of_arms, _ = connected_sets(arm_of, block_of)
    sets: dict[int, list[BlockTurn]] = {}
    for turn, arm in zip(turns, arm_of, strict=True):
        sets.setdefault(int(of_arms[arm]), []).append(turn)
    return tuple(_design(tuple(each)) for each in sets.values())


@lru_cache(maxsize=4)
def _design(turns: tuple[BlockTurn, ...]) -> Design:
    """Cached with its matrices: a report fits several models to the same turns, a simulation thousands."""
    return Design(turns)


def _codes(keys: Iterable[Hashable]) -> "Codes":
    """Equal keys have the same number, counted from 0 in order of appearance."""
    import numpy as np

    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
