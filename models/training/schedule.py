"""How the steps of a training are cut into windows, and which of them are warm-up. Pure."""

from dataclasses import dataclass

from tfdist.models.spec import TrainingSpec

STEADY = 0.02
"""The pace is steady once two windows in a row differ by no more than this fraction."""


@dataclass(frozen=True)
class Schedule:
    """The sizes (steps) of all windows, in order; together they are exactly `spec.steps`."""

    windows: tuple[int, ...]
    warmup_steps: int
    """So many steps are warm-up at least, as far as `most_warmup` allows."""

    @property
    def most_warmup(self) -> int:
        """The number of windows that may be warm-up: together at most half of all steps."""
        half, done, count = sum(self.windows) / 2, 0, 0
        for size in self.windows:
            done += size
            if done > half:
                break
            count += 1
        return count

    def is_warm(self, times_s: tuple[float, ...]) -> bool:
        """Whether timing may begin after warm-up windows that took `times_s` seconds each.

        It may once `warmup_steps` steps are done and the last two windows' times agree, or the warm-up has used up its
        half.
        """
        done = len(times_s)
        if done >= self.most_warmup or self.warmup_steps == 0:
            return True
        return sum(self.windows[:done]) >= self.warmup_steps and _agree(times_s)


def _agree(times_s: tuple[float, ...]) -> bool:
    # All windows but the very last one have the same size, so that times compare like paces.
    return len(times_s) >= 2 and abs(times_s[-1] - times_s[-2]) <= STEADY * times_s[-2]


def schedule(spec: TrainingSpec) -> Schedule:
    """Windows of `spec.steps_per_window` steps and a rest; smaller ones where the training would not fill two."""
    size = max(1, min(spec.steps_per_window, spec.steps // 2))
    whole, rest = divmod(spec.steps, size)
    return Schedule((size,) * whole + ((rest,) if rest else ()), spec.warmup_steps)
