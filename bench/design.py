"""Which turns were measured, and what they say about each arm: the design of the two-way model. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Block:
    """The turns of different arms that were measured one after the other: the machine's drift hits all alike."""

    group: int
    """Of arms that are alive at the same time."""
    round: int
    incarnation: int
    """The start of the processes that the turns belong to; if each turn has fresh processes, the round."""
    folder: str = ""
    """In a report over several: turns of different folders did not alternate."""


@dataclass(frozen=True)
class Turn:
    """One arm's turn in a block."""

    arm: str
    block: Block


@dataclass(frozen=True)
class Design:
    """Turns of arms that are connected through common blocks, for log throughput = arm + block + rest."""

    turns: tuple[Turn, ...]

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """In the order of their first turn."""
        return tuple(dict.fromkeys(turn.arm for turn in self.turns))

    @cached_property
    def weights(self) -> "Array":
        """Arms x turns: what each turn counts in an arm's log figure, its mean over all blocks.

        In a balanced design that is the mean of the arm's own turns. Otherwise the model fills what is missing.
        """
        import numpy as np

        blocks = len({turn.block for turn in self.turns})
        means = np.hstack([np.eye(len(self.arms)), np.full((len(self.arms), blocks), 1 / blocks)])
        weights: Array = means @ np.linalg.pinv(self._arms_and_blocks)
        return weights

    @cached_property
    def by_arm(self) -> "Array":
        """Turns x arms, 1 where the turn is the arm's."""
        return _indicators([turn.arm for turn in self.turns])

    @cached_property
    def by_start(self) -> "Array":
        """Turns x starts of an arm's processes."""
        return _indicators([(turn.arm, turn.block.group, turn.block.incarnation) for turn in self.turns])

    @cached_property
    def rest(self) -> "Array":
        """`residuals` for equal spreads."""
        return self.residuals(None, within_starts=False)

    @cached_property
    def rest_within_starts(self) -> "Array":
        """`residuals` for equal spreads, with an effect of each start."""
        return self.residuals(None, within_starts=True)

    def residuals(self, spreads: "Array | None", within_starts: bool) -> "Array":
        """Turns x turns: log throughputs, each over its arm's spread, -> residuals of arm + block.

        Within starts: of each start of each arm + block. The trace is the number of degrees of freedom.
        """
        import numpy as np

        columns = self._with_blocks(self.by_start) if within_starts else self._arms_and_blocks
        if spreads is not None:
            columns = columns / (self.by_arm @ spreads)[:, None]
        maker: Array = np.eye(len(columns)) - columns @ np.linalg.pinv(columns)
        return maker

    @cached_property
    def _arms_and_blocks(self) -> "Array":
        return self._with_blocks(self.by_arm)

    def _with_blocks(self, columns: "Array") -> "Array":
        """Of a single arm the drift cannot be told from the rest: its blocks have no effect of their own."""
        import numpy as np

        blocks = _indicators([turn.block for turn in self.turns])
        return np.hstack([columns, blocks if len(self.arms) > 1 else np.zeros_like(blocks)])


def connected(rounds: Mapping[str, Mapping[Block, float]]) -> tuple[Design, ...]:
    """One design for each set of arms that are connected through common blocks; arms without a turn are in none."""
    sets: list[set[str]] = []
    for arm, blocks in rounds.items():
        near = [arms for arms in sets if any(blocks.keys() & rounds[other].keys() for other in arms)]
        if blocks:
            sets = [arms for arms in sets if arms not in near] + [{arm}.union(*near)]
    return tuple(
        _design(tuple(Turn(arm, block) for arm in rounds if arm in arms for block in sorted(rounds[arm])))
        for arms in sets
    )


@lru_cache(maxsize=4)
def _design(turns: tuple[Turn, ...]) -> Design:
    """Cached with its matrices: a report fits several models to the same turns, a simulation thousands."""
    return Design(turns)


def _indicators(keys: Sequence[Hashable]) -> "Array":
    """Rows x distinct keys, in order of appearance."""
    import numpy as np

    columns = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return np.eye(len(columns))[[columns[key] for key in keys]]
