"""Measuring from Python."""

from tfdist.bench.frames import load
from tfdist.bench.python_api import run

__all__ = ["load", "run"]
