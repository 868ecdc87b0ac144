"""Reports: from the records of benches to figures, text and pages."""
