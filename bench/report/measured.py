"""What the sections of a report are made of."""

from dataclasses import dataclass

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.summary import ArmRow


@dataclass(frozen=True)
class Measured:
    """The records of a report, and what follows from them."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table of arms."""
    price_per_hour: float | None = None
    """Of one host; None: unknown."""
