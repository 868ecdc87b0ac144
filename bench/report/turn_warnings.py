"""Warnings about turns: other load, stolen CPU time, drift. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tfdist.bench.disturbance import LIMIT, Cause, disturbances
from tfdist.bench.report.drift import Drift, drifts_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.report.warning import Warning, listed
from tfdist.launch.machine import BUSY
from tfdist.models.record import BUSY_BEFORE, Record
from tfdist.models.throughput import measuring_ranks

_LIMIT = f"{LIMIT:.0%}"
_TEXTS: Mapping[Cause, tuple[str, str, str]] = {
    "others": (
        "busy-machine",
        f"other programs used more than {_LIMIT} of a host's cores",
        "Close other programs and measure again; more rounds do not remove their effect.",
    ),
    "steal": (
        "stolen-time",
        f"other virtual machines used more than {_LIMIT} of a host's cores",
        "Measure on a machine that is not shared, or at another time.",
    ),
    "drift": (
        "drift-in-turn",
        f"the step time changed by more than {_LIMIT} from the first to the second half",
        "Look for throttling and other load; if it is the arm's own, set a longer warmup in the suite.",
    ),
}
"""Code, text and advice of each cause."""
_MANY_ARMS = 5
"""Fewer than these are always listed with the rounds of each."""


def turn_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Those that apply, with the arms and rounds that they touch."""
    turns = [(row, record) for row in rows for record in row.measured]
    yield from _busy_before([record for _, record in turns])
    found: dict[Cause, dict[str, list[int]]] = {cause: {} for cause in _TEXTS}
    for row, record in turns:
        for one in disturbances({rank.task: rank.windows for rank in measuring_ranks(record)}, record.hosts_usage):
            found[one.cause].setdefault(row.label, []).append(record.round)
    for cause, touched in found.items():
        if touched:
            yield _warning(cause, touched, len(turns), len(rows))
    yield from (_of_drift(drift, len(rows)) for drift in drifts_of(rows))


def _busy_before(records: Sequence[Record]) -> Iterator[Warning]:
    """Records of format 1 have the load just before a run only."""
    shares = [record.hardware.get(BUSY_BEFORE, 0.0) for record in records if not record.hosts_usage]
    busy = [share for share in shares if share > BUSY]
    if busy:
        yield Warning(
            "busy-machine",
            f"Other programs were busy just before {len(busy)} of {len(shares)} runs (up to {max(busy):.0%} of all "
            f"cores).",
            _TEXTS["others"][2],
        )


def _warning(cause: Cause, touched: Mapping[str, Sequence[int]], turns: int, rows: int) -> Warning:
    code, text, advice = _TEXTS[cause]
    number = sum(map(len, touched.values()))
    share, arms = (f"all {turns}", "") if number == turns else (f"{number} of {turns}", _with_rounds(touched, rows))
    return Warning(code, f"In {share} turns {text}{': ' if arms else ''}{arms}.", advice)


def _with_rounds(touched: Mapping[str, Sequence[int]], rows: int) -> str:
    """`a (round 1), b (rounds 2-4, 7)`; of many arms that are all touched, `all arms (rounds 1-4, 7)`."""
    if len(touched) == rows >= _MANY_ARMS:
        touched = {"all arms": [number for rounds in touched.values() for number in rounds]}
    return ", ".join(
        f"{label} ({'round' if len(set(rounds)) == 1 else 'rounds'} {', '.join(_ranges(rounds))})"
        for label, rounds in touched.items()
    )


def _ranges(rounds: Sequence[int]) -> Iterator[str]:
    # consecutive numbers differ from their positions by the same amount
    for _, group in groupby(enumerate(sorted(set(rounds))), key=lambda entry: entry[1] - entry[0]):
        first, *rest = (number for _, number in group)
        yield f"{first}-{rest[-1]}" if rest else str(first)


def _of_drift(drift: Drift, rows: int) -> Warning:
    direction = "slower" if drift.change < 0 else "faster"
    arms = f": {listed(drift.arms, rows)}" if drift.arms else ""
    return Warning(
        "drift-between-rounds",
        f"From round {drift.first} to round {drift.last} the arms together became {abs(drift.change):.0%} {direction}"
        f"{arms}.",
        "Ratios are free of what all arms share, images/s are not: let the machine settle and measure again.",
    )
