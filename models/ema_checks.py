"""Checks of the decay of moving averages."""

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted
from tfdist.models.spec import TrainingSpec

INITIAL_SHARE = 0.1
"""Share of the initial weights in the averages, above which a warning is printed."""


def check_ema(spec: TrainingSpec) -> None:
    """Refuse a decay outside of 0..1.

    Raises:
        TfdistError: it is.
    """
    if spec.ema is not None and not 0.0 < spec.ema < 1.0:
        raise TfdistError(
            f"--ema {spec.ema:g}: must be more than 0 and less than 1, as 0.999; omit it to keep no averages"
        )


def ema_warnings(spec: TrainingSpec) -> tuple[str, ...]:
    """Averages that keep much of the initial weights, whose share in them is `decay ** steps`."""
    initial = 0.0 if spec.ema is None else spec.ema**spec.steps
    if initial <= INITIAL_SHARE or not spec.evaluate:
        return ()
    return (
        f"--ema {spec.ema:g}: after {counted(spec.steps, 'step')} the averages are {initial:.0%} initial weights, so "
        "the accuracy will be too low; use a lower decay or more --steps",
    )
