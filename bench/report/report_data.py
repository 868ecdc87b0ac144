"""What the sections of a report are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.bench.collectives.results import Sweep
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.summary import ArmRow


@dataclass(frozen=True)
class ReportData:
    """The records of a report, and what follows from them."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table of arms."""
    price_per_hour: float | None = None
    """Price of one host; None: unknown."""
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    """The collectives that a bench used for its ceiling, by `ArmRow.folder`."""
