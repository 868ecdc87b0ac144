"""The measurements in a folder as pandas frames."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record, RecordStatus, Window

if TYPE_CHECKING:
    import pandas as pd

RowsOf = Literal["arms", "turns", "windows"]


def load(folder: str | Path, rows: RowsOf = "arms") -> "pd.DataFrame":
    """The measurements in the folder of a bench or a launch. Missing values: not measured.

    Args:
        folder: of any format that this tfdist can read.
        rows: `arms`: the columns of report.csv. `turns`: images/s of each arm in each round. `windows`: each timed
            window of each task, with what was used meanwhile.

    Raises:
        TfdistError: the folder is missing or has no readable record, or `rows` is unknown.
    """
    if rows not in _FRAMES:
        raise TfdistError(f"rows={rows!r}: choose one of {', '.join(map(repr, _FRAMES))}")
    return _FRAMES[rows](Path(folder))


def _arms(folder: Path) -> "pd.DataFrame":
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.sections.results import frame

    report = make_report([folder])
    return frame(report.rows, report.scaling, report.price_per_hour)


def _turns(folder: Path) -> "pd.DataFrame":
    return _frame(map(_turn, _measured(folder)))


def _windows(folder: Path) -> "pd.DataFrame":
    return _frame(
        {**_identity(record), "task": rank.task, "window": number, **_values(window)}
        for record in _measured(folder)
        for rank in record.ranks
        for number, window in enumerate(rank.windows, start=1)
    )


_FRAMES: Mapping[str, Callable[[Path], "pd.DataFrame"]] = {"arms": _arms, "turns": _turns, "windows": _windows}


def _measured(folder: Path) -> list[Record]:
    from tfdist.bench.reading import read_folder

    return [record for record in read_folder(folder, "").records if record.status is RecordStatus.OK]


def _identity(record: Record) -> dict[str, Any]:
    return {"arm": record.arm, "round": record.round, "incarnation": record.incarnation, "order": record.order}


def _turn(record: Record) -> dict[str, Any]:
    from tfdist.models.throughput import throughput

    return {
        **_identity(record),
        "started": record.started,
        "strategy": record.spec["strategy"],
        "images_per_s": throughput(record),
        "others": max((host.others for host in record.hosts_usage), default=None),
        "steal": max((host.steal for host in record.hosts_usage), default=None),
    }


def _values(window: Window) -> dict[str, Any]:
    values = asdict(window)
    usage = values.pop("usage") or {}
    return values | {name: value for name, value in usage.items() if name != "gpus"}


def _frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    table: pd.DataFrame = pd.DataFrame(list(rows)).convert_dtypes()
    return table
