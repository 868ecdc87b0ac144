"""An arm that learns, with where it reached an accuracy."""

from dataclasses import dataclass

from tfdist.bench.learning import AccuracyReach, Curve
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.seeds import OverSeeds, over_seeds


@dataclass(frozen=True)
class Learner:
    """An arm whose turns were evaluated."""

    row: ArmRow
    curves: tuple[Curve, ...]
    reached: AccuracyReach

    @property
    def examples(self) -> OverSeeds | None:
        """Examples until the accuracy; None: some seed did not reach it."""
        return over_seeds(list(self.reached.examples.values())) if self.reached.complete else None

    @property
    def seconds(self) -> OverSeeds | None:
        """Seconds until the accuracy; None: some seed did not reach it."""
        return over_seeds(list(self.reached.seconds.values())) if self.reached.complete else None
