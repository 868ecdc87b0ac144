"""The checks of one host: what a job needs of it. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from tfdist.launch.agent_program.description import TRAINING_PACKAGES
from tfdist.launch.doctor.link_checks import port_list
from tfdist.launch.doctor.problems import clock_problem, folder_problem, gpus_in_use, missing_packages, unseen_gpus
from tfdist.launch.doctor.results import Survey, Verdict
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import FOR_WORKERS, WITHOUT_GPUS, find_gpu, unusable_gpus
from tfdist.launch.tensorflow_output import INCOMPATIBILITIES
from tfdist.launch.text import counted

TASK_BYTES = 1.3e9
"""Peak memory of a worker that trains MobileNetV2 on a CPU (preset cpu), including TensorFlow's own 0.65 GB."""
DISK_BYTES = 500e6
"""Tasks write temporary files: tfdist itself takes 1 MB, a profile or the files of the user's program some hundred."""

Finding = tuple[Verdict, str, str]
"""Verdict, text and fix."""
_Hello = Mapping[str, Any]


OK, WARNING, FAILED = Verdict.OK, Verdict.WARNING, Verdict.FAILED


def _finding(problem: Problem | None, text: str, verdict: Verdict = FAILED) -> Finding:
    """The problem with this verdict; `text` if there is none."""
    return (OK, text, "") if problem is None else (verdict, problem.what, problem.fix)


def _connection(survey: Survey, host: Host, hello: _Hello) -> Finding | None:
    if host.local and host not in survey.lost:
        return None
    return _finding(survey.lost.get(host), "connected")


def _folder(survey: Survey, host: Host, hello: _Hello) -> Finding | None:
    folder = survey.folders.get(host)
    if folder is None:
        return None
    verdict = WARNING if folder.actual else FAILED
    return _finding(folder_problem(host, folder), f"tasks run in {folder.actual}", verdict)


def _python(survey: Survey, host: Host, hello: _Hello) -> Finding:
    return OK, f"{hello['python']} ({hello['executable']})", ""  # an agent refuses a Python that is too old


def _packages(survey: Survey, host: Host, hello: _Hello) -> Finding:
    versions = ", ".join(f"{name} {hello['packages'].get(name)}" for name in TRAINING_PACKAGES)
    return _finding(missing_packages(host, hello), versions)


def _keras(survey: Survey, host: Host, hello: _Hello) -> Finding | None:
    known = next((each for each in INCOMPATIBILITIES if each.shows_in(hello["packages"])), None)
    return None if known is None else (WARNING, known.what, "install tf_keras, which tf.keras is under tfdist")


def _gpus(survey: Survey, host: Host, hello: _Hello) -> Finding:
    unusable = unusable_gpus(host, hello)
    if unusable is not None or host.gpus == WITHOUT_GPUS:
        return _finding(unusable, "gpus=none: tasks run on the CPU")
    missing = [gpu for gpu in host.gpus if find_gpu(gpu, hello) is None]
    if missing:
        text = f"gpus={','.join(host.gpus)}, but the host has no GPU {' and no '.join(missing)}"
        return FAILED, text, f"omit gpus=, or choose from: {', '.join(hello['gpu_ids']) or 'none'}"
    if hello["gpus"]:
        return _usable_gpus(survey, host, hello)
    return _finding(unseen_gpus(host, hello), "none; tasks run on the CPU", WARNING)


def _usable_gpus(survey: Survey, host: Host, hello: _Hello) -> Finding:
    names, driver = ", ".join(hello["gpus"]), hello["driver"]
    usable, workers = len(host.gpus or hello["gpus"]), _workers(survey, host)
    if workers > usable:
        return FAILED, f"{workers} workers for {counted(usable, 'GPU')}", "give the host fewer slots"
    text = f"{names}; driver {driver}" if driver else names
    problem = unseen_gpus(host, hello) or gpus_in_use(host, hello, host.gpus or hello["gpu_ids"])
    return _finding(problem, text, WARNING)


def _memory(survey: Survey, host: Host, hello: _Hello) -> Finding:
    count, free = _workers(survey, host), hello["memory_free_bytes"]
    text = f"{free / 1e9:.1f} of {hello['memory_bytes'] / 1e9:.1f} GB are free"
    if free >= count * TASK_BYTES:
        return OK, text, ""
    need = f"{counted(count, 'worker')} with MobileNetV2 may need {count * TASK_BYTES / 1e9:.1f} GB"
    return WARNING, f"{text}; {need}", "end other programs, give the host fewer slots, or train a smaller model"


def _cores(survey: Survey, host: Host, hello: _Hello) -> Finding:
    cores, count = len(hello["cores"]), _workers(survey, host)
    limit = "" if hello["core_limit"] is None else f" (a cgroup limits their time to {hello['core_limit']:g})"
    text = f"{counted(cores, 'core')}{limit} for {counted(count, 'worker')}"
    if cores < count:
        return WARNING, f"{text}: they slow each other down", "give the host fewer slots"
    return OK, text, ""


def _workers(survey: Survey, host: Host) -> int:
    return survey.tasks[host] if host.role in FOR_WORKERS else 0


def _disk(survey: Survey, host: Host, hello: _Hello) -> Finding:
    free = hello["disk_free_bytes"]
    text = f"{free / 1e9:.1f} GB are free for temporary files"
    if free < DISK_BYTES:
        fix = "delete files in the folder for temporary files, or set TMPDIR on the host"
        return WARNING, f"{text}; a task may write several hundred MB", fix
    return OK, text, ""


def _clock(survey: Survey, host: Host, hello: _Hello) -> Finding | None:
    behind_s = survey.behind_s.get(host)
    if host.local or behind_s is None:
        return None
    text = f"within {max(0.1, abs(behind_s)):.1f} s of this machine's"
    return _finding(clock_problem(host, behind_s), text, WARNING)


def _ports(survey: Survey, host: Host, hello: _Hello) -> Finding | None:
    if host in survey.port_problems:
        return _finding(survey.port_problems[host], "")
    return (OK, f"tasks can listen on {port_list(survey.ports[host])}", "") if host in survey.ports else None


CHECKS: Mapping[str, Callable[[Survey, Host, _Hello], Finding | None]] = {
    "connection": _connection,
    "folder": _folder,
    "Python": _python,
    "packages": _packages,
    "Keras": _keras,
    "GPUs": _gpus,
    "memory": _memory,
    "cores": _cores,
    "disk": _disk,
    "clock": _clock,
    "ports": _ports,
}
"""Each check of one host; None: it does not apply."""
