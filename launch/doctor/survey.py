"""Examines hosts as a launch would, but continues after a problem, so that all of them are found."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from tfdist.launch.agents.connect import OnProgress, connect
from tfdist.launch.agents.messages import Prepared
from tfdist.launch.cluster import check_ports
from tfdist.launch.doctor.preflight import ALL_PAIRS, Link, dial, measure, new_token, prepare, reserve, ring_peers
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import slots_of
from tfdist.launch.policy import Policy
from tfdist.launch.text import shortened

MEASURE_ALL_PAIRS = 4
"""Number of hosts above which only neighbours in the ring are measured: each pair takes more than a second."""


@dataclass
class Survey:
    """The state of all hosts. Later fields lack hosts that were lost earlier."""

    hosts: tuple[Host, ...]
    hellos: Mapping[Host, Mapping[str, Any]]
    """Each host's description; missing for hosts that could not be connected."""
    lost: Mapping[Host, Problem] = field(default_factory=dict)
    """Hosts that could not be connected, or whose agent was lost."""
    behind_s: Mapping[Host, float] = field(default_factory=dict)
    """How far each clock is behind this machine's."""
    tasks: Mapping[Host, int] = field(default_factory=dict)
    """Number of workers that a launch would place on each host."""
    folders: Mapping[Host, Prepared] = field(default_factory=dict)
    ports: Mapping[Host, tuple[int, ...]] = field(default_factory=dict)
    """The reserved ports."""
    port_problems: Mapping[Host, Problem] = field(default_factory=dict)
    """Hosts whose ports could not be reserved."""
    dial_errors: Mapping[tuple[Host, Host, int], str] = field(default_factory=dict)
    """Why a port cannot be reached, by source, target and port; empty if it can."""
    links: dict[tuple[Host, Host], Link | Problem] = field(default_factory=dict)
    tf_config: bool = False
    """TF_CONFIG is set in the launcher's environment."""


def survey_hosts(
    hosts: Sequence[Host],
    cwd: str,
    port: int | None,
    per_host: int | None,
    policy: Policy,
    on_step: Callable[[str], None],
    on_progress: OnProgress,
) -> Survey:
    """Connect, find the folders, reserve and dial ports, and measure links.

    Args:
        hosts: to connect.
        cwd: the folder in which a job would run.
        port: the first task's port on each host; None: any free ones.
        per_host: workers per host; None: one per GPU, or one.
        policy: timeouts.
        on_step: receives each step after connecting.
        on_progress: receives the hosts that are not connected yet.

    Raises:
        TfdistError: interrupted, the ssh client is missing, or there are no such ports.
    """
    with connect(hosts, policy, require_all=False, on_progress=on_progress) as fleet:
        fleet.hellos = {host.at_interface(hello): hello for host, hello in fleet.hellos.items()}
        survey = Survey(tuple(hosts), fleet.hellos, fleet.lost, tf_config="TF_CONFIG" in os.environ)
        survey.tasks = {
            host: slots_of(host, len(host.gpus or hello["gpus"]), per_host, 1) for host, hello in fleet.hellos.items()
        }
        on_step(f"sending tfdist to {shortened(host.name for host in fleet.hellos)}")
        survey.folders = prepare(fleet, {host: host.chdir or cwd for host in fleet.hellos})
        on_step("reserving ports")
        token = new_token() if len(hosts) > 1 else ""
        survey.ports, survey.port_problems = reserve(fleet, _requested_ports(survey.tasks, port), token)
        on_step("checking that the hosts reach each other")
        survey.dial_errors = dial(fleet, _targets(fleet.hellos, survey.ports), token) if token else {}
        for source, target in _pairs([host for host in survey.ports if host not in fleet.lost]):
            number = survey.ports[target][0]
            if survey.dial_errors.get((source, target, number)) == "":
                on_step(f"measuring {source.name} -> {target.name}")
                survey.links[source, target] = measure(fleet, source, target, number, token)
        survey.behind_s = fleet.behind_s
        return survey


def _requested_ports(tasks: Mapping[Host, int], port: int | None) -> dict[Host, tuple[int, ...]]:
    """The ports to reserve on each host, 0 for any free one: one for each task.

    Raises:
        TfdistError: there are no such ports.
    """
    requested = {}
    for host, count in tasks.items():
        number = max(2, count) if len(tasks) == 1 else count  # a cluster on one host has at least two tasks
        base = host.port or port
        if base is not None:
            check_ports(base, number)
        requested[host] = tuple(base + position if base else 0 for position in range(number))
    return requested


def _targets(sources: Iterable[Host], ports: Mapping[Host, tuple[int, ...]]) -> dict[Host, list[tuple[Host, int]]]:
    """The hosts and ports that each host dials."""
    dialled = hosts_to_dial(sources, list(ports))
    return {source: [(target, port) for target in dialled[source] for port in ports[target]] for source in dialled}


def _pairs(hosts: Sequence[Host]) -> Iterable[tuple[Host, Host]]:
    """The links that are measured: all, or of more than `MEASURE_ALL_PAIRS` hosts those of a ring."""
    return (
        permutations(hosts, 2) if len(hosts) <= MEASURE_ALL_PAIRS else zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    )


def hosts_to_dial(sources: Iterable[Host], hosts: Sequence[Host]) -> dict[Host, list[Host]]:
    """The hosts that each source must reach, itself included: all, or of more than `ALL_PAIRS` its `ring_peers`."""
    ranks = {host: rank for rank, host in enumerate(hosts)}
    dialled = {}
    for source in sources:
        if len(hosts) <= ALL_PAIRS or source not in ranks:
            dialled[source] = list(hosts[:ALL_PAIRS])
        else:
            peers = (hosts[rank] for rank in ring_peers(ranks[source], len(hosts)))
            dialled[source] = list(dict.fromkeys((source, *peers)))
    return dialled
