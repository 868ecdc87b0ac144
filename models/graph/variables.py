"""The variables of a graph, and copies of them in this process: those are saved, restored and evaluated.

The optimizers of tf.compat.v1 compute the same updates as Keras' of the same names, and their variables map to Keras'.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.models.training import moving_averages, optimizers, restore
from tfdist.models.training.context import TrainingContext

_BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}
"""Adam's variables besides its slots: after t updates they hold this base to the power of t + 1."""
_OPTIMIZERS: Mapping[Optimizer, Callable[[float], Any]] = {
    # Keras' epsilon; that of tf.compat.v1 is 1e-8
    Optimizer.ADAM: lambda rate: tf.compat.v1.train.AdamOptimizer(rate, *_BETAS.values(), epsilon=1e-7),
    Optimizer.SGD: tf.compat.v1.train.GradientDescentOptimizer,
}


def build_optimizer(spec: TrainingSpec) -> Any:
    """The optimizer of `spec`, in the current graph."""
    return _OPTIMIZERS[spec.optimizer](spec.learning_rate)


def slots_of(optimizer: Any, weights: Sequence[Any]) -> list[Any]:
    """The optimizer's variables for these weights, in the order of Keras' optimizers. Gradients have been applied."""
    return [optimizer.get_slot(weight, name) for name in optimizer.get_slot_names() for weight in weights]


def powers_of(optimizer: Any) -> list[tuple[Any, float]]:
    """The other variables of the optimizer, in the current graph, with their bases."""
    named = [(variable.op.name.rpartition("/")[2], variable) for variable in optimizer.variables()]
    return [(variable, _BETAS[name]) for name, variable in named if name in _BETAS]


@dataclass(frozen=True)
class Variables:
    """What a training needs to continue."""

    weights: Sequence[Any]
    """Weights of the model; shards count each."""
    slots: Sequence[Any]
    """Slots of the optimizer, in the order of Keras' one."""
    powers: Sequence[tuple[Any, float]]
    """The other variables of the optimizer, with their bases."""
    averages: Sequence[Any]
    """The moving averages of the trainable weights; empty: there are none."""
    step: tf.Variable
    """Number of updates."""
    values: Sequence[tf.Tensor]
    """Values of the weights, the slots, the averages and the step."""


def averages_of(spec: TrainingSpec) -> Any:
    """What keeps the moving averages in a graph; None: nothing does."""
    return None if spec.ema is None else tf.train.ExponentialMovingAverage(spec.ema)


def variables_of(model: Any, optimizer: Any, kept: Any, step: tf.Variable) -> Variables:
    """The variables of a training in the current graph.

    Args:
        model: of tf_keras.
        optimizer: of tf.compat.v1; its gradients have been applied.
        kept: an `averages_of` that has been applied.
        step: the number of updates.
    """
    slots = slots_of(optimizer, model.trainable_weights)
    averages = [] if kept is None else [kept.average(weight) for weight in model.trainable_weights]
    values = [variable.read_value() for variable in (*model.weights, *slots, *averages, step)]
    return Variables(model.weights, slots, powers_of(optimizer), averages, step, values)


@dataclass(frozen=True)
class Copies:
    """A Keras model and its optimizer, of eager mode."""

    model: tf.keras.Model
    optimizer: Any
    averages: moving_averages.MovingAverages | None

    def upload(self, session: Any, variables: Variables, step: int, others: Sequence[tuple[Any, Any]] = ()) -> None:
        """Initialize the variables of the session's graph with the copies.

        Args:
            session: of the graph.
            variables: of the graph.
            step: number of updates so far.
            others: the other variables of the graph, each with a value.
        """
        averages = [] if self.averages is None else [average.numpy() for average in self.averages.averages]
        values = (
            *_pairs(variables.weights, self.model.get_weights()),
            *_pairs(variables.slots, self.optimizer.get_weights()[1:]),  # the first one is the number of updates
            *_pairs(variables.averages, averages),
            *((power, base ** (step + 1)) for power, base in variables.powers),
            (variables.step, step),
            *others,
        )
        # what would initialize a variable is replaced by its value
        feed = {variable.initializer.inputs[1]: value for variable, value in values}
        session.run([variable.initializer for variable, _ in values], feed)

    def download(self, session: Any, variables: Variables) -> int:
        """Copy the values from the session; returns the number of updates."""
        values = session.run([*variables.values])
        weights = len(variables.weights)
        slots = len(variables.weights) + len(variables.slots)
        self.model.set_weights(moving_averages.cut(values[:weights], self.model.weights))
        state = moving_averages.cut(values[weights:slots], self.optimizer.get_weights()[1:])
        self.optimizer.set_weights([values[-1], *state])
        if self.averages is not None:
            moving_averages.assign(self.averages.averages, values[slots:-1])
        return int(values[-1])


def copies(job: TrainingContext) -> Copies:
    """The model and the optimizer with which every strategy starts, or those of the checkpoint.

    Build the graph before: Keras turns its classes into those of the mode in which it created a layer last.
    """
    tf.keras.utils.set_random_seed(job.spec.seed)
    model = build_model(job.spec)
    optimizer = optimizers.build(job.spec, model)
    averages = moving_averages.create(job.spec.ema, model)
    restore.restore(job, model, optimizer, averages)
    return Copies(model, optimizer, averages)


def _pairs(variables: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each variable, or shard of one, with its value from those of the whole ones."""
    return list(zip(variables, moving_averages.cut(values, variables), strict=True))
