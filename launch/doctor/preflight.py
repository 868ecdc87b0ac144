"""Checks the hosts of a job before its tasks start, and raises the problems of the first check that fails."""

import base64
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise

from tfdist.launch.agent_program import system
from tfdist.launch.agent_program.probe import MAX_THREADS
from tfdist.launch.agents import messages
from tfdist.launch.agents.bootstrap import package_text
from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.fleet import Fleet, OnWait
from tfdist.launch.agents.inbox import Note
from tfdist.launch.cluster import Task
from tfdist.launch.doctor import problems
from tfdist.launch.environment import COPY_DIR
from tfdist.launch.errors import ExitCode, Problem, TfdistError, raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job, TaskPlan
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.text import shortened

MEASURE_S = 1.0
"""Seconds of sending: enough for TCP to reach full speed on a local network."""
ALL_PAIRS = 64
"""Number of tasks above which a task dials only those that it connects to in TensorFlow."""
PART = 3 << 18
"""Bytes of an archive in one message."""
SLOWEST_LINK = 125_000
"""Bytes/s at which a copy still arrives in time: 1 Mbit/s."""
MOST_PAIRS = 8
"""Unreachable pairs in a message; more are counted."""


@dataclass(frozen=True)
class Link:
    """The link from one host to another, measured with one TCP stream."""

    rtt_s: float
    bytes_per_s: float

    def __str__(self) -> str:
        """`941 Mbit/s, 0.21 ms`."""
        return f"{self.bytes_per_s * 8 / 1e6:,.0f} Mbit/s, {self.rtt_s * 1e3:.2f} ms"


Links = Mapping[tuple[Host, Host], Link]


def slowest(links: Links, hosts: Sequence[Host]) -> dict[str, float]:
    """Lowest bytes_per_s and highest rtt_s between neighbours in `hosts`; empty if none was measured."""
    measured = [links[pair] for pair in pairwise(hosts) if pair in links]
    if not measured:
        return {}
    return {"bytes_per_s": min(link.bytes_per_s for link in measured), "rtt_s": max(link.rtt_s for link in measured)}


def new_token() -> str:
    """A greeting by which a host that dials a port knows that an agent of this job answers."""
    return os.urandom(16).hex()


def prepare(
    fleet: Fleet,
    folders: Mapping[Host, str],
    script: str = "",
    archive: bytes = b"",
    on_wait: OnWait = lambda _: None,
) -> dict[Host, messages.Prepared]:
    """Send tfdist to hosts that may lack it, and find out in which folder tasks run, and which `script` is in it.

    A host falls back to the home folder unless the user chose the folder with --chdir.

    Args:
        fleet: of the hosts.
        folders: by host.
        script: a path relative to the folder.
        archive: the copy that tasks run in, for hosts that do not have it yet.
        on_wait: see `Fleet.ask`.
    """
    requests = {host: messages.Prepare(cwd, not host.chdir, script, bool(archive)) for host, cwd in folders.items()}
    _send_package(channel for host, channel in fleet.channels.items() if host in folders and host.needs_package)
    if archive:
        _send_copy([channel for host, channel in fleet.channels.items() if host in folders], archive)
    seconds = fleet.policy.start_timeout_s + len(archive) / SLOWEST_LINK
    answers = fleet.ask(requests, "unpack the copy" if archive else "unpack tfdist", seconds, on_wait)
    return {host: answer for host, answer in answers.items() if isinstance(answer, messages.Prepared)}


def _send_package(channels: Iterable[Channel]) -> None:
    """Send tfdist where it was not sent yet. It has a megabyte, so all share one in memory."""
    missing = [channel for channel in channels if not channel.has_package]
    line = messages.encode(messages.Package(package_text())) if missing else b""
    for channel in missing:
        channel.send_encoded(line)
        channel.has_package = True


def _send_copy(channels: Iterable[Channel], archive: bytes) -> None:
    """Send the archive where it was not sent yet, in parts that a host need not keep in memory together."""
    missing = [channel for channel in channels if not channel.has_copy]
    for at in range(0, len(archive) if missing else 0, PART):
        part = base64.b64encode(archive[at : at + PART]).decode()
        line = messages.encode(messages.CopyPart(part))  # once for all
        for channel in missing:
            channel.send_encoded(line)
    for channel in missing:
        channel.has_copy = True


def reserve(
    fleet: Fleet, ports: Mapping[Host, tuple[int, ...]], token: str
) -> tuple[dict[Host, tuple[int, ...]], dict[Host, Problem]]:
    """Reserve ports (0: any free one) until the agents end. With a token, other hosts can dial them.

    Returns:
        The reserved ports, in the order of the request, and the hosts without, or whose address another one has.
    """
    requests = {host: messages.Reserve(numbers, token) for host, numbers in ports.items()}
    answers = fleet.ask(requests, "reserve ports", fleet.policy.start_timeout_s)
    reserved = {host: answer.ports for host, answer in answers.items() if isinstance(answer, messages.Reserved)}
    refused = {host: answer for host, answer in answers.items() if isinstance(answer, messages.NotReserved)}
    found = {host: problems.port_problem(host, answer.port, answer.reason) for host, answer in refused.items()}
    first: dict[str, Host] = {}
    for host, numbers in reserved.items():
        for endpoint in map(host.endpoint, numbers):
            if first.setdefault(endpoint, host) != host:
                found[host] = problems.same_address(host, first[endpoint], endpoint)
    return reserved, found


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
    rounds = math.ceil(max(map(len, targets.values()), default=1) / MAX_THREADS)  # all of one host may be unreachable
    answers = fleet.ask(requests, "dial the other hosts", rounds * dial_s * 2 + fleet.policy.start_timeout_s)
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


def check_checkpoint_folder(job: Job, fleet: Fleet) -> None:
    """Have one host write a file there and the others find it. The folder is created if it does not exist.

    Raises:
        TfdistError: the folder cannot be written, or is another one on some host.
    """
    hosts = job.checkpoint_hosts
    path = job.checkpoint_dir
    token = new_token()
    if not hosts:
        return

    def ask(asked: tuple[Host, ...], action: messages.FolderAction) -> list[Problem]:
        """Why the action failed on some of the hosts."""
        requests = {host: messages.CheckFolder(path, token, action) for host in asked}
        answers = fleet.ask(requests, f"answer about the checkpoint folder {path}", fleet.policy.start_timeout_s)
        failed = []
        for host, answer in answers.items():
            if isinstance(answer, messages.FolderChecked) and answer.reason:
                what = f"the checkpoint folder {path} {answer.reason}"
                fix = "choose another one with --checkpoint-dir"
                if answer.reason.startswith(system.UNSAFE):
                    fix = f"or {fix}"
                if answer.reason == system.NOT_SHARED:
                    what = f"the checkpoint folder {path} is not that of {hosts[0].name}"
                    fix = "choose a folder on a disk that all hosts share, with --checkpoint-dir"
                failed.append(Problem(what, fix, host.name))
        return failed

    steps: tuple[tuple[tuple[Host, ...], messages.FolderAction], ...] = ((hosts[:1], "write"), (hosts[1:], "read"))
    try:
        for asked, action in steps:
            failed = ask(asked, action)
            raise_problems(fleet.lost.values())
            raise_problems(failed, ExitCode.USAGE)
    finally:
        ask(hosts[:1], "remove")


def preflight(
    job: Job, fleet: Fleet, needs_tensorflow: bool, on_wait: OnWait = lambda _: None
) -> tuple[Job, tuple[Note, ...]]:
    """Check the hosts, send them the copy of the program's folder, and reserve ports.

    Args:
        job: to be started.
        fleet: of its hosts.
        needs_tensorflow: refuse hosts without.
        on_wait: receives the hosts that have not unpacked the copy yet, before each wait.

    Returns:
        The job with its ports, folders and cluster; and warnings.

    Raises:
        TfdistError: the job cannot start; no task was started.
    """
    keras = _check_packages(fleet, needs_tensorflow)
    clocks = [problems.clock_problem(host, fleet.behind_s[host]) for host in fleet.hellos]  # in the order of the hosts
    job, elsewhere = _in_folders(job, fleet, on_wait)
    check_checkpoint_folder(job, fleet)
    targets = dial_targets(job)
    token = new_token() if targets else ""
    endpoints = _reserve_ports(job, fleet, token)
    _check_links(fleet, targets, endpoints, token)
    close_probes(fleet, targets)
    notes = [Note(problem.host, problem.sentence) for problem in filter(None, [*clocks, *elsewhere])]
    notes += _not_dialled(job, targets)
    if keras is not None:
        notes.append(Note(problems.ALL_HOSTS, f"{keras.what}; it matters if the program uses tf.keras"))
    job = job.with_ports({task.name: port for task, (_, port) in endpoints.items()})
    return job, (*notes, *gpu_notes(job, fleet.hellos))


def _check_packages(fleet: Fleet, needs_tensorflow: bool) -> Problem | None:
    """Refuse hosts without packages that the job needs, or of other versions; returns what only matters for tf.keras.

    Raises:
        TfdistError: there is such a host.
    """
    missing = [problems.missing_packages(host, hello) for host, hello in fleet.hellos.items() if needs_tensorflow]
    versions = problems.version_problems(fleet.hellos, ignore_missing=needs_tensorflow)
    keras = None if needs_tensorflow else versions.pop("tf_keras", None)
    raise_problems([*filter(None, missing), *versions.values()])
    return keras


def _in_folders(job: Job, fleet: Fleet, on_wait: OnWait) -> tuple[Job, list[Problem | None]]:
    """The job in the folders that its hosts have, or in copies; and where that is another folder than here.

    Raises:
        TfdistError: a host is lost, or has no such folder or script, or no room for the copy.
    """
    requested = {plan.host: plan.host.chdir or plan.program.folder for plan in job.plans}
    archive = job.copy.archive if job.copy is not None else b""
    script = "" if all(host.local for host in requested) or job.copy is not None else job.plans[0].script
    asked = {host: cwd for host, cwd in requested.items() if host.needs_package or host.chdir or script or archive}
    folders = prepare(fleet, asked, script, archive, on_wait)
    raise_problems(fleet.lost.values())
    if copy := job.copy:
        raise_problems(problems.copy_problem(host, reply.reason) for host, reply in folders.items() if reply.reason)
        job = replace(job, plans=tuple(_in_copy(plan, folders.get(plan.host), copy) for plan in job.plans))
        if copy.folder:
            return job, []
    elsewhere = {host: problems.folder_problem(host, folder) for host, folder in folders.items()}
    raise_problems(problem for host, problem in elsewhere.items() if problem and not folders[host].actual)
    raise_problems(problems.script_problems(script, folders) if script else ())
    plans = tuple(
        replace(plan, program=replace(plan.program, cwd=folders[plan.host].actual)) if plan.host in folders else plan
        for plan in job.plans
    )
    return replace(job, plans=plans), list(elsewhere.values())


def _in_copy(plan: TaskPlan, folder: messages.Prepared | None, copy: ProgramCopy) -> TaskPlan:
    """The task in the copy on its host, or only knowing it; as it is in a dry run, which copies nothing."""
    if folder is None or not folder.copied:
        return plan
    program = replace(plan.program, env={**plan.program.env, COPY_DIR: folder.copied})
    if copy.folder:
        program = replace(program, cwd=folder.copied, copy_of=folder.actual)
    return replace(plan, program=program)


def _reserve_ports(job: Job, fleet: Fleet, token: str) -> dict[Task, tuple[Host, int]]:
    """The host and the reserved port of each task that has one.

    Raises:
        TfdistError: a host is lost, or a port cannot be reserved.
    """
    with_port = {host: [plan for plan in plans if plan.port is not None] for host, plans in job.plans_on.items()}
    ports = {host: tuple(plan.port or 0 for plan in of_host) for host, of_host in with_port.items() if of_host}
    reserved, refused = reserve(fleet, ports, token)
    raise_problems(fleet.lost.values())
    raise_problems(refused.values(), ExitCode.USAGE)
    return {
        plan.task: (host, port) for host in reserved for plan, port in zip(with_port[host], reserved[host], strict=True)
    }


def _check_links(
    fleet: Fleet,
    targets: Mapping[Host, Sequence[Task]],
    endpoints: Mapping[Task, tuple[Host, int]],
    token: str,
) -> None:
    """Have each host dial its targets.

    Raises:
        TfdistError: a host is lost, or cannot reach one.
    """
    errors = dial(fleet, {source: [endpoints[task] for task in tasks] for source, tasks in targets.items()}, token)
    raise_problems(fleet.lost.values())
    names = {endpoint: f"{task.name} on {endpoint[0].name}" for task, endpoint in endpoints.items()}
    unreached = [
        problems.unreachable(source.name, names[host, port], host.endpoint(port), reason)
        for (source, host, port), reason in errors.items()
        if reason
    ]
    raise_problems(unreached, most=MOST_PAIRS)


def measure_neighbours(fleet: Fleet, hosts: list[Host]) -> Links:
    """The link from each host to the next in the list, measured one after the other.

    Raises:
        TfdistError: a host cannot reach the next one.
    """
    prepare(fleet, {host: "/" for host in hosts if host.needs_package})
    token = new_token()
    hosts = [host.at_interface(fleet.hellos[host]) for host in hosts]
    ports, refused = reserve(fleet, dict.fromkeys(hosts, (0,)), token)
    raise_problems([*fleet.lost.values(), *refused.values()])
    errors = dial(fleet, {one: [(other, ports[other][0])] for one, other in pairwise(hosts)}, token)
    raise_problems(fleet.lost.values())
    raise_problems(
        problems.unreachable(one.name, other.name, other.endpoint(port), error)
        for (one, other, port), error in errors.items()
        if error
    )
    links = {}
    for one, other in pairwise(hosts):
        link = measure(fleet, one, other, ports[other][0], token)
        if isinstance(link, Problem):
            raise TfdistError(str(link), ExitCode.HOST_LOST)
        links[one, other] = link
    close_probes(fleet, hosts)
    return links


def gpu_notes(job: Job, hellos: problems.Hellos) -> Iterator[Note]:
    """Notes on GPUs: of other models than on the first host, that TensorFlow will not see, or that are in use."""
    found = problems.gpu_models({host: hellos[host] for host in job.hosts})
    models = {host: ", ".join(names) for host, names in found.items() if names}
    first = next(iter(models), None)
    for host in models:
        if first is not None and models[host] != models[first]:
            text = f"its GPUs are {models[host]}, those of {first.name} {models[first]}: {problems.SLOWEST}"
            yield Note(host.name, text)
    noted = [problems.unseen_gpus(host, hellos[host]) for host in job.hosts]
    for host, plans in job.plans_on.items():
        visible = [plan.program.env.get("CUDA_VISIBLE_DEVICES", "") for plan in plans]
        gpus = dict.fromkeys(",".join(visible).split(","))
        noted.append(problems.gpus_in_use(host, hellos[host], gpus, os.getpid()))
    for problem in filter(None, noted):
        yield Note(problem.host, problem.sentence)


def dial_targets(job: Job) -> dict[Host, tuple[Task, ...]]:
    """The tasks that each host must reach: those its own tasks connect to, including tasks on the same host.

    Up to `ALL_PAIRS` tasks dial each other, of more those that `_peers` names. Workers that serve a chief do not
    connect to each other. Empty if all hosts are this machine.
    """
    hosts = {plan.task: plan.host for plan in job.plans if plan.port is not None}
    tasks = list(hosts)
    if all(host.local for host in job.hosts) or not tasks:
        return {}
    peers = dict.fromkeys(tasks, tasks) if len(tasks) <= ALL_PAIRS else _peers(job, tasks)
    targets: dict[Host, dict[Task, None]] = {host: {} for host in job.hosts}
    for source, others in peers.items():
        role, dialled = job.roles[source.role], targets[hosts[source]]
        for other in others:
            if source == other or source.role != other.role or not (role.serves and role.computes):
                dialled[other] = None
    return {host: tuple(others) for host, others in targets.items() if others}


def _peers(job: Job, tasks: list[Task]) -> dict[Task, list[Task]]:
    """The tasks that each task connects to in TensorFlow.

    All connect to the first one, which has the coordination service or is the chief, and to the parameter servers; and
    these to all: who receives a tensor connects to the task that has it. Leading tasks also exchange gradients.
    """
    hubs = _hubs(job, tasks)
    leading = [task for task in tasks if job.roles[task.role].leads]
    peers = {task: list(tasks if task in hubs else hubs) for task in tasks}
    for rank, task in enumerate(leading):
        peers[task] += [leading[other] for other in ring_peers(rank, len(leading))]
    return peers


def _hubs(job: Job, tasks: Sequence[Task]) -> dict[Task, None]:
    servers = [task for task in tasks if job.roles[task.role].serves and not job.roles[task.role].computes]
    return dict.fromkeys((tasks[0], *servers))


def ring_peers(rank: int, number: int) -> Iterable[int]:
    """The ranks that one of `number` ranks connects to in collectives: rank 0 to all, in which it reports failures.

    The others connect to rank 0, to their neighbours in the ring (TensorFlow receives from the one before, and so
    connects to it; NCCL connects to the next one), and to their parent in the binary tree of a broadcast.
    Source: ring_alg.cc and hierarchical_tree_broadcaster.cc in tensorflow/core/common_runtime.
    """
    return range(number) if rank == 0 else (0, rank - 1, (rank + 1) % number, (rank - 1) // 2)


def _not_dialled(job: Job, targets: Mapping[Host, Sequence[Task]]) -> Iterator[Note]:
    """A note if leading tasks are too many to try all links between them."""
    hosts = {plan.task: plan.host.name for plan in job.plans if plan.port is not None}
    if len(hosts) <= ALL_PAIRS or len(job.leading) < 2 or not targets:
        return
    every = len(targets) * (len(targets) - 1)
    tried = sum(len({hosts[task] for task in tasks} - {host.name}) for host, tasks in targets.items())
    if tried < every:
        hubs = shortened(hosts[task] for task in _hubs(job, list(hosts)))
        what = f"to and from {hubs}, along the ring of the tasks and the tree of their broadcasts"
        others = "the others, which NCCL or your program may use, were not"
        yield Note("tfdist", f"{tried:,} of {every:,} links between hosts were tried, {what}; {others}")


def with_free_ports(job: Job) -> Job:
    """The job with ports that are free on this machine now; they are not reserved.

    Raises:
        TfdistError: a fixed port is in use.
    """
    ports = {}
    with ExitStack() as sockets:
        for plan in job.plans:
            if plan.port is None:
                continue
            try:
                listener = sockets.enter_context(system.reserve(plan.port))
            except OSError as error:
                problem = problems.port_problem(plan.host, plan.port, error.strerror or str(error))
                raise TfdistError(str(problem)) from None
            ports[plan.task.name] = listener.getsockname()[1]
    return job.with_ports(ports)
