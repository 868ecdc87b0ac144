"""What may be said of arms: time between epochs, and cores that their processes share. Pure."""

import math
from collections.abc import Sequence

from tfdist.bench.report.arm_records import devices_of
from tfdist.bench.report.summary import ArmRow
from tfdist.launch.text import counted
from tfdist.models.record import Record
from tfdist.models.throughput import measuring_ranks


def between_epochs(records: Sequence[Record]) -> str:
    """`0.41 s, about every 31 steps, 3 % of the time`, of the task that is away longest; empty: no epoch has ended."""
    ranks = [max(measuring_ranks(each), key=lambda rank: sum(w.between_s for w in rank.windows)) for each in records]
    windows = [window for rank in ranks for window in rank.windows]
    epochs, seconds = sum(window.epochs for window in windows), math.fsum(window.between_s for window in windows)
    if not epochs:
        return ""
    every = counted(round(sum(window.steps for window in windows) / epochs), "step")
    share = seconds / (seconds + math.fsum(window.elapsed_s for window in windows))
    return f"{seconds / epochs:.2f} s, about every {every}, {100 * share:.0f} % of the time"


def _pinned(record: Record) -> bool:
    """Whether its devices are CPU cores of their own."""
    return bool(record.spec.get("cores_per_device")) and not record.spec.get("gpus")


def devices_outnumber_cores(record: Record) -> bool:
    """Whether pinned devices need more cores than the job's hosts have (all counted like the first)."""
    cores = record.hardware.get("cores")
    if not _pinned(record) or not cores:
        return False
    return bool(devices_of(record) * record.spec["cores_per_device"] > len(cores) * record.hosts)


def mark_seconds(sentence: str, rows: Sequence[ArmRow]) -> str:
    """A sentence about seconds or images/s, marked if an arm that it is about shares cores."""
    records = [record for row in rows for record in row.measured]
    # launch/job.py pins parameter servers to the workers' cores
    if any(devices_outnumber_cores(each) or (_pinned(each) and each.spec.get("ps")) for each in records):
        why = "on cores that its processes share: on other hardware the seconds differ"
        return f"{sentence.removesuffix('.')} ({why})."
    return sentence
