"""The sections of a report, in their order. One without data is left out."""

from collections.abc import Callable, Sequence

from tfdist.bench.report.batch_section import batch_section
from tfdist.bench.report.ceiling_section import ceiling_section
from tfdist.bench.report.collectives_section import all_reduce_section
from tfdist.bench.report.convergence_section import convergence_section
from tfdist.bench.report.costs_section import costs_section
from tfdist.bench.report.efficiency_section import efficiency_section
from tfdist.bench.report.folders_section import folders_section
from tfdist.bench.report.kinds_section import kinds_section
from tfdist.bench.report.lost_time_section import lost_time_section
from tfdist.bench.report.measured import Measured
from tfdist.bench.report.results_section import results_section
from tfdist.bench.report.scaling_section import scaling_section
from tfdist.bench.report.section import Section
from tfdist.bench.report.storage_section import storage_section
from tfdist.bench.report.straggler_section import straggler_section
from tfdist.bench.report.windows_section import windows_section

__all__ = ["SECTIONS", "Measured", "sections_of"]

SectionOf = Callable[[Measured], Section | None]
"""None: the folders hold no data for it."""

SECTIONS: Sequence[SectionOf] = (
    kinds_section,
    scaling_section,
    results_section,
    folders_section,
    efficiency_section,
    lost_time_section,
    windows_section,
    ceiling_section,
    all_reduce_section,
    convergence_section,
    straggler_section,
    storage_section,
    batch_section,
    costs_section,
)
"""Each in a file of its own: `bench/report/NAME_section.py`."""


def sections_of(measured: Measured) -> tuple[Section, ...]:
    """The sections that have data."""
    return tuple(section for make in SECTIONS if (section := make(measured)) is not None)
