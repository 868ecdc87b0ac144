"""How many parameters the built-in models train: the size of their gradients, without building them. No TensorFlow."""

from tfdist.models.spec import Architecture, TrainingSpec

_BLOCKS = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""Table 2 of https://arxiv.org/abs/1801.04381: expansion, channels, repeats."""


def trained_parameters(model: Architecture, alpha: float, classes: int) -> int:
    """Number of parameters with a gradient: not the moving statistics of BatchNorm.

    MobileNetV2 with 1000 classes: 3,504,872, or 14.02 MB of float32.
    """
    counts = {Architecture.MOBILENET_V2: _mobilenet_v2, Architecture.TINY: _tiny}
    return counts[model](alpha, classes)


def gradient_bytes(spec: TrainingSpec) -> int:
    """What each replica contributes to the all-reduce of a step."""
    return trained_parameters(spec.model, spec.alpha, spec.classes) * spec.gradient_dtype.item_bytes


def _mobilenet_v2(alpha: float, classes: int) -> int:
    channels = _rounded(32 * alpha)
    total = _convolution(9 * 3, channels)
    for expansion, width, repeats in _BLOCKS:
        for _ in range(repeats):
            expanded = expansion * channels
            out = _rounded(int(width * alpha))
            total += _convolution(channels, expanded) if expansion > 1 else 0
            total += _convolution(9, expanded) + _convolution(expanded, out)  # depthwise, then 1 x 1
            channels = out
    last = _rounded(1280 * alpha) if alpha > 1 else 1280
    return total + _convolution(channels, last) + (last + 1) * classes


def _convolution(weights: int, channels: int) -> int:
    """Parameters of a convolution without bias, with the scale and offset of its BatchNorm."""
    return (weights + 2) * channels


def _rounded(channels: float) -> int:
    """Round to a multiple of 8, and not more than 10 % down, as Keras does."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def _tiny(alpha: float, classes: int) -> int:
    first, second = (max(1, round(channels * alpha)) for channels in (16, 32))
    return (9 * 3 + 1) * first + (9 * first + 1) * second + (second + 1) * classes
