"""The same arm in several folders, in a joint report."""

from collections.abc import Iterator, Sequence

from tfdist.bench.report.across import OTHER_MACHINE, Change, changes, find_anchor, machine_differences
from tfdist.bench.report.ratios import ratio_chart, ratio_table, verdict_of
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import ArmVerdict
from tfdist.launch.text import counted, shortened


def folders_section(measured: ReportData) -> Section | None:
    """Every later folder compared with the first one; None if no arm is in two of them."""
    folders = list(dict.fromkeys(row.folder for row in measured.rows))
    groups = [[row for row in measured.rows if row.folder == folder] for folder in folders]
    if len(groups) < 2:
        return None
    compared = [(find_anchor(groups[0], rows), rows) for rows in groups[1:]]
    parts = [(anchor, changes(groups[0], rows, anchor)) for anchor, rows in compared]
    every = [change for _, part in parts for change in part]
    if not every:
        return None
    several = len(groups) > 2
    labels = [f"{change.new.folder}: {change.arm}" if several else change.arm for change in every]
    return Section(
        key="folders",
        title=f"The same arm in {counted(len(folders), 'folder')}",
        answer=tuple(_answers(folders[0], parts)),
        charts=(ratio_chart("folders", f"Over {folders[0]}", every, labels),),
        tables=tuple(
            ratio_table(f"folders-{number}", f"{part[0].new.folder} over {folders[0]}", part, anchor)
            for number, (anchor, part) in enumerate(parts, start=1)
            if part
        ),
        notes=tuple(_notes(groups, parts)),
    )


def _answers(base: str, parts: Sequence[tuple[str | None, Sequence[Change]]]) -> Iterator[str]:
    for _, part in parts:
        if not part:
            continue
        new = part[0].new.folder
        decided = [each for each in part if each.comparison and each.comparison.verdict is not ArmVerdict.CANNOT_TELL]
        if decided:
            named = (f"{each.arm} {verdict_of(each)} ({_ratio(each):.2f} times)" for each in decided)
            yield f"{new} compared with {base}: {shortened(named, most=12)}."
        else:
            number = sum(each.comparison is not None for each in part)
            yield f"{new} compared with {base}: no measurable difference in {counted(number, 'arm')}."


def _ratio(change: Change) -> float:
    return change.comparison.ratio if change.comparison else change.plain_ratio


def _notes(groups: Sequence[Sequence[ArmRow]], parts: Sequence[tuple[str | None, Sequence[Change]]]) -> Iterator[str]:
    for rows, (anchor, part) in zip(groups[1:], parts, strict=True):
        new, moved = rows[0].folder, machine_differences(groups[0], rows)
        if part and anchor:
            yield f"{new}: ratios are of speed-ups over {anchor}, so that a change of the whole machine cancels."
        elif part and moved:
            differs = "; ".join(moved)
            yield f"{new} is of {OTHER_MACHINE} ({differs}), and has no common one-device arm: ratios compare machines."
    yield (
        "Turns of different folders did not alternate: the intervals contain the noise of turns and of starts of both, "
        "and are widened for the number of arms (Holm)."
    )
