"""What a run costs besides its time: the second table of a report."""

import pandas as pd

from tfdist.bench.report.cost_columns import cost_table, cost_values
from tfdist.bench.report.measured import Measured
from tfdist.bench.report.section import Section, Table
from tfdist.bench.report.unit import in_unit


def costs_section(measured: Measured) -> Section | None:
    """None if nothing was measured."""
    rows = [row for row in measured.rows if row.measured]
    header, *lines = cost_table(rows, measured.price_per_hour) or [[]]
    if not lines:
        return None
    shown = pd.DataFrame(lines, columns=[in_unit(name, rows) for name in header])
    data = pd.DataFrame(
        [{"folder": row.folder, "arm": row.arm, **cost_values(row, measured.price_per_hour)} for row in rows]
    ).convert_dtypes()
    return Section("costs", "What a run costs", (), tables=(Table("costs", "Costs of each arm", shown, data),))
