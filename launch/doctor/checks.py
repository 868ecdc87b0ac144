"""All checks of a survey, of hosts and the links between them, in the order in which a launch would fail. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tfdist.launch.agent_program.description import TRAINING_PACKAGES
from tfdist.launch.doctor import problems
from tfdist.launch.doctor.survey import Survey
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import FOR_WORKERS, WITHOUT_GPUS, find_gpu, unusable_gpus
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.tensorflow_output import INCOMPATIBILITIES
from tfdist.launch.text import counted, one_line, shortened

TASK_BYTES = 1.3e9
"""Peak memory of a worker that trains MobileNetV2 on a CPU (preset cpu), including TensorFlow's own 0.65 GB."""
DISK_BYTES = 500e6
"""Tasks write temporary files: tfdist itself takes 1 MB, a profile or the files of the user's program some hundred."""
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
HOST_CHECKS = (
    "connection", "folder", "Python", "packages", "Keras", "GPUs", "memory", "cores", "disk", "clock", "ports",
)  # fmt: skip
"""The checks of each host, in the order of their rows: each of all hosts, then the next."""


class Verdict(StrEnum):
    """Result of one check. A job cannot start if any check failed; after a warning it may be slow or fail later."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class CheckResult:
    """One check of one host, or of one link between two."""

    check: str
    host: str
    verdict: Verdict
    text: str
    fix: str = ""
    """Empty if the verdict is ok."""


def can_start(rows: Sequence[CheckResult]) -> bool:
    """Whether no check failed."""
    return all(row.verdict is not Verdict.FAILED for row in rows)


def run_checks(survey: Survey) -> tuple[CheckResult, ...]:
    """A row for each check of each host, of all hosts together, and of the links between them."""
    rows = []
    if survey.tf_config:
        text = "TF_CONFIG is already set, and would contradict the one that every task gets"
        fix = "run 'unset TF_CONFIG', or run the one task that it describes with --inherit tf-config"
        rows.append(_row("this machine", "environment", "", Problem(text, fix), Verdict.FAILED))
    for host in survey.hosts:
        if host not in survey.hellos:
            rows.append(_row(host.name, "connection", "", survey.lost[host], Verdict.FAILED))
    of_hosts = [row for host, hello in survey.hellos.items() for row in _host_rows(survey, host, hello)]
    rows += sorted(of_hosts, key=lambda row: HOST_CHECKS.index(row.check))
    for name, problem in problems.version_problems(survey.hellos, ignore_missing=True).items():
        rows.append(_row(problems.ALL_HOSTS, name if name == "Python" else "packages", "", problem, Verdict.FAILED))
    models = {host.name: names for host, names in problems.gpu_models(survey.hellos).items()}
    without = [host for host, names in models.items() if not names]
    if without and len(without) < len(models):
        text = f"no GPU on {shortened(without)}, but on the others: workers need GPUs on all hosts or on none"
        fix = "see the row of that host, or --exclude it"
        rows.append(_row(problems.ALL_HOSTS, "GPUs", "", Problem(text, fix), Verdict.FAILED))
    elif len(set(models.values())) > 1:
        rows.append(_row(problems.ALL_HOSTS, "GPUs", "", _different_gpus()))
    return (*rows, *_reachability_rows(survey), *_link_rows(survey))


def _different_gpus() -> Problem:
    text = f"the GPUs differ between hosts: {problems.SLOWEST}"
    return Problem(text, "use hosts with the same GPUs, or select GPUs with gpus= in the hostfile")


def _row(name: str, check: str, text: str, problem: Problem | None, verdict: Verdict = Verdict.WARNING) -> CheckResult:
    """The problem of the host or link `name` with this verdict; `text` if there is none."""
    if problem is None:
        return CheckResult(check, name, Verdict.OK, text)
    return CheckResult(check, name, verdict, problem.what, problem.fix)


def _host_rows(survey: Survey, host: Host, hello: Mapping[str, Any]) -> Iterator[CheckResult]:
    """The checks of one host that apply to it: what a job needs of it."""
    row = partial(_row, host.name)
    if not host.local or host in survey.lost:
        yield row("connection", "connected", survey.lost.get(host), Verdict.FAILED)
    if host in survey.folders:
        folder = survey.folders[host]
        verdict = Verdict.WARNING if folder.actual else Verdict.FAILED
        yield row("folder", f"tasks run in {one_line(folder.actual)}", problems.folder_problem(host, folder), verdict)
    yield row("Python", f"{hello['python']} ({hello['executable']})", None)  # an agent refuses one that is too old
    versions = ", ".join(f"{name} {hello['packages'].get(name)}" for name in TRAINING_PACKAGES)
    yield row("packages", versions, problems.missing_packages(host, hello), Verdict.FAILED)
    for known in INCOMPATIBILITIES:
        if known.shows_in(hello["packages"]):
            yield row("Keras", "", Problem(known.what, "install tf_keras, which tf.keras is under tfdist"))
            break
    workers = survey.tasks[host] if host.role in FOR_WORKERS else 0
    yield row("GPUs", *_gpus(host, hello, workers))

    free = hello["memory_free_bytes"]
    text = f"{free / 1e9:.1f} of {hello['memory_bytes'] / 1e9:.1f} GB are free"
    need = f"{counted(workers, 'worker')} with MobileNetV2 may need {workers * TASK_BYTES / 1e9:.1f} GB"
    little = Problem(f"{text}; {need}", "end other programs, give the host fewer slots, or train a smaller model")
    yield row("memory", text, little if free < workers * TASK_BYTES else None)
    cores = len(hello["cores"])
    limit = "" if hello["core_limit"] is None else f" (a cgroup limits their time to {hello['core_limit']:g})"
    text = f"{counted(cores, 'core')}{limit} for {counted(workers, 'worker')}"
    few = Problem(f"{text}: they slow each other down", "give the host fewer slots")
    yield row("cores", text, few if cores < workers else None)
    free = hello["disk_free_bytes"]
    text = f"{free / 1e9:.1f} GB are free for temporary files"
    fix = "delete files in the folder for temporary files, or set TMPDIR on the host"
    full = Problem(f"{text}; a task may write several hundred MB", fix)
    yield row("disk", text, full if free < DISK_BYTES else None)

    if not host.local and host in survey.behind_s:
        behind_s = survey.behind_s[host]
        text = f"within {max(0.1, abs(behind_s)):.1f} s of this machine's"
        yield row("clock", text, problems.clock_problem(host, behind_s))
    if host in survey.port_problems:
        yield row("ports", "", survey.port_problems[host], Verdict.FAILED)
    elif host in survey.ports:
        yield row("ports", f"tasks can listen on {_port_list(survey.ports[host])}", None)


def _gpus(host: Host, hello: Mapping[str, Any], workers: int) -> tuple[str, Problem | None, Verdict]:
    """Text about the host's GPUs, the problem with them if there is one, and its verdict."""
    unusable = unusable_gpus(host, hello)
    if unusable is not None or host.gpus == WITHOUT_GPUS:
        return "gpus=none: tasks run on the CPU", unusable, Verdict.FAILED
    missing = [gpu for gpu in host.gpus if find_gpu(gpu, hello) is None]
    if missing:
        what = f"gpus={','.join(host.gpus)}, but the host has no GPU {' and no '.join(missing)}"
        fix = f"omit gpus=, or choose from: {', '.join(hello['gpu_ids']) or 'none'}"
        return "", Problem(what, fix), Verdict.FAILED
    if not hello["gpus"]:
        return "none; tasks run on the CPU", problems.unseen_gpus(host, hello), Verdict.WARNING
    usable = len(host.gpus or hello["gpus"])
    if workers > usable:
        too_many = Problem(f"{workers} workers for {counted(usable, 'GPU')}", "give the host fewer slots")
        return "", too_many, Verdict.FAILED
    problem = problems.broken_gpus(hello) or problems.unseen_gpus(host, hello)
    problem = problem or problems.gpus_in_use(host, hello, host.gpus or hello["gpu_ids"])
    driver = f"; driver {hello['driver']}" if hello["driver"] else ""
    return ", ".join(hello["gpus"]) + driver, problem, Verdict.WARNING


def _reachability_rows(survey: Survey) -> Iterator[CheckResult]:
    """A row for each host that all others reach, else one for each reason why some do not."""
    found: dict[Host, dict[str, list[tuple[Host, int]]]] = {target: {} for target in survey.ports}
    for (source, target, port), reason in survey.dial_errors.items():
        if target in found:
            found[target].setdefault(reason, []).append((source, port))
    for target, pairs in found.items():
        for reason in sorted(pairs):
            sources = shortened((source.name for source, _ in pairs[reason]), MOST_SHOWN)
            ports = {port for _, port in pairs[reason]}
            endpoint = target.endpoint(*ports) if len(ports) == 1 else f"{target.address}, {_port_list(ports)},"
            if reason:
                problem = problems.unreachable(sources, target.name, endpoint, reason)
                yield _row(target.name, "reachability", "", problem, Verdict.FAILED)
            elif len(pairs) == 1:
                yield _row(target.name, "reachability", f"reached at {endpoint} by {sources}", None)


def _port_list(ports: Iterable[int]) -> str:
    """`port 5000`; `ports 5000, 5001`, of many the first ones and how many more."""
    numbers = shortened(map(str, sorted(ports)), MOST_SHOWN)
    return f"ports {numbers}" if "," in numbers else f"port {numbers}"


def _link_rows(survey: Survey) -> Iterator[CheckResult]:
    """A row for each link, unless it failed because one of its hosts was lost."""
    for (source, target), link in survey.links.items():
        row = partial(_row, f"{source.name} -> {target.name}", "link", str(link))
        problem = None
        if isinstance(link, Problem):
            if not {source, target} & survey.lost.keys():
                yield row(link, Verdict.FAILED)
            continue
        if link.bytes_per_s < SLOW_BYTES_PER_S:
            step_s = GRADIENT_BYTES / max(link.bytes_per_s, 1.0)
            text = f"{link}: the gradients of MobileNetV2 would take {step_s:.1f} s per step"
            fix = "check cables, switches and rate limits, or choose another network with addr= in the hostfile"
            problem = Problem(text, fix)
        elif link.rtt_s > SLOW_RTT_S:
            text = f"{link}: every step waits for several round trips"
            problem = Problem(text, "use hosts on one local network, or larger batches")
        yield row(problem)
