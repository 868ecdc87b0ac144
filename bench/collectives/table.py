"""The columns of a table of collectives, in the words of the NCCL tests. Pure."""

from collections.abc import Sequence
from typing import Any

from tfdist.bench.collectives.figures import SizeFigure, disturbed_turns, figures_of, noise_sentences
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.table import Column
from tfdist.launch.quantities import size_text


def significant(value: float, digits: int = 3) -> str:
    """`0.00123`, `12.0` or `1234`: `digits` significant digits or all before the point, never a power of ten."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def pack_text(pack_bytes: int | None) -> str:
    """`one` pack for all tensors, or the size of several: `4M`."""
    return "one" if pack_bytes is None else size_text(pack_bytes)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{significant(low)} to {significant(high)}"


ARM = Column("arm", ("arm",))
RANKS = Column("ranks", ("ranks",))
SIZE = Column("size (B)", ("size_bytes",))
COUNT = Column("count (elements)", ("count",))
TYPE = Column("type", ("type",))
REDOP = Column("redop", ("redop",))
TENSORS = Column("tensors", ("tensors",))
PACKS = Column("packs (B)", ("pack_bytes", "tensors"), lambda size, tensors: pack_text(size) if tensors > 1 else "")
TIME = Column("time (us)", ("time_us",), lambda value: significant(value, 4))
ALGBW = Column("algbw (GB/s)", ("algbw_gb_per_s",), significant)
BUSBW = Column("busbw (GB/s)", ("busbw_gb_per_s",), significant)
INTERVAL = Column("95 % interval (GB/s)", ("busbw_gb_per_s_low", "busbw_gb_per_s_high"), _interval)
WRONG = Column("#wrong", ("wrong",))


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
        "redop": "sum" if line.op.reduces else "none",
        "tensors": line.tensors,
        "pack_bytes": line.pack_bytes,
        "rounds": figure.rounds,
        "starts": figure.starts,
        "time_us": line.seconds * 1e6,
        "time_us_low": seconds.low * 1e6 if seconds else None,
        "time_us_high": seconds.high * 1e6 if seconds else None,
        "algbw_gb_per_s": line.algbw,
        "busbw_gb_per_s": figure.line.busbw,
        "busbw_gb_per_s_low": busbw.low if busbw else None,
        "busbw_gb_per_s_high": busbw.high if busbw else None,
        "wrong": figure.wrong,
    }


def to_json(sweep: Sweep) -> dict[str, Any]:
    """Plain JSON values, with the format's version."""
    return {
        "format": 1,
        "rows": [values_of(figure) for figure in figures_of(sweep)],
        "noise": list(noise_sentences(sweep)),
        "disturbed": list(disturbed_turns(sweep.lines)),
        "not_measured": dict(sweep.header.not_measured),
        "unreadable": list(sweep.unreadable),
    }


def columns_for(figures: Sequence[SizeFigure], width: int | None = None) -> tuple[Column, ...]:
    """The columns of a table of one arm that has room for `width` characters; None: any number."""
    lists = any(figure.line.tensors > 1 for figure in figures)
    packs = (PACKS,) if lists else ()
    wide = (SIZE, COUNT, TYPE, REDOP, *((TENSORS, PACKS) if lists else ()), TIME, ALGBW, BUSBW, INTERVAL, WRONG)
    candidates = (wide, (SIZE, *packs, TIME, ALGBW, BUSBW, INTERVAL, WRONG), (SIZE, *packs, TIME, BUSBW, WRONG))
    fitting = (each for each in candidates if width is None or max(map(len, lines_of_table(each, figures))) <= width)
    return next(fitting, candidates[-1])


def lines_of_table(columns: Sequence[Column], figures: Sequence[SizeFigure]) -> list[str]:
    """Aligned text: names, units, then a line for each figure."""
    values = [values_of(figure) for figure in figures]
    names, units = zip(*(column.title.removesuffix(")").partition(" (")[::2] for column in columns), strict=True)
    rows = [names, units, *([column.text(row) for column in columns] for row in values)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
