"""The time of a ring all-reduce, fitted to measured ones. Pure.

A ring of n ranks sends 2(n-1) messages one after the other, together 2(n-1)/n times the buffer through each link
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):

    seconds = fixed + 2(n-1) latency + 2(n-1)/n bytes / bandwidth
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfdist.bench.collectives.figures import grouped
from tfdist.bench.collectives.results import Line, Sweep
from tfdist.bench.growth import Array
from tfdist.launch.errors import TfdistError
from tfdist.models.collectives.spec import CollectiveOp
from tfdist.strategies.options import Communication

_NEAR = math.log(8)
"""A size that differs from that of the gradients by this factor counts less in the fit by a factor of e."""


@dataclass(frozen=True)
class RingLink:
    """One connection between two hosts."""

    bytes_per_s: float | None = None
    """Bandwidth of a TCP stream; None: no limit is known, as inside one host."""
    latency_s: float = 0.0
    """One way."""

    @property
    def seconds_per_byte(self) -> float:
        """The inverse of the bandwidth; 0 without a limit."""
        return 1 / self.bytes_per_s if self.bytes_per_s else 0.0

    @classmethod
    def of(cls, measured: Mapping[str, float]) -> "RingLink":
        """A measured link, as in records; without a limit inside one host, where none was measured."""
        return cls(measured["bytes_per_s"], measured["rtt_s"] / 2) if measured else cls()


@dataclass(frozen=True)
class Ring:
    """What an all-reduce costs."""

    fixed_s: float
    """Seconds of one operation, whatever its size and ranks; 0 if measured with one number of ranks only."""
    latency_s: float
    """Seconds of each of its messages."""
    seconds_per_byte: float
    """Seconds of each byte through a link: the inverse of the bandwidth."""

    def seconds(self, ranks: Array | int, size: float, operations: int = 1) -> Array:
        """Seconds to all-reduce `size` bytes over `ranks`, in a number of operations; 0 for a single rank."""
        n = np.asarray(ranks, dtype=float)
        messages = operations * (self.fixed_s + 2 * (n - 1) * self.latency_s)
        found: Array = np.where(n > 1, messages + 2 * (n - 1) / n * size * self.seconds_per_byte, 0.0)
        return found

    def over(self, measured: RingLink, other: RingLink) -> "Ring":
        """The same processes over another link.

        What the link that it was measured over explains is replaced, and the rest stays: the processes' own work on
        each message and byte.
        """
        latency = max(0.0, self.latency_s - measured.latency_s) + other.latency_s
        per_byte = max(0.0, self.seconds_per_byte - measured.seconds_per_byte) + other.seconds_per_byte
        return replace(self, latency_s=latency, seconds_per_byte=per_byte)


@dataclass(frozen=True)
class RingFit:
    """A fitted ring, with draws from what it may also be."""

    ring: Ring
    draws: tuple[Ring, ...]
    """Fitted to measurements drawn again, each scaled by what the model misses."""
    error: float
    """Root mean square of the relative residuals, sizes near that of the gradients first."""
    ranks: tuple[int, ...]
    """Measured ones."""
    sizes: tuple[int, int]
    """The smallest and the largest buffer in it, bytes."""
    link: RingLink


def ring_lines(sweep: Sweep, communication: Communication, gpus: bool) -> tuple[Line, ...]:
    """Right all-reduces of one buffer between processes, by this communication.

    Raises:
        TfdistError: there are none, or of fewer than two sizes.
    """
    wanted = resolved(communication, gpus)
    lines = tuple(
        line
        for line in sweep.lines
        if line.op is CollectiveOp.ALL_REDUCE and line.tensors == 1 and line.ranks > 1 and not line.wrong
        if line.communication and resolved(Communication(line.communication), gpus) is wanted
    )
    if len({line.bytes for line in lines}) < 2:
        raise TfdistError(
            f"the sweep has {len(lines)} correct all-reduces by {wanted} between processes: a prediction needs several "
            f"sizes; measure with 'tfdist collectives --workers 2 --communication {wanted} --sizes 1K:64M'"
        )
    return lines


def resolved(communication: Communication, gpus: bool) -> Communication:
    """What TensorFlow's automatic choice is."""
    if communication is not Communication.AUTO:
        return communication
    return Communication.NCCL if gpus else Communication.RING


def fit_ring(lines: Sequence[Line], link: RingLink, size: float, draws: int) -> RingFit:
    """The ring that fits these all-reduces best, at sizes near `size` bytes above all."""
    ring = _fitted(lines, size)
    error = _error(ring, lines, size)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(draws):
        again = _fitted(_drawn(lines, rng), size)
        factor = math.exp(error * rng.standard_normal())
        drawn.append(Ring(*(factor * value for value in vars(again).values())))
    sizes = sorted(line.bytes for line in lines)
    ranks = tuple(sorted({line.ranks for line in lines}))
    return RingFit(ring, tuple(drawn), error, ranks, (sizes[0], sizes[-1]), link)


def _drawn(lines: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Draw, with replacement, as many lines of each number of ranks and size as were measured."""
    return [group[index] for group in _groups(lines) for index in rng.integers(0, len(group), len(group))]


def _groups(lines: Sequence[Line]) -> list[list[Line]]:
    """Those of the same number of ranks and size."""
    return list(grouped(lines, lambda line: (line.ranks, line.bytes)).values())


def _weights(lines: Sequence[Line], size: float) -> Array:
    """Weights of relative errors."""
    distance = np.log(np.array([line.bytes for line in lines], dtype=float) / size) / _NEAR
    weights: Array = np.exp(-np.abs(distance))
    return weights


def _fitted(lines: Sequence[Line], size: float) -> Ring:
    """Least squares of relative errors, with no negative part."""
    from scipy.optimize import nnls

    n = np.array([line.ranks for line in lines], dtype=float)
    sizes = np.array([line.bytes for line in lines], dtype=float)
    seconds = np.array([line.seconds for line in lines])
    fixed = np.ones_like(n) if len(set(n)) > 1 else np.zeros_like(n)
    columns = np.stack([fixed, 2 * (n - 1), 2 * (n - 1) / n * sizes], axis=1)
    scale = columns.max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0  # microseconds beside seconds per byte: equal magnitudes for the solver
    weights = np.sqrt(_weights(lines, size)) / seconds
    found, _ = nnls(columns / scale * weights[:, None], seconds * weights)
    return Ring(*(float(value) for value in found / scale))


def _error(ring: Ring, lines: Sequence[Line], size: float) -> float:
    """Error of the geometric means of each size and number of ranks."""
    groups = _groups(lines)
    firsts = [group[0] for group in groups]
    means = np.array([np.mean([math.log(line.seconds) for line in group]) for group in groups])
    model = np.array([float(ring.seconds(line.ranks, line.bytes)) for line in firsts])
    weights = _weights(firsts, size)
    return float(np.sqrt(np.average((means - np.log(np.maximum(model, 1e-12))) ** 2, weights=weights)))
