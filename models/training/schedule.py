"""The windows of a training, and which of them are warm-up. Pure."""

from dataclasses import dataclass
from functools import cached_property

from tfdist.models.spec import TrainingSpec

_STABLE = 0.02
"""The step time is stable once two consecutive windows differ by at most this fraction."""


@dataclass(frozen=True)
class Schedule:
    """The sizes of all windows in steps. They sum to `spec.steps`."""

    windows: tuple[int, ...]
    warmup_steps: int
    """At least this many steps are warm-up, as far as `max_warmup` allows."""

    @cached_property
    def steps(self) -> int:
        """Number of steps of all windows together."""
        return sum(self.windows)

    @property
    def max_warmup(self) -> int:
        """The most windows that may be warm-up: together at most half of all steps."""
        half, done, count = self.steps / 2, 0, 0
        for size in self.windows:
            done += size
            if done > half:
                break
            count += 1
        return count

    def is_warm(self, times_s: tuple[float, ...]) -> bool:
        """Whether timing can start after warm-up windows of `times_s` seconds each.

        It can once `warmup_steps` steps are done and the last two times agree, or half of all steps are used up.
        """
        done = len(times_s)
        if done >= self.max_warmup or self.warmup_steps == 0:
            return True
        return sum(self.windows[:done]) >= self.warmup_steps and _stable(times_s)


def _stable(times_s: tuple[float, ...]) -> bool:
    # All windows but the last one have the same size, so their times are comparable.
    return len(times_s) >= 2 and abs(times_s[-1] - times_s[-2]) <= _STABLE * times_s[-2]


def schedule(spec: TrainingSpec) -> Schedule:
    """Windows of `spec.steps_per_window` steps and a remainder; smaller ones if the training would not fill two."""
    size = max(1, min(spec.steps_per_window, spec.steps // 2))
    whole, rest = divmod(spec.steps, size)
    return Schedule((size,) * whole + ((rest,) if rest else ()), spec.warmup_steps)
