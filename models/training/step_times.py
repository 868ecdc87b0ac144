"""When the local gradients of each step were ready, and when the step was done: the clock is read inside the step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfdist.models.training.stamps import stamp

MOST_STEPS = 1000
"""Steps of a turn at most; later ones are not recorded."""
DIGITS = 6
"""tf.timestamp counts microseconds."""


@dataclass
class StepTimes:
    """The stamps of a turn's steps. They stay in tensors until the turn is over."""

    strategy: tf.distribute.Strategy
    gpus: bool
    gradient_bytes: int
    """Bytes of all gradients of a replica, as they are exchanged."""
    steps: list[tuple[tuple[tf.Tensor, ...], tf.Tensor]] = field(default_factory=list)
    """Stamps of each step: of each replica of this task, and of its end."""

    def measured(self, step: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
        """A call with a source of batches and the number of steps, which is 1, that returns the losses.

        Args:
            step: from the source to the replicas' losses and the stamps of their gradients.
        """
        whole = tf.function(step)  # a function of its own: what depends on its result also waits for its updates

        @tf.function
        def stamped(source: Any) -> tuple[Any, Any, tf.Tensor]:
            losses, ready = whole(source)
            return losses, ready, stamp(self.strategy.experimental_local_results(losses), self.gpus)

        def call(source: Any, steps: int) -> Any:
            losses, ready, done = stamped(source)
            if len(self.steps) <= MOST_STEPS:
                self.steps.append((self.strategy.experimental_local_results(ready), done))
            return losses

        return call

    def take(self) -> dict[str, Any]:
        """JSON: `start` in seconds since 1970, and for each step since the last call the seconds since `start`.

        `ready` has a list for each replica of this task, `done` is the end of its update. The first step is the one
        before the windows: it only says when the first timed step began.
        """
        steps, self.steps = self.steps, []
        done = [float(end) for _, end in steps]
        start = done[0] if done else 0.0
        ready = [
            [round(float(each) - start, DIGITS) for each in row] for row in zip(*(row for row, _ in steps), strict=True)
        ]
        return {
            "start": start,
            "ready": ready,
            "done": [round(end - start, DIGITS) for end in done],
            "gradient_bytes": self.gradient_bytes,
        }


def gradient_bytes(model: tf.keras.Model, dtype: str) -> int:
    """The bytes of one replica's gradients in the type in which they are exchanged."""
    return sum(int(tf.size(weight)) for weight in model.trainable_weights) * int(tf.as_dtype(dtype).size)
