"""Before any task starts: can this job run on these hosts? A failure names the host, both values or ends, the mend."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.messages import (
    CloseProbe,
    Dial,
    DialResult,
    Note,
    NotPrepared,
    NotReserved,
    Prepare,
    Prepared,
    Reserve,
    Reserved,
)
from tfdist.launch.agents.package import package_text
from tfdist.launch.cluster import Task
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job

ALL_PAIRS = 64
"""With more tasks than this, a host dials its ring neighbour and the leader only."""
EQUAL = ("tensorflow", "tf_keras")
SAME = "install the same, or name another Python with --python"
SLOWEST = "the slowest sets the pace of all"
INSTALL = "install it there, or name the Python that has it with --python or python= in the hostfile"
CAUSES: Mapping[str, str] = {
    "refused": "nothing listens at that address: is it another machine's? Say addr= in the hostfile",
    "timed out": "a firewall drops it: open the port there, or choose others with --port",
    "not resolved": "the name means nothing there: say addr= with an address in the hostfile",
    "something else answers there": "the address is another machine's: say addr= in the hostfile",
}
OTHERWISE = "a firewall rejects it or there is no route: open the port there, or say addr= in the hostfile"


def preflight(job: Job, fleet: Fleet, needs_tensorflow: bool) -> tuple[Job, tuple[Note, ...]]:
    """The job with its ports, folders and cluster, after every check; and what is to be said.

    Raises:
        TfdistError: it could not start; nothing was started.
    """
    missing = without_tensorflow(fleet.hellos) if needs_tensorflow else ()
    problems = [*missing, *unequal(fleet.hellos, but_missing=needs_tensorflow)]
    if problems:
        raise TfdistError("\n".join(problems), ExitCode.HOST_LOST)
    job, notes = prepare(job, fleet)
    token = os.urandom(16).hex() if dials(job) else ""
    job = reserve(job, fleet, token)
    if token:
        reach(job, fleet, token)
    return job, (*fleet.notes, *notes, *unequal_gpus(fleet.hellos))


# --- versions


def unequal(hellos: Mapping[Host, Mapping[str, Any]], but_missing: bool = False) -> Iterator[str]:
    """A sentence for each version that is not the same on all hosts; a missing package is one, too, or left out."""
    for what, found in versions_by_host(hellos).items():
        if len(set(found.values()) - ({""} if but_missing else set())) > 1:
            yield f"{what} is not the same everywhere: {told(found)}; {SAME}"


def told(found: Mapping[str, str]) -> str:
    """`h1 has 2.21.0, h2 has none`."""
    return ", ".join(f"{name} has {version or 'none'}" for name, version in found.items())


def versions_by_host(hellos: Mapping[Host, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Of Python and each package that must be the same everywhere: every host's version."""
    versions = {host.name: versions_of(hello) for host, hello in hellos.items()}
    return {what: {name: its[what] for name, its in versions.items()} for what in ("python", *EQUAL)}


def without_tensorflow(hellos: Mapping[Host, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each host that cannot train for want of a package."""
    for host, hello in hellos.items():
        missing = [name for name in EQUAL if not versions_of(hello)[name]]
        if missing:
            yield f"{host.name} has no {' and no '.join(missing)} for {hello['executable']}: {INSTALL}"


def versions_of(hello: Mapping[str, Any]) -> dict[str, str]:
    """What must be the same on all hosts: Python's minor version, and packages' whole ones; empty: not there."""
    packages = hello["packages"]
    return {"python": ".".join(str(hello["python"]).split(".")[:2]), **{name: packages.get(name, "") for name in EQUAL}}


def unequal_gpus(hellos: Mapping[Host, Mapping[str, Any]]) -> Iterator[Note]:
    """What to say of hosts whose GPUs are of another kind than the first one's."""
    shown = {host: sorted(set(hello["gpus"])) for host, hello in hellos.items() if hello["gpus"]}
    for host, names in shown.items():
        first = next(iter(shown))
        if names != shown[first]:
            theirs = ", ".join(shown[first])
            yield Note(host.name, f"its GPUs are {', '.join(names)} and those of {first.name} {theirs}: {SLOWEST}")


# --- the package and the folder


def prepare(job: Job, fleet: Fleet) -> tuple[Job, list[Note]]:
    """Have our package unpacked where it may not be, and find the folder in which tasks run."""
    cwds = {plan.host: plan.host.chdir or plan.program.cwd for plan in job.plans}
    questions = preparations({host: cwd for host, cwd in cwds.items() if host.needs_package or host.chdir})
    answers = fleet.ask(questions, "unpack tfdist", fleet.policy.hello_s)
    notes, found = [], {}
    for host, message in answers.items():
        if isinstance(message, NotPrepared):
            raise TfdistError(f"{host.name}: {message.reason}", ExitCode.HOST_LOST)
        assert isinstance(message, Prepared)
        found[host] = message.cwd
        if not message.as_requested:
            notes.append(Note(host.name, f"{cwds[host]} is not there, so tasks run in {message.cwd}; --chdir chooses"))
    plans = tuple(
        replace(plan, program=replace(plan.program, cwd=found.get(plan.host, plan.program.cwd))) for plan in job.plans
    )
    return replace(job, plans=plans), notes


def preparations(cwds: Mapping[Host, str]) -> dict[Host, Prepare]:
    """What each host is asked for: its tasks' folder, and with it our package where it may not be."""
    package = package_text() if any(host.needs_package for host in cwds) else ""
    return {host: Prepare(package if host.needs_package else "", cwd, not host.chdir) for host, cwd in cwds.items()}


# --- ports


def reserve(job: Job, fleet: Fleet, token: str) -> Job:
    """Have each host's agent hold its tasks' ports; the job then knows its cluster. With a token, peers may dial."""
    wanted = {host: [plan for plan in job.plans if plan.host == host and plan.port is not None] for host in job.hosts}
    questions = {host: Reserve(tuple(p.port or 0 for p in plans), token) for host, plans in wanted.items() if plans}
    ports: dict[str, int] = {}
    for host, message in fleet.ask(questions, "reserve ports", fleet.policy.hello_s).items():
        if isinstance(message, NotReserved):
            raise TfdistError(port_sentence(host, message.port, message.reason))
        assert isinstance(message, Reserved)
        ports |= {plan.task.name: port for plan, port in zip(wanted[host], message.ports, strict=True)}
    return job.with_ports(ports)


def port_sentence(host: Host, port: int, reason: str) -> str:
    """Why a port could not be had, and the way out."""
    chosen = "port= in the hostfile" if host.port else "--port"
    return (
        f"port {port} on {host.name} cannot be used ({reason.lower()}): choose another {chosen}, or none for free ones"
    )


# --- who reaches whom


@dataclass(frozen=True)
class Target:
    """A task that a host must be able to reach."""

    task: Task
    host: Host


def dials(job: Job) -> dict[Host, tuple[Target, ...]]:
    """Which tasks each host must reach: those that its own tasks talk to, itself included where it has an address.

    All that do up to 64 tasks, else the next one in the ring and the leader. In a job with parameter servers the
    workers need not reach each other, but all servers. One local host alone need not be asked.
    """
    tasks = [Target(plan.task, plan.host) for plan in job.plans if plan.port is not None]
    if all(host.local for host in job.hosts) or not tasks:
        return {}
    ring = dict(zip(tasks, [*tasks[1:], tasks[0]], strict=True))
    leader = next((target for target in tasks if target.task.name == job.leader), tasks[0])
    servers = [target for target in tasks if target.task.role == "ps"]
    wanted: dict[Host, dict[Target, None]] = {host: {} for host in job.hosts}
    for own in tasks:
        peers = tasks if len(tasks) <= ALL_PAIRS else [leader, ring[own], *servers]
        wanted[own.host] |= {peer: None for peer in peers if job.leader is None or _served(own.task, peer.task)}
    return {host: tuple(peers) for host, peers in wanted.items() if peers}


def _served(one: Task, other: Task) -> bool:
    """Whether two tasks of a job with parameter servers talk to each other."""
    return one == other or not one.role == other.role == "worker"


def reach(job: Job, fleet: Fleet, token: str) -> None:
    """Every task's address and port are dialled by every host that will talk to it.

    Raises:
        TfdistError: one cannot be reached; both ends and the likely cause are named.
    """
    wanted, ports = dials(job), {task: endpoint_port(job, task) for task in (plan.task for plan in job.plans)}
    questions = {
        host: Dial(tuple((peer.host.address, ports[peer.task]) for peer in peers), token, fleet.policy.dial_s)
        for host, peers in wanted.items()
    }
    answers = fleet.ask(questions, "dial its peers", fleet.policy.dial_s * 2 + fleet.policy.hello_s)
    problems = []
    for host, message in answers.items():
        assert isinstance(message, DialResult)
        for peer, why in zip(wanted[host], message.failures, strict=True):
            if why:
                problems.append(unreached(host, peer, ports[peer.task], why))
    if problems:
        more = [f"and {len(problems) - 8} more"] if len(problems) > 8 else []
        raise TfdistError("\n".join([*problems[:8], *more]), ExitCode.HOST_LOST)
    for host in questions:
        fleet.channels[host].send(CloseProbe())


def endpoint_port(job: Job, task: Task) -> int:
    """The port that the cluster has for a task."""
    return int(job.cluster.addresses[task.role][task.index].rpartition(":")[2])


def unreached(host: Host, peer: Target, port: int, why: str) -> str:
    """The sentence for one pair."""
    return (
        f"{host.name} cannot reach {peer.task.name} on {peer.host.name} at {peer.host.endpoint(port)} ({why.lower()}): "
        f"{CAUSES.get(why, OTHERWISE)}"
    )
