"""The section on where variables are stored: bytes and requests of each parameter server, and what that costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from tfdist.bench.report.claims import mark_seconds
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.format import between, ends
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData, fastest, others_over
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.table import EMPTY, Column, Table, with_interval
from tfdist.models.record import Storage
from tfdist.strategies.catalog import Exchange

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SERVER = "ps-"


@dataclass(frozen=True)
class StorageArm:
    """An arm with the variables that its first start reported, by device or server."""

    row: ArmRow
    devices: Mapping[str, Storage]

    @property
    def servers(self) -> Mapping[str, Storage]:
        """Parameter servers only."""
        return {name: held for name, held in self.devices.items() if name.startswith(_SERVER)}


def storage_section(measured: ReportData) -> Section | None:
    """None unless arms with parameter servers differ in placement or partitioner."""
    stored = []
    for row in measured.rows:
        reported = (rank.storage for record in row.measured for rank in record.ranks[:1] if rank.storage)
        stored += [StorageArm(row, devices) for devices in islice(reported, 1)]
    served = [each for each in stored if each.servers]
    specs = [each.row.measured[0].spec for each in served]
    if len({(spec["placement"], spec["variable_partitioner"]) for spec in specs}) < 2:
        return None
    lines = [_values(each.row, name, held) for each in stored for name, held in each.devices.items()]
    data = pd.DataFrame(lines).convert_dtypes()
    return Section(
        key="storage",
        title="Where variables are stored",
        answer=tuple(_answer(stored, served, measured.rows)),
        charts=(_chart(served),),
        tables=(Table("storage", "Variables, requests and bytes of each device or server", data, COLUMNS),),
        notes=(
            "Variables are the model's and the optimizer's, as TensorFlow placed them; shards and copies count each.",
            "Requests are the operations on a server's variables in the traced graph of a worker's step: a read moves "
            "the variable to the worker, any other one its arguments (gradients) to the server. TensorFlow may merge "
            "equal reads. Bytes are those of the tensors, without the network's own.",
        ),
    )


def _answer(stored: Sequence[StorageArm], served: Sequence[StorageArm], among: Sequence[ArmRow]) -> Iterator[str]:
    """The fastest arm, which ones are measurably slower or may be as fast, and how busy the busiest server is."""
    rows = [each.row for each in stored if each.row.images_per_s and _ranked(each.row)]
    if len(rows) > 1:
        best = fastest(rows)
        texts: dict[str, list[str]] = {"measurably slower": [], "no measurable difference": []}
        for row, each in others_over(best, rows, among):
            what = "measurably slower" if each.verdict is ArmVerdict.SLOWER else "no measurable difference"
            texts[what].append(f"{row.label} {each.ratio:.2f} times that")
        compared = "; ".join(f"{what}: {', '.join(arms)}" for what, arms in texts.items() if arms)
        figure = f"{best.rate:.0f}{between(best.spread, '.0f')}"
        yield mark_seconds(f"{best.label} had the most images/s, {figure}; {compared}.", rows)
    busiest = [(each, _largest_share(each.servers)) for each in served if len(each.servers) > 1]
    shares = ", ".join(f"{each.row.label} {share:.0%}" for each, share in busiest if share)
    if shares:
        yield f"Of the bytes that a step moves, the busiest server's share is: {shares}."


def _ranked(row: ArmRow) -> bool:
    return (row.devices or 0) > 1 and row.exchange is not Exchange.NONE and row.valid


def _moved(held: Storage) -> int:
    return held.read_bytes + held.update_bytes


def _largest_share(servers: Mapping[str, Storage]) -> float:
    moved = list(map(_moved, servers.values()))
    return max(moved) / sum(moved) if sum(moved) else 0.0


def _chart(served: Sequence[StorageArm]) -> Chart:
    rows = [
        {"arm": each.row.label, "server": name, "megabytes_per_step": _moved(held) / 1e6}
        for each in served
        for name, held in each.servers.items()
    ]
    texts = (f"{row['arm']}, {row['server']}: {row['megabytes_per_step']:.2f} MB" for row in rows)
    return Chart(
        "bytes_per_server",
        "Megabytes that a worker's step moves to and from each parameter server",
        f"Bars, a part for each server: {'; '.join(texts)}.",
        partial(_paint, served=served),
        pd.DataFrame(rows),
        inches=1.2 + 0.42 * len(served),
    )


def _paint(axes: "Axes", served: Sequence[StorageArm]) -> None:
    for index, each in enumerate(served):
        left = 0.0
        for number_of, (name, held) in enumerate(each.servers.items()):
            width = _moved(held) / 1e6
            color = PALETTE[number_of % len(PALETTE)]
            axes.barh(index, width, left=left, height=0.62, color=color, edgecolor="white", label=name)
            left += width
    axes.set_yticks(range(len(served)), [each.row.label for each in served])
    axes.invert_yaxis()
    axes.set_xlabel("MB per step of a worker")


COLUMNS = (
    Column("arm", ("arm",)),
    Column(
        "images/s (95 % interval)", ("images_per_s", "images_per_s_low", "images_per_s_high"), with_interval("{:.0f}")
    ),
    Column("on", ("device",)),
    Column("variables", ("variables",)),
    Column("MB", ("bytes",), lambda size: f"{size / 1e6:.3g}"),
    Column("requests per step", ("requests",)),
    Column("MB per step", ("moved_bytes",), lambda size: EMPTY if size is None else f"{size / 1e6:.3g}"),
)


def _values(row: ArmRow, name: str, held: Storage) -> dict[str, Any]:
    serves = name.startswith(_SERVER)
    return {
        "arm": row.label,
        "images_per_s": row.images_per_s,
        **ends("images_per_s", row.spread),
        "device": name,
        **vars(held),
        "requests": held.reads + held.updates if serves else None,
        "moved_bytes": _moved(held) if serves else None,
    }
