"""Prints a prediction, and writes its report."""

from pathlib import Path
from typing import TextIO

from tfdist.bench.predict.prediction import Prediction
from tfdist.bench.predict.section import prediction_section, shown_row
from tfdist.cli.plain_console import PlainConsole
from tfdist.cli.show_rows import show_rows


def show(prediction: Prediction, stream: TextIO) -> None:
    """Show the points of each arm, the answers and the notes."""
    console = PlainConsole(stream)
    rows = [shown_row(curve, point) for curve in prediction.curves for point in curve.points]
    show_rows(console, rows, ("arm", "devices", "images/s", "efficiency", "note"))
    section = prediction_section(prediction)
    for text in section.answer:
        console.print(text)
    for note in section.notes:
        console.print(note, style="dim")


def write(prediction: Prediction, out: Path) -> Path:
    """Write the report into `out`, and return the path of its page."""
    from tfdist.bench.report.write import write_pages

    section = prediction_section(prediction)
    return write_pages(out, "Prediction", section.answer, [section], commands=prediction.commands)
