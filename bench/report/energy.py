"""Energy of GPUs, images per joule and cost per image, from the readings in a record. Pure."""

from collections.abc import Sequence

from tfdist.models.record import GpuReading, RankRecord, Window


def joules(ranks: Sequence[RankRecord]) -> float | None:
    """Energy of all GPUs of a job over its timed windows; None if a rank has a window without readings.

    A GPU that several ranks of a host share counts once. The energy is that of the whole GPU, other programs included,
    and not that of the host.
    """
    by_gpu: dict[tuple[str, int], float] = {}
    for rank in ranks:
        if not rank.windows or not all(window.usage and window.usage.gpus for window in rank.windows):
            return None
        for index in {gpu.index for window in rank.windows for gpu in _gpus(window)}:
            by_gpu.setdefault((rank.host, index), _energy_of(index, rank.windows))
    return sum(by_gpu.values()) if by_gpu else None


def _energy_of(index: int, windows: Sequence[Window]) -> float:
    return sum(_joules(gpu, window.elapsed_s) for window in windows for gpu in _gpus(window) if gpu.index == index)


def _joules(gpu: GpuReading, elapsed_s: float) -> float:
    """Energy by the GPU's counter; without one, its power at the window's end for the whole window."""
    return gpu.power_w * elapsed_s if gpu.energy_j is None else gpu.energy_j


def _gpus(window: Window) -> tuple[GpuReading, ...]:
    return window.usage.gpus if window.usage else ()


def images_per_joule(images: int, energy_j: float) -> float:
    """Also images/s per watt."""
    return images / energy_j


def cost_per_million(price_per_hour: float, images_per_s: float) -> float:
    """The price of a million images on hardware that costs `price_per_hour`, in the currency of the price."""
    return price_per_hour / 3600 / images_per_s * 1e6
