"""The size of a data set, known before any process starts. No TensorFlow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataInfo:
    """Number of classes and examples; None: as many as needed."""

    classes: int | None
    train_examples: int | None
    test_examples: int
    """Held-out examples, for `evaluate`."""


HELD_OUT = 10
"""One example in HELD_OUT is held out if a data set has no test split."""
