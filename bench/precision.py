"""How sure the ratios of a bench are, for --precision, which adds starts until all are sure enough."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.summary import statistics_of
from tfdist.bench.statistics import ERROR, Pair
from tfdist.launch.errors import TfdistError
from tfdist.models.record import RecordStatus


def half_widths(root: Path, pairs: Sequence[Pair]) -> Mapping[str, float]:
    """Half of the 95 % interval of each ratio, as a share of the ratio, by arm; infinite without an interval.

    Each interval is that of its ratio alone: unlike in a report, none is wider because there are several. Arms that
    failed, which get no more turns, and those without a turn are missing.
    """
    folder = read_folder(root, "")
    arms = [arm for arm in arms_of([folder]) if arm.rates]
    alive = {arm.arm for arm in arms if {record.status for record in arm.records} == {RecordStatus.OK}}
    statistics = statistics_of(arms, [folder])
    widths = {}
    for arm, baseline in pairs:
        if {arm, baseline} <= alive:
            interval = statistics.ratio(arm, baseline).interval(ERROR)
            widths[arm] = math.sqrt(interval.high / interval.low) - 1 if interval else math.inf
    return widths


def check_precision(precision: float, pairs: int, floor: float) -> None:
    """Refuse a precision that no number of starts reaches, or for which there is nothing to compare.

    Raises:
        TfdistError: with a way out.
    """
    from scipy.special import ndtri  # slow to import, and not needed by a launch

    option = f"--precision {100 * precision:.3g}%"
    if not pairs:
        raise TfdistError(f"{option}: only one arm can run here, and has no ratio; add arms, or omit it")
    least = float(ndtri(1 - ERROR / 2)) * floor
    if math.log1p(precision) <= least:
        what = f"ratios of equal arms differ by up to {100 * least:.2g}%, however long they are measured"
        raise TfdistError(f"{option}: {what}; give at least {math.ceil(100 * least) + 1}%")
