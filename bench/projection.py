"""Least squares of log throughputs on an effect of each level (an arm, or a start) and of each block. Pure.

Blocks are few and levels many, so the levels are eliminated from the normal equations first: no matrix is larger than
levels x blocks.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Codes = NDArray[np.intp]


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
