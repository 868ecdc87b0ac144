"""The largest part of a loss -> what to do about it. Pure."""

from collections.abc import Callable, Mapping

from tfdist.bench.lost_time import LostTime, Part
from tfdist.bench.report.summary import ArmRow
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.options import GradientDtype, StrategyName

_OFTEN = 0.75
"""A rank that is the last one in a larger share of steps is a straggler, not chance."""
_MOST = 0.5
"""The link is the limit if its floor is a larger share of the exchange."""


def advice_on(row: ArmRow, lost: LostTime, part: Part) -> str:
    """Sentences that name the cause and what can be tried."""
    return _ADVICE[part](row, lost)


def ring_floor_ms(row: ArmRow, lost: LostTime) -> float | None:
    """The least time in which a ring exchanges the gradients over the measured link, milliseconds; None: unknown.

    Each of n ranks sends 2(n-1)/n of the bytes (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    """
    if row.strategy != StrategyName.MULTI_WORKER or not row.link or not lost.gradient_bytes:
        return None
    return 1000 * 2 * (lost.devices - 1) / lost.devices * lost.gradient_bytes / row.link["bytes_per_s"]


def _shared(row: ArmRow, lost: LostTime) -> str:
    return (
        f"{lost.devices} trainings side by side that exchange nothing already lose it: the devices share cores, "
        "caches, memory bandwidth or power. No strategy wins it back; devices on separate machines do."
    )


def _strategy(row: ArmRow, lost: LostTime) -> str:
    threads = ""
    if row.strategy in (StrategyName.MIRRORED, StrategyName.CENTRAL_STORAGE) and not row.measured[0].spec.get("gpus"):
        threads = " The replicas of one process share its threads: compare multiworker, which has a process for each."
    return (
        f"Each device computes its own gradients more slowly than in a training of its own.{threads} A larger batch or "
        "several steps in a call (steps_per_call) make it weigh less."
    )


def _exchange(row: ArmRow, lost: LostTime) -> str:
    floor, exchange = ring_floor_ms(row, lost), lost.parts[Part.EXCHANGE].value
    size = f"{lost.gradient_bytes / 1e6:.1f} MB" if lost.gradient_bytes > 1e5 else f"{lost.gradient_bytes / 1e3:.1f} kB"
    gradients = f"{size} of gradients"
    if floor is None:
        place = "inside one machine" if row.hosts == 1 else "between hosts"
        return (
            f"{gradients} are copied and added in every step, {place}. A larger batch does it less often per image; "
            f"'tfdist tune --strategy {row.strategy}' tries other ways to exchange them."
        )
    link = f"{row.link['bytes_per_s'] * 8 / 1e6:.0f} Mbit/s"
    if floor > _MOST * exchange:
        whole = row.measured[0].spec.get("gradient_dtype") == GradientDtype.FLOAT32
        halve = "Halve the bytes with --gradient-dtype bfloat16, exchange" if whole else "Exchange"
        return (
            f"The link is the limit: a ring needs at least {floor:.0f} ms for {gradients} over {link}. {halve} less "
            "often per image with a larger batch, or use a faster link."
        )
    return (
        f"The link is not the limit: a ring needs {floor:.0f} ms for {gradients} over {link}. Latency and the work of "
        f"the processes are; 'tfdist tune --strategy {row.strategy}' tries other packs and types."
    )


def _waiting(row: ArmRow, lost: LostTime) -> str:
    last = lost.slowest
    if last is None or last.share < _OFTEN:
        often = f" ({last.rank} in {last.share:.0%} of steps)" if last else ""
        return (
            f"No device is nearly always the last one{often}: steps vary by chance, or because other programs take the "
            "cores. Close them, or use larger batches, which vary less."
        )
    host = f" on {last.host}" if row.hosts > 1 else ""
    return (
        f"{last.rank}{host} is the last one in {last.share:.0%} of steps, and the others wait for it. Look for other "
        "programs on its cores ('tfdist doctor'), lower clocks or slower input; parameter-server does not wait."
    )


def _not_separated(row: ArmRow, lost: LostTime) -> str:
    if row.exchange is Exchange.ASYNC:
        return (
            "Workers read the variables from the parameter servers and send gradients back in every step. Try more "
            "--ps, --set placement=greedy, or a larger batch."
        )
    return "Exchange and waiting are separated only for tfdist's own loop with one step in a call (api = loop)."


def _input(row: ArmRow, lost: LostTime) -> str:
    return (
        "Reading and decoding the data holds the devices up or takes their cores. Store images at the size of the "
        "model, or give the tasks more cores (cores_per_device)."
    )


def _unexplained(row: ArmRow, lost: LostTime) -> str:
    return "No measured part accounts for it: measure more rounds on a quiet machine, and look at the window times."


_ADVICE: Mapping[Part, Callable[[ArmRow, LostTime], str]] = {
    Part.SHARED: _shared,
    Part.STRATEGY: _strategy,
    Part.EXCHANGE: _exchange,
    Part.WAITING: _waiting,
    Part.NOT_SEPARATED: _not_separated,
    Part.INPUT: _input,
    Part.UNEXPLAINED: _unexplained,
}
