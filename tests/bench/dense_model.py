"""The two-way model by dense pseudo-inverses: short, slow, and what design.py must agree with."""

from collections.abc import Hashable, Sequence

import numpy as np

from tfdist.bench.design import Design


def indicators(keys: Sequence[Hashable]) -> np.ndarray:
    """Rows x distinct keys, in order of appearance."""
    columns = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return np.eye(len(columns))[[columns[key] for key in keys]]


def columns(design: Design) -> np.ndarray:
    """Turns x effects of the arms and of the blocks."""
    arms, blocks = indicators([turn.arm for turn in design.turns]), indicators([turn.block for turn in design.turns])
    return np.hstack([arms, blocks if len(design.arms) > 1 else np.zeros_like(blocks)])


def weights(design: Design) -> np.ndarray:
    """Arms x turns: what each turn counts in an arm's mean."""
    blocks = len({turn.block for turn in design.turns})
    means = np.hstack([np.eye(len(design.arms)), np.full((len(design.arms), blocks), 1 / blocks)])
    return means @ np.linalg.pinv(columns(design))


def residual_maker(design: Design) -> np.ndarray:
    """Turns x turns: values -> residuals."""
    model = columns(design)
    return np.eye(len(model)) - model @ np.linalg.pinv(model)
