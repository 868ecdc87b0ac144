"""What the preflight and the doctor request from agents: prepare, reserve, dial, measure.

Nothing here raises for a lost host: it is added to `fleet.lost` and missing from the answers.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from tfdist.launch.agents import messages
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.package import package_text
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.problems import port_problem
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host

MEASURE_S = 1.0
"""Seconds of sending: enough for TCP to reach full speed on a local network."""


def new_token() -> str:
    """A greeting by which a host that dials a port knows that an agent of this job answers."""
    return os.urandom(16).hex()


def prepare(fleet: Fleet, folders: Mapping[Host, str]) -> dict[Host, messages.Prepared]:
    """Send tfdist to hosts that may lack it, and find out in which folder tasks run.

    A host falls back to the home folder unless the user chose the folder with --chdir.
    """
    package = package_text() if any(host.needs_package for host in folders) else ""
    requests = {
        host: messages.Prepare(package if host.needs_package else "", cwd, not host.chdir)
        for host, cwd in folders.items()
    }
    answers = fleet.ask(requests, "unpack tfdist", fleet.policy.start_timeout_s)
    return {host: answer for host, answer in answers.items() if isinstance(answer, messages.Prepared)}


def reserve(
    fleet: Fleet, ports: Mapping[Host, tuple[int, ...]], token: str
) -> tuple[dict[Host, tuple[int, ...]], dict[Host, Problem]]:
    """Reserve ports (0: any free one) until the agents end. With a token, other hosts can dial them.

    Returns:
        The reserved ports, in the order of the request, and the hosts without.
    """
    requests = {host: messages.Reserve(numbers, token) for host, numbers in ports.items()}
    answers = fleet.ask(requests, "reserve ports", fleet.policy.start_timeout_s)
    reserved = {host: answer.ports for host, answer in answers.items() if isinstance(answer, messages.Reserved)}
    refused = {host: answer for host, answer in answers.items() if isinstance(answer, messages.NotReserved)}
    return reserved, {host: port_problem(host, answer.port, answer.reason) for host, answer in refused.items()}


def dial(
    fleet: Fleet, targets: Mapping[Host, Sequence[tuple[Host, int]]], token: str
) -> dict[tuple[Host, Host, int], str]:
    """Have each host dial its targets (host, port).

    Returns:
        By source, target and port: why the port cannot be reached; empty if it can.
    """
    dial_s = fleet.policy.dial_s
    requests = {
        source: messages.Dial(tuple((target.address, port) for target, port in pairs), token, dial_s)
        for source, pairs in targets.items()
    }
    answers = fleet.ask(requests, "dial the other hosts", dial_s * 2 + fleet.policy.start_timeout_s)
    return {
        (source, target, port): reason
        for source, answer in answers.items()
        if isinstance(answer, messages.DialResult)
        for (target, port), reason in zip(targets[source], answer.failures, strict=True)
    }


def measure(fleet: Fleet, source: Host, target: Host, port: int, token: str) -> Link | Problem:
    """Send for a second to a reserved port of `target` that `source` can reach."""
    request = messages.MeasureLink(target.address, port, token, MEASURE_S)
    answers = fleet.ask({source: request}, "measure a link", MEASURE_S * 2 + fleet.policy.start_timeout_s)
    answer = answers.get(source)
    if not isinstance(answer, messages.LinkSpeed):
        return fleet.lost[source]
    if answer.reason:
        what = f"the link could not be measured ({answer.reason})"
        fix = "check whether a firewall cuts connections that transfer much, and whether both hosts use the same MTU"
        return Problem(what, fix, f"{source.name} -> {target.name}")
    return Link(answer.rtt_s, answer.bytes_per_s)


def close_probes(fleet: Fleet, hosts: Iterable[Host]) -> None:
    """Have hosts stop answering on their reserved ports, which tasks will bind next."""
    for host in hosts:
        fleet.channels[host].send(messages.CloseProbe())
