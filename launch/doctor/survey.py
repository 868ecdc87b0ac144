"""A look at hosts as a launch would find them. Nothing is refused: what fails is noted, and the rest still examined."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from tfdist.launch.agents.fleet import Fleet, connect_some
from tfdist.launch.agents.messages import (
    Dial,
    DialResult,
    LinkSpeed,
    MeasureLink,
    NotReserved,
    Prepared,
    Reply,
    Reserve,
    Reserved,
)
from tfdist.launch.doctor.links import SECONDS, Link
from tfdist.launch.doctor.preflight import ALL_PAIRS, preparations
from tfdist.launch.doctor.results import Survey, TaskFolder
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import check_ports
from tfdist.launch.place import slots_of
from tfdist.launch.policy import Policy

MEASURE_ALL_PAIRS = 4
"""With more hosts only neighbours in the ring are measured: one pair at a time takes a good second."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class HostRequest:
    """What a job would ask of the hosts."""

    cwd: str
    port: int | None = None
    """The first task's port on each host; None: any free ones."""
    per_host: int | None = None
    """Workers on each; None: one a GPU, or one."""


def survey(
    hosts: Sequence[Host], wish: HostRequest, tell: Tell = lambda _: None, policy: Policy | None = None
) -> Survey:
    """Everything there is to find out; `tell` is told each step as it begins.

    Raises:
        TfdistError: the wish contradicts itself, what connects is not there, or the user has had enough.
    """
    tell(f"connecting to {in_short(hosts)}")
    with connect_some(hosts, policy) as fleet:
        tasks = {host: tasks_of(host, hello["gpus"], wish) for host, hello in fleet.hellos.items()}
        tell(f"sending tfdist to {in_short(list(fleet.hellos))}")
        folders = prepare(fleet, wish.cwd)
        tell("holding ports")
        token = os.urandom(16).hex() if len(hosts) > 1 else ""
        ports, refused = reserve(fleet, {host: ports_of(host, tasks, wish) for host in tasks}, token)
        tell("trying all ways between the hosts")
        dialled = dial(fleet, ports, token) if token else {}
        links = {pair: measure(fleet, pair, ports, token, tell) for pair in pairs(fleet, dialled, ports)}
    return Survey(
        tuple(hosts),
        fleet.hellos,
        fleet.lost,
        fleet.behind_s,
        tasks,
        folders,
        ports,
        refused,
        dialled,
        links,
        tf_config="TF_CONFIG" in os.environ,
    )


def in_short(hosts: Sequence[Host]) -> str:
    """Their names, or how many they are."""
    return ", ".join(host.name for host in hosts) if len(hosts) <= 4 else f"{len(hosts)} hosts"


def tasks_of(host: Host, gpus: Sequence[str], wish: HostRequest) -> int:
    """How many workers a launch would give it."""
    return slots_of(host, len(host.gpus or gpus), wish.per_host, 1)


def ports_of(host: Host, tasks: Mapping[Host, int], wish: HostRequest) -> tuple[int, ...]:
    """The ports that its tasks would listen at, 0 for any; a cluster on one host alone has two tasks at least.

    Raises:
        TfdistError: there are no such ports.
    """
    count = max(2, tasks[host]) if len(tasks) == 1 else tasks[host]
    base = host.port or wish.port
    if base is not None:
        check_ports(base, count)
    return tuple(base + position if base else 0 for position in range(count))


def prepare(fleet: Fleet, cwd: str) -> dict[Host, TaskFolder]:
    """Where tasks would run; other hosts have our package then, even those without the folder."""
    wanted = {host: host.chdir or cwd for host in fleet.hellos}
    answers = fleet.inquire(preparations(wanted), "unpack tfdist", fleet.policy.hello_s)
    return {host: folder_of(wanted[host], message) for host, message in answers.items()}


def folder_of(wanted: str, answer: Reply) -> TaskFolder:
    """What an agent has found."""
    if not isinstance(answer, Prepared):
        return TaskFolder(wanted)
    return TaskFolder(answer.cwd if answer.as_requested else wanted, answer.cwd)


def reserve(
    fleet: Fleet, wanted: Mapping[Host, tuple[int, ...]], token: str
) -> tuple[dict[Host, tuple[int, ...]], dict[Host, tuple[int, str]]]:
    """The ports that are held now, and those that could not be."""
    questions = {host: Reserve(ports, token) for host, ports in wanted.items()}
    answers = fleet.inquire(questions, "reserve ports", fleet.policy.hello_s)
    held = {host: message.ports for host, message in answers.items() if isinstance(message, Reserved)}
    refused = {host: (said.port, said.reason) for host, said in answers.items() if isinstance(said, NotReserved)}
    return held, refused


def dial(fleet: Fleet, ports: Mapping[Host, tuple[int, ...]], token: str) -> dict[tuple[Host, Host, int], str]:
    """Every host dials the ports of its peers."""
    targets = {
        host: [(peer, port) for peer in peers(host, list(ports)) for port in ports[peer]] for host in fleet.hellos
    }
    questions = {
        host: Dial(tuple((peer.address, port) for peer, port in those), token, fleet.policy.dial_s)
        for host, those in targets.items()
    }
    answers = fleet.inquire(questions, "dial its peers", fleet.policy.dial_s * 2 + fleet.policy.hello_s)
    return {
        (host, peer, port): why
        for host, message in answers.items()
        if isinstance(message, DialResult)
        for (peer, port), why in zip(targets[host], message.failures, strict=True)
    }


def peers(host: Host, hosts: Sequence[Host]) -> list[Host]:
    """Whom a host must reach, itself included: all, or of very many the first and the next one in the ring."""
    if len(hosts) <= ALL_PAIRS or host not in hosts:
        return list(hosts)[:ALL_PAIRS]
    following = hosts[(hosts.index(host) + 1) % len(hosts)]
    return list(dict.fromkeys((host, following, hosts[0])))


def pairs(
    fleet: Fleet, dialled: Mapping[tuple[Host, Host, int], str], ports: Mapping[Host, tuple[int, ...]]
) -> list[tuple[Host, Host]]:
    """The ways to measure, of those that are open: all, or of many hosts each to the next in the ring."""
    hosts = [host for host in ports if host not in fleet.lost]
    every = list(permutations(hosts, 2))
    ring = [(one, other) for one, other in zip(hosts, [*hosts[1:], *hosts[:1]], strict=True) if one != other]
    chosen = every if len(hosts) <= MEASURE_ALL_PAIRS else ring
    return [(one, other) for one, other in chosen if dialled.get((one, other, ports[other][0])) == ""]


def measure(
    fleet: Fleet, pair: tuple[Host, Host], ports: Mapping[Host, tuple[int, ...]], token: str, tell: Tell
) -> Link | str:
    """A short transfer from one host to a port of another that is known to be open; why, if that fails."""
    one, other = pair
    tell(f"measuring {one.name} -> {other.name}")
    question = MeasureLink(other.address, ports[other][0], token, SECONDS)
    answers = fleet.inquire({one: question}, "measure the way to a peer", SECONDS * 2 + fleet.policy.hello_s)
    said = answers.get(one)
    if not isinstance(said, LinkSpeed):
        return fleet.lost.get(one, "it gave no answer")
    return said.reason or Link(said.rtt_s, said.bytes_per_s)
