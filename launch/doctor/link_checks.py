"""The ways between hosts, judged: who reaches whom, how fast, and what that means for a training. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.preflight import CAUSES, OTHERWISE
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict
from tfdist.launch.hosts.host import Host

GRADIENT_BYTES = 3_504_872 * 4
"""What every all-reduce of MobileNetV2 has to move at least: its trainable parameters (alpha 1, 1000 classes)."""
SLOW_BYTES_PER_S = 500e6 / 8
"""Half of gigabit Ethernet. Less is a cable or switch that fell back to 100 Mbit/s, a wireless link, or a limit; the
gradients of MobileNetV2 then take over 0.2 s a step."""
SLOW_RTT_S = 0.010
"""A local network has less than 1 ms. An all-reduce waits for several round trips, and from 10 ms on that is as long as
a step of a small model: such hosts are in different places."""
SHOWN = 8


def reach_rows(findings: Survey) -> Iterator[CheckResult]:
    """A row for each host whose tasks everybody reaches, and one for each reason why somebody does not."""
    for host in findings.ports:
        tried = {(one, port): why for (one, other, port), why in findings.dialled.items() if other == host}
        reasons = sorted({why for why in tried.values() if why})
        for why in reasons:
            yield blocked(host, [key for key, said in tried.items() if said == why], why)
        if tried and not reasons:
            text = f"reached at {endpoints(host, (port for _, port in tried))} by {names([one for one, _ in tried])}"
            yield CheckResult("reachability", host.name, Verdict.OK, text)


def blocked(host: Host, tried: Sequence[tuple[Host, int]], why: str) -> CheckResult:
    """Both ends, and the likely cause."""
    who, where = names([one for one, _ in tried]), endpoints(host, (port for _, port in tried))
    text = f"{who} cannot reach {host.name} at {where} ({why.lower()})"
    return CheckResult("reachability", host.name, Verdict.FAILED, text, CAUSES.get(why, OTHERWISE))


def endpoints(host: Host, ports: Iterable[int]) -> str:
    """The addresses that were dialled."""
    tried = sorted(set(ports))
    return host.endpoint(tried[0]) if len(tried) == 1 else f"{host.address}, {listed(tried)},"


def listed(ports: Sequence[int]) -> str:
    """`port 5000`, `ports 5000-5003`, or how many if there are many here and there."""
    first, last = min(ports), max(ports)
    if len(ports) == 1:
        return f"port {first}"
    if last - first == len(ports) - 1:
        return f"ports {first}-{last}"
    return f"ports {', '.join(map(str, sorted(ports)))}" if len(ports) <= SHOWN else f"{len(ports)} ports"


def names(hosts: Sequence[Host]) -> str:
    """Each once; of very many the first few."""
    every = list(dict.fromkeys(host.name for host in hosts))
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def link_rows(findings: Survey) -> Iterator[CheckResult]:
    """A row for each way that was measured, or was not though both ends are still there."""
    for (one, other), link in findings.links.items():
        way = f"{one.name} -> {other.name}"
        if isinstance(link, Link):
            yield judged(way, link)
        elif findings.lost.keys().isdisjoint((one, other)):
            mend = "see whether a firewall cuts connections that carry much, and whether both use the same MTU"
            yield CheckResult("link", way, Verdict.FAILED, f"it could not be measured ({link})", mend)


def judged(way: str, link: Link) -> CheckResult:
    """Fast enough, or not."""
    if link.bytes_per_s < SLOW_BYTES_PER_S:
        step_s = GRADIENT_BYTES / max(link.bytes_per_s, 1.0)
        text = f"{link.in_words()}: the gradients of MobileNetV2 would take {step_s:.1f} s a step"
        mend = "look for a slow cable, switch or limit on the way, or choose another network with addr= in the hostfile"
        return CheckResult("link", way, Verdict.WARNING, text, mend)
    if link.rtt_s > SLOW_RTT_S:
        text = f"{link.in_words()}: every step waits for several such round trips"
        return CheckResult("link", way, Verdict.WARNING, text, "use hosts that are near each other, and larger batches")
    return CheckResult("link", way, Verdict.OK, link.in_words())
