"""Where TensorFlow placed operations: a table from the logs of a run with log_device_placement."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from tfdist.launch.json_files import open_regular
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.text import spreadsheet_text

_PLACED = re.compile(rb"[ /]placer\.cc:\d+\] \S+: \((\w+)\): (/job:\S+)")
"""A node of a graph, as placer.cc of TensorFlow logs it on stderr. Eager operations are graphs of their own."""
_DEVICE = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)/device:(\w+:\d+)")
_NOT_OPERATIONS = (b"_Arg", b"_DeviceArg", b"_Retval", b"_DeviceRetval")
"""Arguments and results of a function."""
_LONGEST_LINE = 1 << 16
"""Bytes of a line; the rest of a longer one is another."""
HEADER = ("task", "operation", "device", "nodes")


def placed_in(run_dir: RunDir) -> Counter[tuple[str, str, str]]:
    """Number of nodes by task, operation and device, as the last attempt of each task of the run has logged them.

    Raises:
        OSError: a log cannot be read.
    """
    placed: Counter[tuple[str, str, str]] = Counter()
    for task, attempt in {task: attempt for attempt, task in run_dir.attempts()}.items():
        with suppress(FileNotFoundError), open_regular(run_dir.log(task, "stderr", attempt)) as log:
            placed.update((task, *node) for node in nodes(iter(lambda: log.readline(_LONGEST_LINE), b"")))
    return placed


def nodes(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Operation and device of each node that was placed."""
    for line in lines:
        found = _PLACED.search(line) if b"placer.cc" in line else None
        if found and found[1] not in _NOT_OPERATIONS:
            yield found[1].decode(), device_name(found[2].decode(errors="replace"))


def device_name(name: str) -> str:
    """`CPU:0` of a process without a cluster, `worker-1 CPU:0` of another one."""
    found = _DEVICE.fullmatch(name)
    if found is None:
        return name
    return found[3] if found[1] == "localhost" else f"{found[1]}-{found[2]} {found[3]}"


def save_placement(writer: RunWriter) -> str:
    """Write the table of a run that has ended into its folder; returns where it is, or why there is none."""
    try:
        placed = placed_in(writer.run_dir)
    except OSError as error:
        return f"no table of placed operations: {error}"
    if not placed:
        return "no operation was placed: --set log_device_placement=true acts in tfdist.strategies.current()"
    rows = [HEADER, *((*key, str(number)) for key, number in sorted(placed.items()))]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([map(spreadsheet_text, row) for row in rows])
    writer.save_text(writer.run_dir.placement, table.getvalue())
    return f"operations by device: {writer.run_dir.placement}"
