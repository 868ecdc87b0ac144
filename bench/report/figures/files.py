"""The files of sections: NAME.png and NAME.csv of charts, NAME.csv of tables; and their JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfdist.bench.report.section import Section

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def files_of(sections: Sequence[Section]) -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    from tfdist.bench.report.figures.pictures import to_png

    for section in sections:
        for chart in section.charts:
            yield f"{chart.name}.png", to_png(chart)
            yield f"{chart.name}.csv", to_csv(chart.data).encode(errors="replace")
        for table in section.tables:
            yield f"{table.name}.csv", to_csv(table.data).encode(errors="replace")


def to_csv(table: "pd.DataFrame") -> str:
    """Six significant digits; a missing value is an empty cell. Texts that a spreadsheet would compute begin with '."""

    def as_text(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell

    texts = {name: table[name].map(as_text) for name in table.select_dtypes(["object", "string"])}
    text: str = table.assign(**texts).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return text


def to_json(section: Section) -> dict[str, Any]:
    """Plain JSON values: texts, rows of the tables, and where the data of the charts are."""
    return {
        "key": section.key,
        "title": section.title,
        "answer": list(section.answer),
        "charts": [
            {"name": chart.name, "title": chart.title, "alt": chart.alt, "data": f"{chart.name}.csv"}
            for chart in section.charts
        ],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "rows": json.loads(table.data.to_json(orient="records", double_precision=15)),
            }
            for table in section.tables
        ],
        "notes": list(section.notes),
    }
