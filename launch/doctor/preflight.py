"""Checks the hosts of a job before its tasks start, and raises the problems of the first check that fails."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tfdist.launch.agent_program.shared_folder import NOT_SHARED
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.launcher_messages import Note
from tfdist.launch.agents.messages import CheckFolder, FolderAction, FolderChecked
from tfdist.launch.cluster import Task
from tfdist.launch.doctor.agent_requests import close_probes, dial, measure, new_token, prepare, reserve
from tfdist.launch.doctor.gpu_problems import unseen_gpus
from tfdist.launch.doctor.links import Links
from tfdist.launch.doctor.problems import (
    ALL_HOSTS,
    SLOWEST,
    Hellos,
    clock_problem,
    folder_problem,
    gpu_models,
    gpus_in_use,
    missing_packages,
    unreachable,
    version_problems,
)
from tfdist.launch.errors import ExitCode, Problem, TfdistError, raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job


def check_checkpoint_folder(job: Job, fleet: Fleet) -> None:
    """Have one host write a file there and the others find it. The folder is created if it does not exist.

    Raises:
        TfdistError: the folder cannot be written, or is another one on some host.
    """
    hosts = job.checkpoint_hosts
    if not hosts:
        return
    token = new_token()
    try:
        _check(fleet, job, hosts[:1], token, "write")
        _check(fleet, job, hosts[1:], token, "read")
    finally:
        _ask(fleet, hosts[:1], job.checkpoint_dir, token, "remove")


def _check(fleet: Fleet, job: Job, hosts: tuple[Host, ...], token: str, action: FolderAction) -> None:
    reasons = _ask(fleet, hosts, job.checkpoint_dir, token, action)
    raise_problems(fleet.lost.values())
    raise_problems((_problem(host, job, reason) for host, reason in reasons.items() if reason), ExitCode.USAGE)


def _ask(fleet: Fleet, hosts: tuple[Host, ...], path: str, token: str, action: FolderAction) -> dict[Host, str]:
    """Why the action failed on each host; empty if it did not."""
    requests = {host: CheckFolder(path, token, action) for host in hosts}
    answers = fleet.ask(requests, f"answer about the checkpoint folder {path}", fleet.policy.start_timeout_s)
    return {host: answer.reason for host, answer in answers.items() if isinstance(answer, FolderChecked)}


def _problem(host: Host, job: Job, reason: str) -> Problem:
    if reason == NOT_SHARED:
        first = job.checkpoint_hosts[0].name
        fix = "choose a folder on a disk that all hosts share, with --checkpoint-dir"
        return Problem(f"the checkpoint folder {job.checkpoint_dir} is not that of {first}", fix, host.name)
    fix = "choose another one with --checkpoint-dir"
    return Problem(f"the checkpoint folder {job.checkpoint_dir} {reason}", fix, host.name)


ALL_PAIRS = 64
"""Number of tasks above which a task dials the next one in the ring, the first and the servers only."""
MOST_PAIRS = 8
"""Unreachable pairs in a message; more are counted."""


def preflight(job: Job, fleet: Fleet, needs_tensorflow: bool) -> tuple[Job, tuple[Note, ...]]:
    """Check the hosts and reserve ports.

    Returns:
        The job with its ports, folders and cluster; and warnings.

    Raises:
        TfdistError: the job cannot start; no task was started.
    """
    missing = [missing_packages(host, hello) for host, hello in fleet.hellos.items() if needs_tensorflow]
    versions = version_problems(fleet.hellos, ignore_missing=needs_tensorflow)
    keras = None if needs_tensorflow else versions.pop("tf_keras", None)
    raise_problems([*filter(None, missing), *versions.values()])
    clocks = [clock_problem(host, fleet.behind_s[host]) for host in fleet.hellos]  # in the order of the hosts
    job, folders = _prepare(job, fleet)
    check_checkpoint_folder(job, fleet)
    targets = dial_targets(job)
    token = new_token() if targets else ""
    job, ports = _reserve(job, fleet, token)
    _dial(job, fleet, targets, ports, token)
    notes = [Note(problem.host, problem.sentence) for problem in filter(None, [*clocks, *folders])]
    if keras is not None:
        notes.append(Note(ALL_HOSTS, f"{keras.what}; it matters if the program uses tf.keras"))
    return job, (
        *notes,
        *gpu_notes(job, fleet.hellos),
        *unseen_gpu_notes(job, fleet.hellos),
        *busy_gpu_notes(job, fleet.hellos),
    )


def measure_neighbours(fleet: Fleet, hosts: list[Host]) -> Links:
    """The link from each host to the next in the list, measured one after the other.

    Raises:
        TfdistError: a host cannot reach the next one.
    """
    prepare(fleet, {host: "/" for host in hosts if host.needs_package})
    token = new_token()
    ports, problems = reserve(fleet, dict.fromkeys(hosts, (0,)), token)
    raise_problems([*fleet.lost.values(), *problems.values()])
    errors = dial(fleet, {one: [(other, ports[other][0])] for one, other in pairwise(hosts)}, token)
    raise_problems(fleet.lost.values())
    raise_problems(
        unreachable(one.name, other.name, other.endpoint(port), error)
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


def gpu_notes(job: Job, hellos: Hellos) -> Iterator[Note]:
    """A note for each host of the job whose GPUs are of other models than those of its first host with GPUs."""
    found = gpu_models({host: hellos[host] for host in job.hosts})
    models = {host: ", ".join(names) for host, names in found.items() if names}
    for host in models:
        first = next(iter(models))
        if models[host] != models[first]:
            yield Note(host.name, f"its GPUs are {models[host]}, those of {first.name} {models[first]}: {SLOWEST}")


def unseen_gpu_notes(job: Job, hellos: Hellos) -> Iterator[Note]:
    """A note for each host of the job whose GPUs TensorFlow will not see."""
    for problem in filter(None, (unseen_gpus(host, hellos[host]) for host in job.hosts)):
        yield Note(problem.host, problem.sentence)


def busy_gpu_notes(job: Job, hellos: Hellos) -> Iterator[Note]:
    """A note for each host where other processes already compute on GPUs that the job's tasks will see."""
    for host in job.hosts:
        visible = [plan.program.env.get("CUDA_VISIBLE_DEVICES", "") for plan in job.plans if plan.host == host]
        problem = gpus_in_use(host, hellos[host], dict.fromkeys(",".join(visible).split(",")))
        if problem is not None:
            yield Note(host.name, problem.sentence)


def _prepare(job: Job, fleet: Fleet) -> tuple[Job, list[Problem | None]]:
    requested = {plan.host: plan.host.chdir or plan.program.cwd for plan in job.plans}
    folders = prepare(fleet, {host: cwd for host, cwd in requested.items() if host.needs_package or host.chdir})
    raise_problems(fleet.lost.values())
    problems = {host: folder_problem(host, folder) for host, folder in folders.items()}
    raise_problems(problem for host, problem in problems.items() if problem and not folders[host].actual)
    plans = tuple(
        replace(plan, program=replace(plan.program, cwd=folders[plan.host].actual)) if plan.host in folders else plan
        for plan in job.plans
    )
    return replace(job, plans=plans), list(problems.values())


def _reserve(job: Job, fleet: Fleet, token: str) -> tuple[Job, dict[str, int]]:
    """The job with its cluster, and the port of each task by name."""
    plans = {host: [plan for plan in job.plans if plan.host == host and plan.port is not None] for host in job.hosts}
    requested = {host: tuple(plan.port or 0 for plan in plans[host]) for host in job.hosts if plans[host]}
    reserved, problems = reserve(fleet, requested, token)
    raise_problems(fleet.lost.values())
    raise_problems(problems.values(), ExitCode.USAGE)
    ports = {plan.task.name: port for host in reserved for plan, port in zip(plans[host], reserved[host], strict=True)}
    return job.with_ports(ports), ports


def dial_targets(job: Job) -> dict[Host, tuple[Task, ...]]:
    """The tasks that each host must reach: those its own tasks talk to, including tasks on the same host.

    Up to `ALL_PAIRS` tasks dial each other; of more, each dials the next in the ring, the first and the parameter
    servers. Workers that serve a chief do not talk to each other. Empty if all hosts are this machine.
    """
    hosts = {plan.task: plan.host for plan in job.plans if plan.port is not None}
    tasks = list(hosts)
    if all(host.local for host in job.hosts) or not tasks:
        return {}
    ring = dict(zip(tasks, [*tasks[1:], tasks[0]], strict=True))
    servers = [task for task in tasks if job.roles[task.role].serves and not job.roles[task.role].computes]
    targets: dict[Host, dict[Task, None]] = {host: {} for host in job.hosts}
    for source in tasks:
        others = tasks if len(tasks) <= ALL_PAIRS else [tasks[0], ring[source], *servers]
        targets[hosts[source]] |= dict.fromkeys(other for other in others if _communicate(source, other, job))
    return {host: tuple(others) for host, others in targets.items() if others}


def _communicate(one: Task, other: Task, job: Job) -> bool:
    role = job.roles[one.role]
    return one == other or one.role != other.role or not (role.serves and role.computes)


def _dial(job: Job, fleet: Fleet, targets: Mapping[Host, Sequence[Task]], ports: Mapping[str, int], token: str) -> None:
    endpoints = {plan.task: (plan.host, ports[plan.task.name]) for plan in job.plans if plan.port is not None}
    errors = dial(fleet, {source: [endpoints[task] for task in tasks] for source, tasks in targets.items()}, token)
    raise_problems(fleet.lost.values())
    problems = [
        unreachable(source.name, f"{task.name} on {host.name}", host.endpoint(port), errors[source, host, port])
        for source, tasks in targets.items()
        for task, (host, port) in ((task, endpoints[task]) for task in tasks)
        if errors[source, host, port]
    ]
    raise_problems(problems, most=MOST_PAIRS)
    close_probes(fleet, targets)
