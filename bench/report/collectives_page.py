"""The report of one `tfdist collectives`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tfdist.bench.collectives.figures import disturbed_turns, figures_of
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.noise import FEWEST_STARTS
from tfdist.bench.report.section import Page, Warning
from tfdist.bench.report.sections.collectives import collectives_section
from tfdist.bench.report.write import write_page
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, shortened

_METHOD = """- Each arm has processes of its own, which are started several times, in another order each time. Arms take
turns in shuffled order. In a turn every size is measured, in shuffled order too, while the other arms wait.
- Each sample takes an equal part of the turn: the number of operations in it follows from the time that this size took
in the turn before. It is the same on all ranks.
- Results do not replace the buffers in place, as in the "out-of-place" columns of the NCCL tests."""


def write_collectives(sweep: Sweep, out: Path) -> Path:
    """Write the report of a sweep into `out`, and return the path of its page.

    Raises:
        TfdistError: nothing was measured, or `out` is not writable.
    """
    section, header = collectives_section(sweep), sweep.header
    if section is None:
        raise TfdistError(f"{out} has no measurement in collectives.jsonl: measure again with `tfdist collectives`")
    sections, warnings = (replace(section, answer=()),), tuple(_warnings(sweep))
    page = Page(
        "Collectives", section.answer, sections, header.environment, warnings, (header.command,), method=_METHOD
    )
    return write_page(page, out)


def _warnings(sweep: Sweep) -> Iterator[Warning]:
    if wrong := shortened(line.arm for line in sweep.lines if line.wrong):
        yield Warning(
            "wrong-results", f"{wrong}: results were wrong.", "Do not train with it; report it to TensorFlow."
        )
    if loopback := shortened(line.arm for line in sweep.lines if line.communication and line.hosts == 1):
        yield Warning(
            "loopback",
            f"{loopback}: all processes ran on one host and communicated through its memory, not over a network.",
            "To learn the speed on several machines, measure there with --hosts.",
        )
    for turn in disturbed_turns(sweep.lines):
        advice = "A start's figure is the median of its rounds: one disturbed turn of three does not move it."
        yield Warning("disturbed-turn", f"{turn}.", f"{advice} If there are more, measure again without other load.")
    starts = max(figure.starts for figure in figures_of(sweep))
    if starts < FEWEST_STARTS:
        text = f"Only {counted(starts, 'start')} of each arm, so how much starts differ is assumed, not measured."
        yield Warning("few-starts", text, f"Measure again with --rounds 12 --incarnations {FEWEST_STARTS} or more.")
