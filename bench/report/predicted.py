"""The combinations of a matrix that a bench has only predicted, and how well its checks agree. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tfdist.bench.factors import misses, predict
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.format import three_digits, up_to
from tfdist.bench.report.summary import NOT_RUN, PREDICTED, ArmRow
from tfdist.bench.suites.arm import Arm
from tfdist.launch.text import counted


def with_predictions(folders: Sequence[ResultFolder], rows: Sequence[ArmRow]) -> Iterator[ArmRow]:
    """The rows; those of combinations that were not measured have the status `predicted`."""
    predicted: dict[str, float] = {}
    for label, folder in _labelled(folders):
        found = predict(*_matrix(folder, label, rows))
        predicted |= {label_of(label, arm): each.log for arm, each in found.items()}
    for row in rows:
        if row.status == NOT_RUN and row.label in predicted:
            reason = f"about {three_digits(math.exp(predicted[row.label]))} images/s, not measured"
            yield replace(row, status=PREDICTED, reason=reason)
        else:
            yield row


def prediction_notes(folders: Sequence[ResultFolder], rows: Sequence[ArmRow]) -> Iterator[str]:
    """A sentence for each folder with predictions: how many there are, and how far those that were checked were off."""
    for label, folder in _labelled(folders):
        number = sum(row.folder == label and row.status == PREDICTED for row in rows)
        if number:
            off = [math.expm1(abs(miss)) for miss in misses(*_matrix(folder, label, rows)).values()]
            checked = f"; those that were measured, too, were off by at most {up_to(max(off))}" if off else ""
            which = f"{counted(number, 'combination')} of the matrix"
            text = f"{which} follow from the effects of their factors and were not measured (predicted){checked}."
            yield label_of(label, text)


def _labelled(folders: Sequence[ResultFolder]) -> Iterator[tuple[str, ResultFolder]]:
    """Each with its `ArmRow.folder`."""
    return ((folder.label if len(folders) > 1 else "", folder) for folder in folders)


def _matrix(folder: ResultFolder, label: str, rows: Sequence[ArmRow]) -> tuple[Sequence[Arm], Mapping[str, float]]:
    """The combinations of a folder, and the logarithm of images/s of those that were measured."""
    arms = [arm for arm in folder.bench.suite.arms if arm.levels] if folder.bench else []
    logs = {row.arm: math.log(row.rate) for row in rows if row.folder == label and row.measured and row.valid}
    return arms, {arm.name: logs[arm.name] for arm in arms if arm.name in logs}
