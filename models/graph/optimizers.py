"""The optimizers of tf.compat.v1, and which of their variables are which of those of Keras' optimizers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfdist.models.spec import Optimizer, TrainingSpec

_train = tf.compat.v1.train
_BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}
_EPSILON = 1e-7  # of Keras; that of tf.compat.v1 is 1e-8


@dataclass(frozen=True)
class UpdateRule:
    """An optimizer that computes the same updates as Keras' one of that name."""

    build: Callable[[float], Any]
    """Builds the optimizer with a learning rate."""
    slots: tuple[str, ...] = ()
    """Its variables for each weight, in the order of Keras."""
    powers: Mapping[str, float] = field(default_factory=dict)
    """The bases of its other variables, by name: after t updates they hold the base to the power of t + 1."""


KINDS: Mapping[Optimizer, UpdateRule] = {
    Optimizer.ADAM: UpdateRule(
        lambda rate: _train.AdamOptimizer(rate, *_BETAS.values(), epsilon=_EPSILON), slots=("m", "v"), powers=_BETAS
    ),
    Optimizer.SGD: UpdateRule(_train.GradientDescentOptimizer),
}


def build(spec: TrainingSpec) -> Any:
    """The optimizer of `spec`, in the current graph."""
    return KINDS[spec.optimizer].build(spec.learning_rate)


def slots(spec: TrainingSpec, optimizer: Any, weights: Sequence[Any]) -> list[Any]:
    """The optimizer's variables for these weights, in the order of Keras' optimizers. Gradients have been applied."""
    return [optimizer.get_slot(weight, name) for name in KINDS[spec.optimizer].slots for weight in weights]


def powers(spec: TrainingSpec, optimizer: Any) -> list[tuple[Any, float]]:
    """The other variables of the optimizer, in the current graph, with their bases."""
    named = {variable.op.name.rpartition("/")[2]: variable for variable in optimizer.variables()}
    return [(named[name], base) for name, base in KINDS[spec.optimizer].powers.items()]
