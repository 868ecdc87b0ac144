"""What the launcher knows of a data set before any process starts. No TensorFlow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataInfo:
    """How many classes and examples a data set has; None: as many as are asked for."""

    classes: int | None
    train_examples: int | None
    test_examples: int
    """Held out, for `evaluate`; 0 if there is none."""


HELD_OUT = 10
"""Where a data set has no test part of its own, one example in HELD_OUT is held out."""
