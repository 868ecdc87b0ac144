"""A Report -> report.md, report.csv, report.json and the plots."""

from pathlib import Path

from tfdist.bench.report import plots, tables
from tfdist.bench.report.build import Report
from tfdist.bench.report.markdown import markdown
from tfdist.bench.report.scaling import DESCRIPTIONS
from tfdist.bench.report.unit import in_unit
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json


def write_report(report: Report, out: Path) -> Path:
    """Write every file into `out`, and return report.md's path.

    Raises:
        TfdistError: `out` is not writable.
    """
    pictures = plots.draw(report.rows, DESCRIPTIONS[report.scaling])
    table = tables.frame(report.rows, report.scaling, report.price_per_hour)
    path = out / "report.md"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in plots.PLOTS:
            (out / name).unlink(missing_ok=True)
        for name, content in pictures.items():
            (out / name).write_bytes(content)
        (out / "report.csv").write_text(tables.to_csv(table), encoding="utf-8")
        save_json(out / "report.json", report.to_json())
        path.write_text(markdown(report, *_tables(report), list(pictures)), encoding="utf-8")
    except OSError as error:
        raise TfdistError(f"cannot write the report to {out} ({error.strerror}): choose another --out") from None
    return path


def _tables(report: Report) -> tuple[str, str]:
    """The results and the costs."""
    costs = tables.costs_to_markdown(report.rows, report.price_per_hour)
    return in_unit(tables.to_markdown(report.rows), report.rows), in_unit(costs, report.rows)
