"""Which turns were measured, and what they say about each arm: the two-way model of log throughputs. Pure.

Least squares on an effect of each level (an arm, or a start) and of each block. Blocks are few and levels many, so the
levels are eliminated from the normal equations first: no matrix is larger than levels x blocks.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Codes = NDArray[np.intp]
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Projection:
    """The model of these turns; each turn counts by the inverse square of its spread."""

    levels: "Codes"
    """Level of each turn, counted from 0."""
    blocks: "Codes | None"
    """Block of each turn, counted from 0; None: blocks have no effect."""
    spreads: "Array"
    """Spread of each turn."""

    @cached_property
    def df(self) -> int:
        """Degrees of freedom of the residuals."""
        free = len(self._kept) if self.blocks is not None else 0
        return len(self.levels) - len(self.level_weights) - free

    def effects(self, logs: "Array") -> "tuple[Array, Array]":
        """Those of the levels and of the blocks, up to a constant that moves between them within connected turns."""
        import numpy as np

        of_levels = np.bincount(self.levels, self._weights * logs)
        if self.blocks is None:
            return of_levels / self.level_weights, np.zeros(1)
        of_blocks = np.bincount(self.blocks, self._weights * logs)
        blocks = self.inverse @ (of_blocks - self.shares.T @ of_levels)
        return of_levels / self.level_weights - self.shares @ blocks, blocks

    def residuals(self, logs: "Array") -> "Array":
        """What the model leaves of each turn, over its spread."""
        levels, blocks = self.effects(logs)
        of_turns = 0.0 if self.blocks is None else blocks[self.blocks]
        rest: Array = (logs - levels[self.levels] - of_turns) / self.spreads
        return rest

    @cached_property
    def freedom(self) -> "Array":
        """The part of a degree of freedom that each turn's residual has, 0 to 1; their sum is `df`."""
        used = 1 / self.level_weights[self.levels]
        if self.blocks is not None:
            spread = self.shares @ self.inverse
            of_level = (spread * self.shares).sum(axis=1)
            used = used + of_level[self.levels] - 2 * spread[self.levels, self.blocks]
            used = used + self.inverse.diagonal()[self.blocks]
        free: Array = 1 - self._weights * used
        return free

    def squares_left_of(self, starts: "Codes") -> float:
        """The sum of squares that the model leaves of the indicators of the starts, which are parts of levels."""
        import numpy as np

        weights = np.bincount(starts, self._weights)
        level = np.zeros(len(weights), dtype=np.intp)
        level[starts] = self.levels
        fitted = weights**2 / self.level_weights[level]
        if self.blocks is not None:
            table = _table(starts, self.blocks, self._weights) - self.shares[level] * weights[:, None]
            fitted = fitted + ((table @ self.inverse) * table).sum(axis=1)
        return float((weights - fitted).sum())

    @cached_property
    def _weights(self) -> "Array":
        weights: Array = self.spreads**-2
        return weights

    @cached_property
    def level_weights(self) -> "Array":
        """The weight of all turns of each level."""
        import numpy as np

        return np.bincount(self.levels, self._weights).astype(np.float64)

    @cached_property
    def shares(self) -> "Array":
        """Levels x blocks: the part of a level's weight in each block."""
        return self._table / self.level_weights[:, None]

    @cached_property
    def inverse(self) -> "Array":
        """Blocks x blocks: a generalized inverse of the normal equations without the levels."""
        import numpy as np

        weights = self._table.sum(axis=0)
        normal = (np.diag(weights) - self._table.T @ self.shares)[np.ix_(self._kept, self._kept)]
        scale = np.sqrt(weights[self._kept])
        inverse = np.zeros((len(weights), len(weights)))
        inverse[np.ix_(self._kept, self._kept)] = np.linalg.inv(normal / np.outer(scale, scale)) / np.outer(
            scale, scale
        )
        return inverse

    @cached_property
    def _table(self) -> "Array":
        """Levels x blocks: weights."""
        return _table(self.levels, self._blocks, self._weights)

    @cached_property
    def _kept(self) -> "Codes":
        """All blocks but the first of each connected set: its effect cannot be told from those of its levels."""
        import numpy as np

        _, of_blocks = connected_sets(self.levels, self._blocks)
        kept: Codes = np.setdiff1d(np.arange(len(of_blocks)), np.unique(of_blocks, return_index=True)[1])
        return kept

    @property
    def _blocks(self) -> "Codes":
        if self.blocks is None:
            raise AssertionError("blocks have no effect here")
        return self.blocks


def connected_sets(levels: "Codes", blocks: "Codes") -> "tuple[Codes, Codes]":
    """The number of the set of each level and of each block: those that turns connect are in one."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first = int(levels.max()) + 1
    size = first + int(blocks.max()) + 1
    links = coo_array((np.ones(len(levels)), (levels, first + blocks)), shape=(size, size))
    _, sets = connected_components(links, directed=False)
    return sets[:first], sets[first:]


def _table(levels: "Codes", blocks: "Codes", weights: "Array") -> "Array":
    """Levels x blocks: the weights of the turns in each cell."""
    import numpy as np

    rows, columns = int(levels.max()) + 1, int(blocks.max()) + 1
    cells = np.bincount(levels * columns + blocks, weights, minlength=rows * columns)
    return cells.astype(np.float64).reshape(rows, columns)


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
