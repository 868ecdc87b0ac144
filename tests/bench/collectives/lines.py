"""Measurements that never were."""

from tfdist.bench.collectives.results import Line, Sweep, SweepHeader
from tfdist.models.collectives.spec import CollectiveOp

HEADER = SweepHeader("tfdist collectives", "2026-01-01T00:00:00+00:00", ("localhost",), 3, {"cpu": ("A CPU",)})


def line(arm="multiworker/ring", size=1 << 20, seconds=0.01, round=1, wrong=0, tensors=1, pack=None, ranks=2, **rest):
    """Unless `incarnation` is given, each round has a start of its own."""
    values = {
        "op": CollectiveOp.ALL_REDUCE,
        "hosts": 1,
        "dtype": "float32",
        "iterations": 5,
        "incarnation": round,
        **rest,
    }
    return Line(arm=arm, ranks=ranks, bytes=size, tensors=tensors, pack_bytes=pack, round=round, seconds=seconds,
                wrong=wrong, communication="ring", **values)  # fmt: skip


def sweep(*lines, **header):
    return Sweep(SweepHeader(**{**vars(HEADER), **header}), tuple(lines))
