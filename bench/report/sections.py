"""The sections of a report besides its tables of arms, in their order. A section without data is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow


@dataclass(frozen=True)
class Measured:
    """What a section is made of."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]


SectionOf = Callable[[Measured], Section | None]
"""None: the folders hold no data for it."""

SECTIONS: Sequence[SectionOf] = ()
"""Each in a file of its own: `bench/report/NAME_section.py`."""


def sections_of(measured: Measured) -> tuple[Section, ...]:
    """The sections that have data."""
    return tuple(section for make in SECTIONS if (section := make(measured)) is not None)
