"""The two-way model by dense pseudo-inverses: short, slow, and what projection.py must agree with."""

from collections.abc import Hashable, Sequence

import numpy as np

from tfdist.bench.design import Design


def indicators(keys: Sequence[Hashable]) -> np.ndarray:
    """Rows x distinct keys, in order of appearance."""
    columns = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return np.eye(len(columns))[[columns[key] for key in keys]]


def columns(design: Design, within_starts: bool) -> np.ndarray:
    """Turns x effects of the levels and of the blocks."""
    starts = [(turn.arm, turn.block.group, turn.block.incarnation) for turn in design.turns]
    levels = indicators(starts if within_starts else [turn.arm for turn in design.turns])
    blocks = indicators([turn.block for turn in design.turns])
    return np.hstack([levels, blocks if len(design.arms) > 1 else np.zeros_like(blocks)])


def weights(design: Design) -> np.ndarray:
    """Arms x turns: what each turn counts in an arm's log figure."""
    blocks = len({turn.block for turn in design.turns})
    means = np.hstack([np.eye(len(design.arms)), np.full((len(design.arms), blocks), 1 / blocks)])
    return means @ np.linalg.pinv(columns(design, within_starts=False))


def residual_maker(design: Design, spreads: np.ndarray, within_starts: bool) -> np.ndarray:
    """Turns x turns: log throughputs, each over its arm's spread, -> residuals."""
    arms = indicators([turn.arm for turn in design.turns])
    scaled = columns(design, within_starts) / (arms @ spreads)[:, None]
    return np.eye(len(scaled)) - scaled @ np.linalg.pinv(scaled)
