"""What the tasks of an arm report about a turn -> its lines. Pure."""

from collections.abc import Sequence

from tfdist.bench.collectives.results import Line
from tfdist.bench.plan import PlannedRun
from tfdist.bench.turns import Parked
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.record import CollectiveCase
from tfdist.strategies.options import StrategyName


def lines_of(spec: CollectiveSpec, hosts: int, run: PlannedRun, parked: Parked) -> list[Line]:
    """What the tasks of an arm report about a turn: of each case the time of the slowest task, and all wrong elements.

    Raises:
        TfdistError: the tasks report different cases.
    """
    reports: list[list[CollectiveCase]] = [observed.get("collectives", []) for observed in parked.observed.values()]
    keys = [
        [(case["bytes"], case["tensors"], case["pack_bytes"], case["iterations"]) for case in report]
        for report in reports
    ]
    if any(other != keys[0] for other in keys):
        raise TfdistError(f"{run.arm}: its tasks measured different sizes in a turn", ExitCode.FAILED)
    return [_line(spec, hosts, run, cases) for cases in zip(*reports, strict=True)]


def _line(spec: CollectiveSpec, hosts: int, run: PlannedRun, cases: Sequence[CollectiveCase]) -> Line:
    first, between = cases[0], spec.strategy is StrategyName.MULTI_WORKER
    return Line(
        arm=run.arm,
        op=spec.op,
        hosts=hosts,
        ranks=spec.replicas,
        bytes=first["bytes"],
        tensors=first["tensors"],
        pack_bytes=first["pack_bytes"] or None,
        dtype=spec.gradient_dtype,
        round=run.round,
        iterations=first["iterations"],
        seconds=max(case["seconds"] for case in cases) / first["iterations"],
        wrong=sum(case["wrong"] for case in cases),
        communication=str(spec.communication) if between else None,
        cross_device=None if between else str(spec.cross_device),
    )
