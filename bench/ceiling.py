"""The images/s that the network allows: a ring all-reduce cannot be faster than its bandwidth. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdist.bench.collectives.figures import figures_of
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.statistics import Interval
from tfdist.launch.quantities import size_text
from tfdist.launch.text import counted
from tfdist.models.architectures.parameters import gradient_bytes
from tfdist.models.collectives.spec import CollectiveOp, bus_factor
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Keras


@dataclass(frozen=True)
class Bandwidth:
    """What a rank can send, and at the same time receive."""

    bytes_per_s: float
    high: float
    """The upper limit of its interval; the same without one; infinite if only smaller sizes were measured."""
    source: str
    """How it was measured."""


@dataclass(frozen=True)
class AllReduce:
    """The all-reduce of one training step."""

    gradient_bytes: int
    ranks: int
    bandwidth: Bandwidth

    @property
    def floor_s(self) -> float:
        """The least time of the all-reduce: each rank sends 2(n-1)/n of the bytes (https://doi.org/10.1016/j.jpdc.2008.09.002)."""
        return bus_factor(CollectiveOp.ALL_REDUCE, self.ranks) * self.gradient_bytes / self.bandwidth.bytes_per_s


def exchange_of(spec: TrainingSpec, hosts: int, sweep: Sweep | None, link: Mapping[str, float]) -> AllReduce | None:
    """The all-reduce of a training between processes; None for another one, or if no bandwidth was measured.

    Args:
        spec: of the training.
        hosts: that it runs on.
        sweep: of `tfdist collectives` on the same hosts.
        link: `bytes_per_s` between neighbouring hosts, which counts without a sweep.
    """
    if CATALOG[spec.strategy].all_reduce != "communication" or spec.replicas < 2:
        return None
    bandwidth = (_of_sweep(sweep, spec, hosts) if sweep else None) or _of_link(link, hosts)
    return None if bandwidth is None else AllReduce(gradient_bytes(spec), spec.replicas, bandwidth)


def _of_sweep(sweep: Sweep, spec: TrainingSpec, hosts: int) -> Bandwidth | None:
    """The highest bus bandwidth of any size: of the same communication and ranks, else of as many hosts."""
    right = [each for each in figures_of(sweep) if each.line.op is CollectiveOp.ALL_REDUCE and not each.wrong]
    between = [figure for figure in right if figure.line.communication and figure.line.hosts == hosts]
    of_ranks = [figure for figure in between if figure.line.ranks == spec.replicas]
    alike = [figure for figure in of_ranks if figure.line.communication == str(spec.communication)]
    best = max(alike or between, key=lambda figure: figure.line.busbw, default=None)
    if best is None:
        return None
    high = best.busbw_interval.high if best.busbw_interval else best.line.busbw
    source = f"the highest bus bandwidth of {best.line.arm}, {counted(best.line.ranks, 'rank')}"
    largest = max(figure.line.bytes for figure in alike or between)
    if largest < gradient_bytes(spec):  # the bandwidth may be higher for them
        high = math.inf
        source = f"{source}, measured only up to {size_text(largest)}"
    return Bandwidth(best.line.busbw * 1e9, high * 1e9, source)


def _of_link(link: Mapping[str, float], hosts: int) -> Bandwidth | None:
    if hosts < 2 or not link.get("bytes_per_s"):
        return None
    return Bandwidth(link["bytes_per_s"], link["bytes_per_s"], "one TCP stream between neighbouring hosts")


def network_limit(spec: TrainingSpec, exchange: AllReduce) -> float:
    """Images/s if a step were nothing but the all-reduce."""
    return spec.global_batch_size / exchange.floor_s


def ceiling(spec: TrainingSpec, exchange: AllReduce, one_device: float) -> float:
    """The most images/s of the job.

    With one pack the all-reduce begins after the last gradient and ends before the update, so a step takes as long as
    that of one device and the all-reduce together. Several packs, and Keras 3, can overlap them: the longer one counts.

    Args:
        spec: of the training.
        exchange: its all-reduce.
        one_device: images/s of one device with the same batch.
    """
    floor_s = exchange.floor_s
    compute_s = spec.batch_size / one_device
    overlap = spec.bytes_per_pack is not None or spec.keras is Keras.THREE
    return spec.global_batch_size / (max(floor_s, compute_s) if overlap else floor_s + compute_s)


def highest_ceiling(spec: TrainingSpec, exchange: AllReduce, one_device: Interval | None, figure: float) -> float:
    """`ceiling` at the upper limits of the bandwidth and of the images/s of one device (or its `figure`)."""
    bandwidth = replace(exchange.bandwidth, bytes_per_s=exchange.bandwidth.high)
    fastest = figure if one_device is None else one_device.high
    return ceiling(spec, replace(exchange, bandwidth=bandwidth), fastest)
