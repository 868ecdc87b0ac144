"""Published measurements, drawn beside a prediction: of other hardware and models, for the shape of the curve only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """A published curve or point."""

    name: str
    source: str
    devices: tuple[int, ...]
    images_per_s: tuple[float, ...] = ()
    efficiency: tuple[float, ...] = ()
    """Throughput over as many times one device; as published, not computed from images/s."""


_HOROVOD = (
    "https://github.com/horovod/horovod/blob/master/docs/benchmarks.rst, Pascal GPUs, 4 per server, 25 Gbit/s RoCE"
)
_OSDI = (
    "Abadi et al., TensorFlow: a system for large-scale machine learning, OSDI 2016, section 6.3, figure 8, K40 GPUs"
)

REFERENCES = (
    Reference("Horovod, Inception V3 and ResNet-101", _HOROVOD, (512,), efficiency=(0.90,)),
    Reference("Horovod, VGG-16", f"{_HOROVOD}; 128 GPUs from its README of 2017", (128, 512), efficiency=(0.79, 0.68)),
    Reference(
        "TensorFlow 2016, Inception-v3, asynchronous",
        f"{_OSDI}; about 500 to 2,000 images/s, read from the plot",
        (25, 200),
        images_per_s=(500, 2000),
    ),
    Reference("TensorFlow 2016, Inception-v3, highest", _OSDI, (200,), images_per_s=(2300,)),
)
