"""A training in graph mode, as its chief needs it."""

from dataclasses import dataclass
from typing import Any

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext


@dataclass(frozen=True)
class GraphContext(TrainingContext):
    """The chief trains nothing itself: `strategy` is TensorFlow's default one, of its copies of the variables."""

    server: Any = None
    """This task's tf.distribute.Server."""

    @property
    def batch(self) -> int:
        """Examples in a step of all workers that step together, or of one that steps alone."""
        return batch_of(self.spec)


def batch_of(spec: TrainingSpec) -> int:
    """Examples of one update."""
    return spec.global_batch_size if spec.synchronous else spec.batch_size
