"""The rows of the table: kept as csv after each scenario, so that an interrupted run can be continued."""

import csv
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

from lab.faults.measure import FaultResult, deviations, named_right
from lab.faults.scenario import Scenario

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench_results" / "faults"


@dataclass(frozen=True)
class Row:
    """One scenario and what was measured. An empty cell: it did not happen. Times are seconds."""

    scenario: str
    fault: str
    job: str
    task: str
    moment: str
    max_restarts: int
    as_expected: bool
    deviations: str
    expected_culprit: str
    named: str
    named_right: bool
    exit_code: int | None
    expected_code: int
    sentence: str
    detected_s: float | None
    block_s: float | None
    ended_s: float
    cold_start_s: float | None
    next_step_s: float | None
    steps_lost: int | None
    restarts: int
    orphans: int
    took_s: float
    """The whole scenario, with the wait for what it may leave behind."""
    measured: str
    """UTC."""
    commit: str
    """As `page.this_commit`."""

    @property
    def ratio(self) -> float | None:
        """Seconds from the detection to the next attempt's first step, in cold starts of the same run."""
        return self.next_step_s / self.cold_start_s if self.next_step_s and self.cold_start_s else None


def without_paths(sentence: str) -> str:
    """The sentence without the folders of the checkout and of the scenario."""
    scenario = rf"{re.escape(tempfile.gettempdir())}/tfdist-faults-\w+/\d+/"
    return re.sub(scenario, "", sentence.replace(f"{ROOT}/", ""))


def row_of(scenario: Scenario, measured: FaultResult, took_s: float, commit: str) -> Row:
    """The row of a scenario."""
    wrong = deviations(scenario, measured)
    return Row(
        scenario=scenario.name,
        fault=scenario.fault.name,
        job=scenario.job.name,
        task=scenario.task,
        moment=scenario.moment.value,
        max_restarts=scenario.restarts,
        as_expected=not wrong,
        deviations="; ".join(wrong),
        expected_culprit=scenario.expected.culprit or "",
        named=measured.culprit or "",
        named_right=named_right(scenario, measured) and scenario.expected.says in measured.sentence,
        exit_code=measured.code,
        expected_code=scenario.expected.code,
        sentence=without_paths(measured.sentence),
        detected_s=_rounded(measured.detected_s),
        block_s=_rounded(measured.block_s),
        ended_s=round(measured.ended_s, 2),
        cold_start_s=_rounded(measured.cold_start_s),
        next_step_s=_rounded(measured.next_step_s),
        steps_lost=measured.steps_lost,
        restarts=measured.restarts,
        orphans=len(measured.orphans),
        took_s=round(took_s, 1),
        measured=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
        commit=commit,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))
    draft.replace(path)


def load(path: Path) -> list[Row]:
    """The rows of a file; none if it does not exist, or was written by another version of this table."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != [field.name for field in fields(Row)]:
            return []
        return [Row(**{field.name: _value(field.type, row[field.name]) for field in fields(Row)}) for row in reader]


def _value(kind: Any, text: str) -> Any:
    options = get_args(kind) or (kind,)
    if type(None) in options and not text:
        return None
    return text == "True" if bool in options else options[0](text)
