"""The headline of a bench in numbers. Pure."""

from collections.abc import Iterator, Sequence

from tfdist.bench.report.format import interval
from tfdist.bench.report.headline import best_of
from tfdist.bench.report.page import KeyFigure
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.report.unit import in_unit
from tfdist.bench.statistics import ArmVerdict
from tfdist.launch.text import counted


def key_figures(rows: Sequence[ArmRow]) -> tuple[KeyFigure, ...]:
    """Figures of the fastest arm; empty in a report over several folders, or if no arm can be ranked."""
    best = best_of(rows) if len({row.folder for row in rows}) == 1 else None
    return tuple(_figures(best)) if best else ()


def _figures(best: ArmRow) -> Iterator[KeyFigure]:
    between = f" ({interval(best.spread, '.1f')})" if best.spread else ""
    unit = in_unit("images/s", [best])
    yield KeyFigure(f"{best.images_per_s:.1f} {unit}", f"whole job, {counted(best.devices or 0, 'device')}{between}")
    one, independent = best.one_device, best.independent
    if one and one.label != best.label:
        comparison = one.comparison
        between = f" ({interval(comparison.interval, '.2f')})" if comparison.interval else ""
        certain = comparison.verdict is not ArmVerdict.CANNOT_TELL
        verdict = f"measurably {comparison.verdict}" if certain else "no measurable difference"
        yield KeyFigure(f"{comparison.ratio:.2f} times", f"{one.label}{between}: {verdict}")
        yield KeyFigure(f"{one.efficiency:.0%}", f"efficiency against {one.label}")
    if independent and independent.label != best.label:
        yield KeyFigure(f"{independent.efficiency:.0%}", f"of {independent.label}, which exchanges nothing")
