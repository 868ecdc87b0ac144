"""Reports: from the records of benches to figures, text and pages."""

from tfdist.bench.report.frames import load

__all__ = ["load"]
