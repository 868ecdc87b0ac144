"""Measuring from Python."""

from tfdist.bench.frames import load

__all__ = ["load"]
