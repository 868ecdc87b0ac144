"""The measurements in a folder as pandas frames."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfdist.bench.reading import read_folder
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import throughput

if TYPE_CHECKING:
    import pandas as pd


def load(folder: str | Path, rows: Literal["arms", "turns", "windows"] = "arms") -> "pd.DataFrame":
    """The measurements in the folder of a bench or a launch. Missing values: not measured.

    Args:
        folder: of any format that this tfdist can read.
        rows: `arms`: the columns of report.csv, without arms that were refused. `turns`: images/s of each arm in each
            round. `windows`: each timed window of each task, with what was used meanwhile.

    Raises:
        TfdistError: the folder is missing or has no readable record, or `rows` is unknown.
    """
    if rows == "arms":
        from tfdist.bench.report.build import make_report

        sections = make_report([Path(folder)]).sections
        return next(section.tables[0].data for section in sections if section.key == "results")
    if rows not in _ROWS:
        raise TfdistError(f"rows={rows!r}: choose one of {', '.join(map(repr, ('arms', *_ROWS)))}")
    import pandas as pd

    measured = [record for record in read_folder(Path(folder), "").records if record.status is RecordStatus.OK]
    table: pd.DataFrame = pd.DataFrame(list(_ROWS[rows](measured))).convert_dtypes()
    return table


def _turns(records: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        yield {
            **_identity(record),
            "started": record.started,
            "strategy": record.spec["strategy"],
            "images_per_s": throughput(record),
            "others": max((host.others for host in record.hosts_usage), default=None),
            "steal": max((host.steal for host in record.hosts_usage), default=None),
        }


def _windows(records: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
    for record, rank in ((each, rank) for each in records for rank in each.ranks):
        for number, window in enumerate(rank.windows, start=1):
            values = asdict(window)
            usage = values.pop("usage") or {}
            usage.pop("gpus", None)
            yield {**_identity(record), "task": rank.task, "window": number, **values, **usage}


def _identity(record: Record) -> dict[str, Any]:
    return {"arm": record.arm, "round": record.round, "incarnation": record.incarnation, "order": record.order}


_ROWS: Mapping[str, Callable[[Iterable[Record]], Iterator[Mapping[str, Any]]]] = {"turns": _turns, "windows": _windows}
