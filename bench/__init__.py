"""Measuring from Python."""

from tfdist.bench.python_api import run
from tfdist.bench.report.frames import load

__all__ = ["load", "run"]
