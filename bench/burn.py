"""Whether all hosts compute, and all links between them exchange, as fast as the others: before an expensive job.

All hosts train independently at the same time; then pairs of hosts all-reduce, one pair after the other. Each is
compared with the others, because how fast it should be is not known.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from queue import SimpleQueue
from statistics import median

from tfdist.bench.arm_process import ArmStart, Ended, News, start_arm
from tfdist.bench.collectives.run import TURN
from tfdist.bench.turns import END, Parked, plan_turn
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.request import Request
from tfdist.launch.agent_program.system import temporary_root
from tfdist.launch.agents.inbox import Interrupted, interruptions
from tfdist.launch.doctor.checks import CheckResult, Verdict
from tfdist.launch.doctor.survey import MEASURE_ALL_PAIRS
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.events import Turn
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import FOR_WORKERS, Machines, check_burned
from tfdist.launch.policy import Policy
from tfdist.models.collectives.spec import algbw
from tfdist.strategies.options import StrategyName

SLOW_HOST = 0.8
"""A host is slow below this part of the median of all hosts."""
SLOW_LINK = 0.5
"""A link is slow below this part of what its hosts reach elsewhere: switches and cables have other traffic."""
SIZE = 16 << 20
"""Bytes of the all-reduce: about the gradients of MobileNetV2."""
START_S = 120.0
"""Time for the start of all tasks, and for a turn beyond its seconds."""


@dataclass
class BurnResult:
    """How fast hosts and links were."""

    images_per_s: dict[Host, float] = field(default_factory=dict)
    """Throughput of all tasks of a host together, or of each of its GPUs."""
    of: str = "images/s"
    throttled: dict[Host, str] = field(default_factory=dict)
    """Why GPUs of a host lowered their clocks."""
    busbw: dict[tuple[Host, Host], float] = field(default_factory=dict)
    """Bus bandwidth of the all-reduce between two hosts, GB/s."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why nothing was measured, by the names of hosts."""


def burn(machines: Machines, seconds: float, on_step: Callable[[str], None]) -> BurnResult:
    """Let all hosts compute for `seconds`, and pairs of them exchange for as long together.

    Args:
        machines: with slots for their workers.
        seconds: of each of the two.
        on_step: receives what is done now.

    Raises:
        TfdistError: there is only one host, or a signal came.
    """
    machines = {host: machine for host, machine in machines.items() if host.role in FOR_WORKERS}
    check_burned(machines)
    hosts = list(machines)
    found = BurnResult()
    names = " and ".join(host.name for host in hosts[:2])
    on_step(f"{names} ... compute" if len(hosts) > 2 else f"{names} compute")
    with _noted(found, "all hosts"):
        _compute(machines, seconds, found)
    neighbours = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    pairs = list(combinations(hosts, 2) if len(hosts) <= MEASURE_ALL_PAIRS else neighbours)
    for pair in pairs:
        name = f"{pair[0].name} and {pair[1].name}"
        on_step(f"{name} exchange")
        with _noted(found, name):
            two = {host: replace(machines[host], slots=1) for host in pair}
            found.busbw[pair] = _exchange(two, seconds / len(pairs))
    return found


@contextmanager
def _noted(found: BurnResult, name: str) -> Iterator[None]:
    try:
        yield
    except TfdistError as error:
        if error.exit_code > SIGNALS:
            raise
        found.failed[name] = str(error)


def _compute(machines: Machines, seconds: float, found: BurnResult) -> None:
    """Note the images/s of each host, and why its GPUs lowered their clocks, while all train independently."""
    workers = sum(machine.slots or 1 for machine in machines.values())
    choices = {"strategy": StrategyName.INDEPENDENT, "workers": workers, "dataset": "synthetic", "preset": "smoke"}
    planned = plan(Request(choices, paced=True, pinned=False), machines)
    parked = _measured(planned, seconds, lambda parked: plan_turn(seconds, parked.step_s, seconds / 10))
    for each in planned.job.plans:
        windows = parked.windows.get(each.task.name, ())
        rate = median(window.examples / window.elapsed_s for window in windows) if windows else 0.0
        if planned.spec.gpus:  # of which hosts may have different numbers
            rate /= machines[each.host].slots or 1
            found.of = "images/s per GPU"
        found.images_per_s[each.host] = found.images_per_s.get(each.host, 0.0) + rate
        reasons = {gpu.throttle for window in windows if window.usage for gpu in window.usage.gpus} - {"", "unknown"}
        if reasons:
            found.throttled[each.host] = ", ".join(sorted(reasons))


def _exchange(machines: Machines, seconds: float) -> float:
    """Bus bandwidth of the all-reduce between two hosts, GB/s, of the task that saw less."""
    choices = {"strategy": StrategyName.MULTI_WORKER, "workers": 2}
    cases = {"sizes": (SIZE,), "turn_s": seconds}
    planned = plan(Request(choices, paced=True, collective=cases), machines)
    parked = _measured(planned, seconds, lambda _: TURN)
    found = [observed["collectives"][0] for observed in parked.observed.values()]
    return min(algbw(case["bytes"], case["seconds"] / case["iterations"]) for case in found)  # busbw of two ranks too


def _measured(planned: Planned, seconds: float, turn: Callable[[Parked], Turn]) -> Parked:
    """Start an arm, measure a turn of about `seconds`, and end it.

    Raises:
        TfdistError: it failed, or a signal came; the reason.
    """
    news = SimpleQueue[News]()
    parked = list[Parked]()
    with tempfile.TemporaryDirectory(prefix="tfdist-burn-", dir=temporary_root()) as folder, interruptions(news.put):
        policy = Policy(timeout_s=START_S + seconds)
        arm = start_arm(ArmStart("burn", 1, planned, Path(folder, "run"), policy), news.put)
        while True:
            match news.get():
                case Interrupted(number):
                    arm.interrupt(number)
                case Parked() as last:
                    parked.append(last)
                    arm.release(turn(last) if len(parked) == 1 else END)
                case Ended(record=record):
                    if len(parked) < 2 or record.exit_code > SIGNALS:
                        raise TfdistError(record.reason, record.exit_code)
                    return parked[-1]


def rows_of(found: BurnResult) -> Iterator[CheckResult]:
    """A row for each host and each link: how fast it was, and whether that is slow."""
    for name, reason in found.failed.items():
        yield CheckResult("burn", name, Verdict.FAILED, reason, "see the other rows, or run it with 'tfdist launch'")
    usual = median(found.images_per_s.values()) if found.images_per_s else 0.0
    for host, rate in found.images_per_s.items():
        text = f"{rate:,.0f} {found.of}"
        hot = found.throttled.get(host, "")
        fix = ""
        note = f"; GPUs slowed down: {hot}" if hot else ""
        if rate < SLOW_HOST * usual:
            text += f", {rate / usual:.0%} of the median of the hosts ({usual:,.0f})"
            fix = f"look for other programs, limits of its cgroup, heat and memory errors, or --exclude {host.name}"
        elif re.search("heat|hardware|brake", hot):  # a GPU that computes is often at its power cap
            fix = "check its cooling and power limits with 'nvidia-smi -q -d PERFORMANCE'"
        yield CheckResult("compute", host.name, Verdict.WARNING if fix else Verdict.OK, text + note, fix)
    best: dict[Host, float] = {}
    for pair, speed in found.busbw.items():
        for host in pair:
            best[host] = max(speed, best.get(host, 0.0))
    top = median(best.values()) if best else 0.0
    for (one, other), speed in found.busbw.items():
        name, text = f"{one.name} - {other.name}", f"all-reduce {speed * 1e3:,.0f} MB/s"
        slow = [host.name for host in (one, other) if best[host] < SLOW_LINK * top]
        busy = [host.name for host in (one, other) if found.images_per_s.get(host, usual) < SLOW_HOST * usual]
        fix = "check cables, switches and rate limits, or choose another network with --interface"
        if busy:
            text = f"{text}; {busy[0]} computes too slowly to tell"
            fix = ""
        elif slow:
            text += f": every link of {slow[0]} is slow; those of the others reach {top * 1e3:,.0f} MB/s"
        elif speed < SLOW_LINK * min(best[one], best[other]):
            text += f": each of the two reaches {min(best[one], best[other]) * 1e3:,.0f} MB/s with another host"
        else:
            fix = ""
        yield CheckResult("exchange", name, Verdict.WARNING if fix else Verdict.OK, text, fix)
