"""Run and measure TensorFlow's distributed training."""

__version__ = "0.1.0"
