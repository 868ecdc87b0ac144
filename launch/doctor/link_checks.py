"""The checks between hosts: who reaches whom, how fast, and what that means for a training. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.problems import unreachable
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict
from tfdist.launch.hosts.host import Host
from tfdist.launch.text import shortened

GRADIENT_BYTES = 3_504_872 * 4
"""The least that an all-reduce of MobileNetV2 transfers: its trainable parameters (alpha 1, 1000 classes)."""
SLOW_BYTES_PER_S = 500e6 / 8
"""Half of gigabit Ethernet. Less is a cable or switch that fell back to 100 Mbit/s, a wireless link, or a rate limit;
the gradients of MobileNetV2 then take over 0.2 s per step."""
SLOW_RTT_S = 0.010
"""A local network has less than 1 ms. An all-reduce waits for several round trips; at 10 ms these take as long as a
step of a small model."""
MOST_SHOWN = 8
"""Hosts and ports in a row; more are counted."""


def reachability_rows(survey: Survey) -> Iterator[CheckResult]:
    """A row for each host that all others reach, else one for each reason why some do not."""
    for host in survey.ports:
        errors = {(source, port): why for (source, target, port), why in survey.dial_errors.items() if target == host}
        for reason in sorted(set(errors.values()) - {""}):
            sources, endpoint = _ends(host, [pair for pair, why in errors.items() if why == reason])
            problem = unreachable(sources, host.name, endpoint, reason)
            yield CheckResult("reachability", host.name, Verdict.FAILED, problem.what, problem.fix)
        if errors and not any(errors.values()):
            sources, endpoint = _ends(host, list(errors))
            yield CheckResult("reachability", host.name, Verdict.OK, f"reached at {endpoint} by {sources}")


def _ends(target: Host, pairs: Sequence[tuple[Host, int]]) -> tuple[str, str]:
    ports = {port for _, port in pairs}
    endpoint = target.endpoint(*ports) if len(ports) == 1 else f"{target.address}, {port_list(ports)},"
    return shortened((source.name for source, _ in pairs), MOST_SHOWN), endpoint


def port_list(ports: Iterable[int]) -> str:
    """`port 5000`, `ports 5000-5003`, `ports 5000, 5007`, or the number of ports if there are many."""
    ports = sorted(ports)
    if len(ports) == 1:
        return f"port {ports[0]}"
    if ports[-1] - ports[0] == len(ports) - 1:
        return f"ports {ports[0]}-{ports[-1]}"
    return f"ports {', '.join(map(str, ports))}" if len(ports) <= MOST_SHOWN else f"{len(ports)} ports"


def link_rows(survey: Survey) -> Iterator[CheckResult]:
    """A row for each link, unless it failed because one of its hosts was lost."""
    for (source, target), link in survey.links.items():
        name = f"{source.name} -> {target.name}"
        if isinstance(link, Link):
            yield CheckResult("link", name, *_speed(link))
        elif survey.lost.keys().isdisjoint((source, target)):
            yield CheckResult("link", name, Verdict.FAILED, link.what, link.fix)


def _speed(link: Link) -> tuple[Verdict, str, str]:
    if link.bytes_per_s < SLOW_BYTES_PER_S:
        step_s = GRADIENT_BYTES / max(link.bytes_per_s, 1.0)
        text = f"{link}: the gradients of MobileNetV2 would take {step_s:.1f} s per step"
        fix = "check cables, switches and rate limits, or choose another network with addr= in the hostfile"
        return Verdict.WARNING, text, fix
    if link.rtt_s > SLOW_RTT_S:
        text = f"{link}: every step waits for several round trips"
        return Verdict.WARNING, text, "use hosts on one local network, or larger batches"
    return Verdict.OK, str(link), ""
