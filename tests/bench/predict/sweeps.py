"""Sweeps that were never measured."""

import random
from collections.abc import Sequence
from pathlib import Path

from tfdist.bench.collectives.results import Line, Sweep, SweepFolder, SweepHeader
from tfdist.bench.predict.ring import Ring
from tfdist.models.collectives.spec import CollectiveOp

RING = Ring(fixed_s=0.0, latency_s=300e-6, seconds_per_byte=1 / 100e6)
LINK = {"bytes_per_s": 120e6, "rtt_s": 200e-6}


def sweep(ring: Ring = RING, ranks: Sequence[int] = (2,), noise: float = 0.03, rounds: int = 4, seed: int = 0) -> Sweep:
    draw = random.Random(seed)
    lines = tuple(
        Line("multiworker/ring", CollectiveOp.ALL_REDUCE, n, n, 2**k, 1, None, "float32", number, 10,
             float(ring.seconds(n, 2**k)) * draw.lognormvariate(0, noise), 0, communication="ring")
        for number in range(1, rounds + 1) for n in ranks for k in range(10, 27, 2)
    )  # fmt: skip
    return Sweep(SweepHeader("tfdist collectives", "2026-01-01T00:00:00+00:00", ("h1", "h2"), rounds, link=LINK), lines)


def save_sweep(root: Path, made: Sweep) -> Path:
    folder = SweepFolder(root)
    root.mkdir()
    folder.save_header(made.header)
    for line in made.lines:
        folder.append(line)
    return root
