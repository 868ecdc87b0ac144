"""One host, judged: a row for each thing that a job needs of it. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfdist.launch.agents.fleet import clock_note
from tfdist.launch.doctor.link_checks import listed
from tfdist.launch.doctor.preflight import EQUAL, INSTALL, port_sentence, versions_of
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import connection_problem
from tfdist.launch.place import FOR_WORKERS

TASK_BYTES = 1.3e9
"""Memory at the peak of a worker that trains MobileNetV2 on a CPU (preset cpu), TensorFlow's own 0.65 GB included."""
DISK_BYTES = 500e6
"""What tasks may write into the temporary folder: tfdist's own package takes 1 MB, a profile or what a program of the
user's keeps there some hundred."""
OLDEST_DRIVER = "525.60.13"
"""The first that runs CUDA 12, which TensorFlow 2.21 is built with (its `and-cuda` packages end in -cu12). Source:
NVIDIA's table of minor version compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/."""

Hello = Mapping[str, Any]


def ok(check: str, host: Host, text: str) -> CheckResult:
    """A row of which there is nothing to be said but the fact."""
    return CheckResult(check, host.name, Verdict.OK, text)


def warning(check: str, host: Host, text: str, mend: str) -> CheckResult:
    """A job could start, but may not do well."""
    return CheckResult(check, host.name, Verdict.WARNING, text, mend)


def failed(check: str, host: Host, text: str, mend: str) -> CheckResult:
    """No job could start."""
    return CheckResult(check, host.name, Verdict.FAILED, text, mend)


def unreached(findings: Survey, host: Host) -> CheckResult:
    """A host that has no agent."""
    problem = connection_problem(host, findings.lost.get(host, ""))
    return failed("connection", host, problem.what, problem.fix)


def connection(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether its agent is there, and still is."""
    if host in findings.lost:
        said = findings.lost[host].strip().splitlines() or ["its stream ended"]
        what = f"it was reached, and then lost: {said[-1]}"
        yield failed("connection", host, what, "see whether it is overloaded or short of memory or disk, and try again")
    elif not host.local:
        yield ok("connection", host, "an agent could be started there")


def folder(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Where tasks would run."""
    where = findings.folders.get(host)
    if where is None:
        return
    if not where.found:
        yield failed("folder", host, f"{where.wanted} is not there", "make it, or choose another one with --chdir")
    elif where.found != where.wanted:
        what = f"{where.wanted} is not there, so tasks would run in {where.found}"
        yield warning("folder", host, what, "make it, or choose one with --chdir, if your program needs files of it")
    else:
        yield ok("folder", host, f"tasks would run in {where.found}")


def python(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Which Python runs tasks; one that is too old has not said hello."""
    yield ok("Python", host, f"{hello['python']} ({hello['executable']})")


def packages(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """What a training needs."""
    versions = versions_of(hello)
    missing = [name for name in EQUAL if not versions[name]]
    if missing:
        what = f"no {' and no '.join(missing)} for {hello['executable']}"
        yield failed("packages", host, what, INSTALL)
    else:
        yield ok("packages", host, ", ".join(f"{name} {versions[name]}" for name in EQUAL))


def gpus(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Which GPUs a task would see, and why none where there are some."""
    shown, ids, tasks = hello["gpus"], hello["gpu_ids"], findings.tasks[host]
    absent = [gpu for gpu in host.gpus if gpu not in ids]
    if absent:
        what = f"gpus={','.join(host.gpus)} was asked for, and there is no {' and no '.join(absent)}"
        yield failed("GPUs", host, what, f"take gpus= away, or choose of those that are: {', '.join(ids) or 'none'}")
    elif not shown:
        yield no_gpu(host, hello)
    elif host.role in FOR_WORKERS and tasks > len(host.gpus or shown):
        what = f"{tasks} workers are to run there and {len(host.gpus or shown)} GPUs are there for them"
        yield failed("GPUs", host, what, "give it fewer slots")
    elif number(hello["driver"]) < number(OLDEST_DRIVER):
        what = f"{', '.join(shown)}: the driver {hello['driver']} is older than {OLDEST_DRIVER}, which CUDA 12 needs"
        yield warning("GPUs", host, what, "install a newer driver; until then TensorFlow may see no GPU")
    else:
        yield ok("GPUs", host, f"{', '.join(shown)}; driver {hello['driver']}")


def no_gpu(host: Host, hello: Hello) -> CheckResult:
    """Why no GPU is seen."""
    if hello["gpus_hidden"]:
        what = f"CUDA_VISIBLE_DEVICES hides the {hello['gpus_hidden']} GPUs that are there"
        return warning("GPUs", host, what, "unset CUDA_VISIBLE_DEVICES there if they are meant to be used")
    if hello["gpu_devices"]:
        what = "there is a GPU (/dev/nvidia0 or so), but nvidia-smi does not answer, so TensorFlow will not see it"
        mend = (
            "run 'nvidia-smi' there and do what it says; in a container, start it with the driver's libraries, "
            "as with 'docker run --gpus all'"
        )
        return warning("GPUs", host, what, mend)
    return ok("GPUs", host, "none; tasks run on the CPU")


def number(version: str) -> tuple[int, ...]:
    """A version to compare; one that is not known counts as new."""
    return tuple(map(int, re.findall(r"\d+", version))) or (10**9,)


def memory(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether a training fits."""
    count, free = workers(findings, host), hello["memory_free_bytes"]
    text = f"{free / 1e9:.1f} of {hello['memory_bytes'] / 1e9:.1f} GB are free"
    if free < count * TASK_BYTES:
        need = f"{count} {plural('worker', count)} with MobileNetV2 may need {count * TASK_BYTES / 1e9:.1f} GB"
        mend = "end other programs, give it fewer slots, or train something smaller"
        yield warning("memory", host, f"{text}; {need}", mend)
    else:
        yield ok("memory", host, text)


def cores(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether each worker has one of its own."""
    there, count = len(hello["cores"]), workers(findings, host)
    text = f"{there} {plural('core', there)} for {count} {plural('worker', count)}"
    if there < count:
        yield warning("cores", host, f"{text}: they will wait for each other", "give it fewer slots")
    else:
        yield ok("cores", host, text)


def workers(findings: Survey, host: Host) -> int:
    """How many tasks that compute it would get."""
    return findings.tasks[host] if host.role in FOR_WORKERS else 0


def disk(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether tasks can write temporary files."""
    free = hello["disk_free_bytes"]
    text = f"{free / 1e9:.1f} GB are free for temporary files"
    if free < DISK_BYTES:
        what = f"{text}; a task may write some hundred MB"
        yield warning("disk", host, what, "delete something in the folder for temporary files, or set TMPDIR there")
    else:
        yield ok("disk", host, text)


def clock(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether its clock agrees with ours, to 2 s (`fleet.SKEW_S`): else the order of events is doubtful."""
    behind_s = findings.behind_s.get(host)
    if host.local or behind_s is None:
        return
    notes = clock_note(host, behind_s)
    if notes:
        said, _, mend = notes[0].text.partition("; ")
        yield warning("clock", host, said, mend)
    else:
        yield ok("clock", host, f"within {max(0.1, abs(behind_s)):.1f} s of this machine's")


def ports(findings: Survey, host: Host, hello: Hello) -> Iterator[CheckResult]:
    """Whether its tasks could listen."""
    if host in findings.refused:
        said, _, mend = port_sentence(host, *findings.refused[host]).partition(": ")
        yield failed("ports", host, said, mend)
    elif host in findings.ports:
        yield ok("ports", host, f"tasks could listen at {listed(findings.ports[host])}")


CHECKS: tuple[Callable[[Survey, Host, Hello], Iterator[CheckResult]], ...] = (
    connection, folder, python, packages, gpus, memory, cores, disk, clock, ports,
)  # fmt: skip


def plural(word: str, count: int) -> str:
    """`task`, or `tasks`."""
    return word if count == 1 else word + "s"
