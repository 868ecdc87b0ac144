"""Which turns were measured, and what they say about each arm: the two-way model of their values. Pure.

Least squares on an effect of each level (an arm, or a start) and of each block. Blocks are few and levels many, so the
levels are eliminated from the normal equations first: no matrix is larger than levels x blocks.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Codes = NDArray[np.intp]

Arm = TypeVar("Arm", bound=Hashable)


@dataclass(frozen=True)
class Projection:
    """The model of these turns."""

    levels: "Codes"
    """Level of each turn, counted from 0."""
    blocks: "Codes"
    """Block of each turn, counted from 0; a single one has no effect."""

    @cached_property
    def df(self) -> int:
        """Degrees of freedom of the residuals."""
        return len(self.levels) - len(self.level_turns) - len(self._kept)

    def effects(self, values: "Array") -> "tuple[Array, Array]":
        """Those of the levels and of the blocks, up to a constant that moves between them within connected turns."""
        import numpy as np

        of_levels = np.bincount(self.levels, values)
        blocks = self.inverse @ (np.bincount(self.blocks, values) - self.shares.T @ of_levels)
        return of_levels / self.level_turns - self.shares @ blocks, blocks

    def residuals(self, values: "Array") -> "Array":
        """What the model leaves of each turn."""
        levels, blocks = self.effects(values)
        rest: Array = values - levels[self.levels] - blocks[self.blocks]
        return rest

    @cached_property
    def freedom(self) -> "Array":
        """The part of a degree of freedom that each turn's residual has, 0 to 1; their sum is `df`."""
        spread = self.shares @ self.inverse
        of_level = 1 / self.level_turns + (spread * self.shares).sum(axis=1)
        used = of_level[self.levels] - 2 * spread[self.levels, self.blocks] + self.inverse.diagonal()[self.blocks]
        free: Array = 1 - used
        return free

    @cached_property
    def level_turns(self) -> "Array":
        """The number of turns of each level."""
        import numpy as np

        return np.bincount(self.levels).astype(np.float64)

    @cached_property
    def shares(self) -> "Array":
        """Levels x blocks: the part of a level's turns in each block."""
        return self._table / self.level_turns[:, None]

    @cached_property
    def inverse(self) -> "Array":
        """Blocks x blocks: a generalized inverse of the normal equations without the levels."""
        import numpy as np

        turns = self._table.sum(axis=0)
        normal = (np.diag(turns) - self._table.T @ self.shares)[np.ix_(self._kept, self._kept)]
        inverse = np.zeros((len(turns), len(turns)))
        inverse[np.ix_(self._kept, self._kept)] = np.linalg.inv(normal)
        return inverse

    @cached_property
    def _table(self) -> "Array":
        """Levels x blocks: the number of turns."""
        import numpy as np

        rows, columns = int(self.levels.max()) + 1, int(self.blocks.max()) + 1
        cells = np.bincount(self.levels * columns + self.blocks, minlength=rows * columns)
        return cells.astype(np.float64).reshape(rows, columns)

    @cached_property
    def _kept(self) -> "Codes":
        """All blocks but the first of each connected set: its effect cannot be separated from those of its levels."""
        import numpy as np

        _, of_blocks = connected_sets(self.levels, self.blocks)
        kept: Codes = np.setdiff1d(np.arange(len(of_blocks)), np.unique(of_blocks, return_index=True)[1])
        return kept


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


@dataclass(frozen=True, order=True)
class Block:
    """The turns of different arms that were measured one after the other: the machine's drift hits all alike."""

    group: int
    """Number of the group of arms that are alive at the same time."""
    round: int
    incarnation: int
    """The start of the processes that the turns belong to; if each turn has fresh processes, the round."""
    folder: str = ""
    """Folder, in a report over several, and whatever else separates arms whose turns did not alternate."""


@dataclass(frozen=True)
class BlockTurn(Generic[Arm]):
    """One arm's turn in a block."""

    arm: Arm
    block: Block


@dataclass(frozen=True)
class Design(Generic[Arm]):
    """Turns of arms that are connected through common blocks, for value = arm + block + rest."""

    turns: tuple[BlockTurn[Arm], ...]

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """The arms, in the order of their first turn."""
        return tuple(dict.fromkeys(turn.arm for turn in self.turns))

    @cached_property
    def arm_of(self) -> "Codes":
        """The index of each turn's arm."""
        return _codes(turn.arm for turn in self.turns)

    @cached_property
    def rest(self) -> Projection:
        """The fit. The drift of a single arm cannot be separated from the rest: its blocks have no effect."""
        blocks = _codes(turn.block for turn in self.turns)
        return Projection(self.arm_of, blocks if len(self.arms) > 1 else 0 * blocks)

    def figures(self, values: "Array") -> "Array":
        """Each arm's mean over all blocks.

        In a balanced design that is the mean of the arm's own turns. Otherwise the model fills what is missing.
        """
        arms, blocks = self.rest.effects(values)
        means: Array = arms + blocks.mean()
        return means

    def weights(self, arm: int) -> "Array":
        """What each turn counts in an arm's mean."""
        import numpy as np

        fit = self.rest
        own = np.zeros(len(self.arms))
        own[arm] = 1 / fit.level_turns[arm]
        blocks = fit.inverse @ (1 / len(fit.inverse) - fit.shares[arm])
        weights: Array = (own - fit.shares @ blocks)[self.arm_of] + blocks[fit.blocks]
        return weights


def connected(values: Mapping[Arm, Mapping[Block, float]]) -> tuple[Design[Arm], ...]:
    """One design for each set of arms that are connected through common blocks; arms without a turn are in none."""
    turns = tuple(BlockTurn(arm, block) for arm, blocks in values.items() for block in sorted(blocks))
    return _designs(turns) if turns else ()


@lru_cache(maxsize=16)
def _designs(turns: tuple[BlockTurn[Arm], ...]) -> tuple[Design[Arm], ...]:
    """Cached with their matrices: a report fits several models to the same turns, a simulation thousands."""
    arm_of, block_of = _codes(turn.arm for turn in turns), _codes(turn.block for turn in turns)
    of_arms, _ = connected_sets(arm_of, block_of)
    sets: dict[int, list[BlockTurn[Arm]]] = {}
    for turn, arm in zip(turns, arm_of, strict=True):
        sets.setdefault(int(of_arms[arm]), []).append(turn)
    return tuple(Design(tuple(each)) for each in sets.values())


def _codes(keys: Iterable[Hashable]) -> "Codes":
    """Equal keys have the same number, counted from 0 in order of appearance."""
    import numpy as np

    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
