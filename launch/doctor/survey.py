"""Examines hosts as a launch would, but continues after a problem, so that all of them are found."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from tfdist.launch.agents.connect import OnProgress, connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.preflight import ALL_PAIRS, dial, measure, new_token, prepare, reserve
from tfdist.launch.doctor.results import Survey
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import check_ports
from tfdist.launch.machine import slots_of
from tfdist.launch.policy import Policy
from tfdist.launch.text import shortened

MEASURE_ALL_PAIRS = 4
"""Number of hosts above which only neighbours in the ring are measured: each pair takes more than a second."""

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class HostRequest:
    """What a job would need of each host."""

    cwd: str
    port: int | None = None
    """The first task's port on each host; None: any free ones."""
    per_host: int | None = None
    """Workers per host; None: one per GPU, or one."""


def survey_hosts(
    hosts: Sequence[Host],
    request: HostRequest,
    policy: Policy | None = None,
    on_step: OnStep = lambda _: None,
    on_progress: OnProgress = lambda _: None,
) -> Survey:
    """Connect, find the folders, reserve and dial ports, and measure links.

    Args:
        hosts: to connect.
        request: what a job would need of them.
        policy: timeouts.
        on_step: receives each step after connecting.
        on_progress: receives the hosts that are not connected yet.

    Raises:
        TfdistError: interrupted, the ssh client is missing, or the ports of the request do not exist.
    """
    with connect(hosts, policy, require_all=False, on_progress=on_progress) as fleet:
        return _survey(hosts, fleet, request, on_step)


def _survey(hosts: Sequence[Host], fleet: Fleet, request: HostRequest, on_step: OnStep) -> Survey:
    tasks = {
        host: slots_of(host, len(host.gpus or hello["gpus"]), request.per_host, 1)
        for host, hello in fleet.hellos.items()
    }
    on_step(f"sending tfdist to {_names(fleet.hellos)}")
    folders = prepare(fleet, {host: host.chdir or request.cwd for host in fleet.hellos})
    on_step("reserving ports")
    token = new_token() if len(hosts) > 1 else ""
    ports, port_problems = reserve(fleet, {host: _ports(host, tasks, request) for host in tasks}, token)
    on_step("checking that the hosts reach each other")
    targets = {
        source: [(target, port) for target in hosts_to_dial(source, list(ports)) for port in ports[target]]
        for source in fleet.hellos
    }
    dial_errors = dial(fleet, targets, token) if token else {}
    links = _measure_links(fleet, ports, dial_errors, token, on_step)
    return Survey(
        tuple(hosts),
        fleet.hellos,
        fleet.lost,
        fleet.behind_s,
        tasks,
        folders,
        ports,
        port_problems,
        dial_errors,
        links,
        tf_config="TF_CONFIG" in os.environ,
    )


def _names(hosts: Iterable[Host]) -> str:
    return shortened(host.name for host in hosts)


def _ports(host: Host, tasks: Mapping[Host, int], request: HostRequest) -> tuple[int, ...]:
    """0 for any free one. A cluster on a single host has at least two tasks.

    Raises:
        TfdistError: there are no such ports.
    """
    count = max(2, tasks[host]) if len(tasks) == 1 else tasks[host]
    base = host.port or request.port
    if base is not None:
        check_ports(base, count)
    return tuple(base + position if base else 0 for position in range(count))


def hosts_to_dial(source: Host, hosts: Sequence[Host]) -> list[Host]:
    """The hosts that `source` must reach, itself included: all, or of more than `ALL_PAIRS` the next and the first."""
    if len(hosts) <= ALL_PAIRS or source not in hosts:
        return list(hosts)[:ALL_PAIRS]
    following = hosts[(hosts.index(source) + 1) % len(hosts)]
    return list(dict.fromkeys((source, following, hosts[0])))


def _measure_links(
    fleet: Fleet,
    ports: Mapping[Host, tuple[int, ...]],
    dial_errors: Mapping[tuple[Host, Host, int], str],
    token: str,
    on_step: OnStep,
) -> dict[tuple[Host, Host], Link | Problem]:
    """All links over which the first port can be reached; of many hosts only those from each to the next."""
    hosts = [host for host in ports if host not in fleet.lost]
    ring = list(zip(hosts, [*hosts[1:], *hosts[:1]], strict=True))
    links = {}
    for source, target in permutations(hosts, 2) if len(hosts) <= MEASURE_ALL_PAIRS else ring:
        if dial_errors.get((source, target, ports[target][0])) == "":
            on_step(f"measuring {source.name} -> {target.name}")
            links[source, target] = measure(fleet, source, target, ports[target][0], token)
    return links
