"""The columns of a table of collectives, in the words of the NCCL tests. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.bench.collectives.figures import SizeFigure, figures_of
from tfdist.bench.collectives.results import Sweep
from tfdist.launch.quantities import size_text


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    unit: str
    """Empty: none."""
    value: Callable[[SizeFigure], Any]
    """The exact value, None if it is unknown."""
    text: Callable[[SizeFigure], str]
    """What readers see."""

    @property
    def title(self) -> str:
        """`time (us)`."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def significant(value: float, digits: int = 3) -> str:
    """`0.00123`, `12.0` or `1234`: `digits` significant digits or all before the point, never a power of ten."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def _interval(figure: SizeFigure) -> str:
    interval = figure.busbw_interval
    return "" if interval is None else f"{significant(interval.low)} to {significant(interval.high)}"


ARM = Column("arm", "", lambda figure: figure.line.arm, lambda figure: figure.line.arm)
RANKS = Column("ranks", "", lambda figure: figure.line.ranks, lambda figure: str(figure.line.ranks))
SIZE = Column("size", "B", lambda figure: figure.line.bytes, lambda figure: str(figure.line.bytes))
COUNT = Column("count", "elements", lambda figure: figure.count, lambda figure: str(figure.count))
TYPE = Column("type", "", lambda figure: figure.line.dtype, lambda figure: figure.line.dtype)
REDOP = Column(
    "redop",
    "",
    lambda figure: "sum" if figure.line.op.reduces else "none",
    lambda figure: "sum" if figure.line.op.reduces else "none",
)
TENSORS = Column("tensors", "", lambda figure: figure.line.tensors, lambda figure: str(figure.line.tensors))
PACKS = Column("packs", "B", lambda figure: figure.line.pack_bytes, lambda figure: _packs(figure))
TIME = Column("time", "us", lambda figure: figure.seconds * 1e6, lambda figure: significant(figure.seconds * 1e6, 4))
ALGBW = Column("algbw", "GB/s", lambda figure: figure.algbw, lambda figure: significant(figure.algbw))
BUSBW = Column("busbw", "GB/s", lambda figure: figure.busbw, lambda figure: significant(figure.busbw))
INTERVAL = Column("95 % interval", "GB/s", lambda figure: None, _interval)
WRONG = Column("#wrong", "", lambda figure: figure.wrong, lambda figure: str(figure.wrong))


def _packs(figure: SizeFigure) -> str:
    return pack_text(figure.line.pack_bytes) if figure.line.tensors > 1 else ""


def pack_text(pack_bytes: int | None) -> str:
    """`one` pack for all tensors, or the size of several: `4M`."""
    return "one" if pack_bytes is None else size_text(pack_bytes)


def values_of(figure: SizeFigure) -> dict[str, Any]:
    """The exact values, units in the names; None: unknown, or it does not apply."""
    line, seconds, busbw = figure.line, figure.interval, figure.busbw_interval
    return {
        "arm": line.arm,
        "op": str(line.op),
        "communication": line.communication,
        "cross_device": line.cross_device,
        "hosts": line.hosts,
        "ranks": line.ranks,
        "size_bytes": line.bytes,
        "count": figure.count,
        "type": line.dtype,
        "redop": REDOP.value(figure),
        "tensors": line.tensors,
        "pack_bytes": line.pack_bytes,
        "rounds": figure.rounds,
        "time_us": figure.seconds * 1e6,
        "time_us_low": seconds.low * 1e6 if seconds else None,
        "time_us_high": seconds.high * 1e6 if seconds else None,
        "algbw_gb_per_s": figure.algbw,
        "busbw_gb_per_s": figure.busbw,
        "busbw_gb_per_s_low": busbw.low if busbw else None,
        "busbw_gb_per_s_high": busbw.high if busbw else None,
        "wrong": figure.wrong,
    }


def to_json(sweep: Sweep) -> dict[str, Any]:
    """Plain JSON values, with the format's version."""
    return {
        "format": 1,
        "rows": [values_of(figure) for figure in figures_of(sweep)],
        "not_measured": dict(sweep.header.not_measured),
        "unreadable": list(sweep.unreadable),
    }


def columns_for(figures: Sequence[SizeFigure], width: int | None = None) -> tuple[Column, ...]:
    """The columns of a table of one arm that has room for `width` characters; None: any number."""
    lists = any(figure.line.tensors > 1 for figure in figures)
    packs = (PACKS,) if lists else ()
    wide = (SIZE, COUNT, TYPE, REDOP, *((TENSORS, PACKS) if lists else ()), TIME, ALGBW, BUSBW, INTERVAL, WRONG)
    candidates = (wide, (SIZE, *packs, TIME, ALGBW, BUSBW, INTERVAL, WRONG), (SIZE, *packs, TIME, BUSBW, WRONG))
    fitting = (each for each in candidates if width is None or _width(each, figures) <= width)
    return next(fitting, candidates[-1])


def lines_of_table(columns: Sequence[Column], figures: Sequence[SizeFigure]) -> list[str]:
    """Aligned text: names, units, then a line for each figure."""
    rows = [[column.name for column in columns], [column.unit for column in columns]]
    rows += [[column.text(figure) for column in columns] for figure in figures]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _width(columns: Sequence[Column], figures: Sequence[SizeFigure]) -> int:
    return max(map(len, lines_of_table(columns, figures)))
