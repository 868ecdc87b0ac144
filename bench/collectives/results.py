"""The folder of `tfdist collectives`: collectives.json says what was measured where, collectives.jsonl the figures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from tfdist.bench.folder import printable, read_lines
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import append_line, dumps, load_json, read_bytes, replace_file, save_json
from tfdist.launch.runs.rundir import FileIn
from tfdist.launch.typed_json import Between, Count, PositiveFloat, PositiveInt, from_json, shown
from tfdist.models.collectives.spec import CollectiveOp, algbw, bus_factor
from tfdist.models.record import MeasuredLink
from tfdist.strategies.options import GradientDtype

FORMAT = 2
"""Format 1, which is also read, has one start of the processes of an arm."""


@dataclass(frozen=True)
class Line:
    """One measurement: an operation of one size, in one round of one arm."""

    arm: str
    op: CollectiveOp
    hosts: PositiveInt
    ranks: PositiveInt
    bytes: Annotated[int, Between(1, 1 << 50)]
    """Bytes of one rank's buffer; of all-gather, of the result. As in the NCCL tests."""
    tensors: PositiveInt
    """1, or more for the gradients of a model, which are exchanged in one call."""
    pack_bytes: Count | None
    """CommunicationOptions.bytes_per_pack; None: not set."""
    dtype: GradientDtype
    round: Count
    """Counted from 1."""
    iterations: Count
    seconds: PositiveFloat
    """Seconds of one operation, on the slowest rank, the mean over all iterations."""
    wrong: Count
    """Elements with a wrong value after the last iteration, of all ranks together."""
    communication: str | None = None
    """Communication between processes; None: the ranks are devices of one process."""
    cross_device: str | None = None
    """Operations between devices of one process; None: each rank is a process."""
    incarnation: PositiveInt = 1
    """The start of the arm's processes, counted from 1."""

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth, GB/s."""
        return algbw(self.bytes, self.seconds)

    @property
    def busbw(self) -> float:
        """Bus bandwidth, GB/s."""
        return self.algbw * bus_factor(self.op, self.ranks)


@dataclass(frozen=True)
class SweepHeader:
    """What was measured where: collectives.json."""

    command: str
    started: str
    """UTC, ISO 8601."""
    hosts: tuple[str, ...]
    rounds: Count = 0
    """Planned."""
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fact about hardware and software -> its distinct values."""
    link: MeasuredLink = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    """Arms that were refused or failed, with the reason."""
    starts: tuple[tuple[str, ...], ...] = ()
    """Arms of each incarnation in the order of their starts, which is shuffled."""
    same_arms: tuple[tuple[str, str], ...] = ()
    """Pairs of arms that do the same under two names (A/A): their difference is noise."""


@dataclass(frozen=True)
class Sweep:
    """The measurements of one `tfdist collectives`."""

    header: SweepHeader
    lines: tuple[Line, ...]
    """Lines in the order in which they were measured."""
    unreadable: tuple[str, ...] = ()
    """Lines of collectives.jsonl that could not be read, and why."""


@dataclass(frozen=True)
class SweepFolder:
    """Writes the two files."""

    path: Path
    header = FileIn("collectives.json")
    """See `SweepHeader`."""
    lines = FileIn("collectives.jsonl")
    """A `Line` in each line."""

    def save_header(self, header: SweepHeader) -> None:
        """Replace collectives.json."""
        save_json(self.header, {"format": FORMAT, **asdict(header)})

    def append(self, line: Line) -> None:
        """Append a measurement to collectives.jsonl."""
        other = "cross_device" if line.cross_device is None else "communication"
        append_line(self.lines, dumps({key: value for key, value in asdict(line).items() if key != other}))


def holds_collectives(root: Path) -> bool:
    """Whether the folder is one of `tfdist collectives`."""
    return SweepFolder(root).header.exists()


def copy_collectives(source: Path, target: Path) -> None:
    """Copy the two files of `source` into the folder `target`, unless it is the same.

    Raises:
        OSError: a file cannot be read or written.
    """
    if source.resolve() == target.resolve():
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in (SweepFolder(source).header, SweepFolder(source).lines):
        if file.exists():
            replace_file(target / file.name, read_bytes(file))


def read_collectives(root: Path) -> Sweep:
    """The measurements in a folder. Lines that are cut off are listed, not raised.

    Raises:
        TfdistError: the folder is none of `tfdist collectives`, or of another format.
    """
    files = SweepFolder(root)
    try:
        data = printable(load_json(files.header))
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise TfdistError(f"{root} has no readable collectives.json: give the folder of a `tfdist collectives`")
    if data.get("format") not in (1, FORMAT):
        raise TfdistError(
            f"{files.header} has format {shown(data.get('format'))}: this tfdist reads formats 1 and {FORMAT}"
        )
    try:
        header = from_json(data, SweepHeader)
    except ValueError as error:
        raise TfdistError(f"{files.header} is incomplete ({error}): measure again") from None
    lines, unreadable = read_lines(files.lines, lambda value: from_json(value, Line))
    return Sweep(header, tuple(lines), tuple(f"{bad.file}: {bad.reason}" for bad in unreadable))
