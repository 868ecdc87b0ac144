"""Problems that both the preflight and the doctor report. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfdist.launch.agent_program.description import TRAINING_PACKAGES
from tfdist.launch.agents.messages import Prepared
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import FOR_WORKERS, WITHOUT_GPUS, find_gpu
from tfdist.launch.text import counted, one_line, shortened

OLDEST_DRIVER = (525, 60, 13)
"""The first driver that runs CUDA 12, as TensorFlow 2.21 and 2.22 need it (their `and-cuda` packages end in -cu12).
Source: NVIDIA's table of minor version compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/."""
MAX_SKEW_S = 2.0
"""Clocks further apart make the logs of two hosts hard to compare."""
ALL_HOSTS = "all hosts"
SLOWEST = "the slowest GPU sets the pace"

# Fixes by the reason that an agent reports.
_UNREACHABLE_FIXES: Mapping[str, str] = {
    "refused": "nothing listens at that address: if it belongs to another machine, set addr= in the hostfile",
    "timed out": "a firewall drops the packets: open the port, or choose others with --port",
    "not resolved": "the name is unknown on that host: set addr= in the hostfile to an IP address",
    "something else answers there": "the address belongs to another machine: set addr= in the hostfile",
}

Hellos = Mapping[Host, Mapping[str, Any]]


def unseen_gpus(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    """Why TensorFlow sees none of the host's GPUs; None if it should, or has none.

    Args:
        host: to name in the problem.
        hello: its description, without TensorFlow: the driver, the CUDA libraries and CUDA_VISIBLE_DEVICES decide.
    """
    if host.gpus == WITHOUT_GPUS:
        return None
    if not hello["gpus"]:
        if not hello["gpus_hidden"]:
            return None
        what = f"CUDA_VISIBLE_DEVICES hides {counted(hello['gpus_hidden'], 'GPU')}"
        return Problem(what, "run 'unset CUDA_VISIBLE_DEVICES' on the host to use them", host.name)
    driver = hello["driver"]
    missing = hello["cuda_missing"]
    version = hello["packages"].get("tensorflow")
    numbers = re.findall(r"\d+", driver)
    if numbers and tuple(map(int, numbers)) < OLDEST_DRIVER:  # an unknown version counts as new
        oldest = ".".join(map(str, OLDEST_DRIVER))
        what = f"driver {driver} is older than {oldest}, which CUDA 12 needs, so TensorFlow may see no GPU"
        return Problem(what, "install a newer NVIDIA driver", host.name)
    if missing and version is not None:  # a program without TensorFlow may need others
        what = f"CUDA libraries are missing ({', '.join(missing)}), so TensorFlow sees no GPU"
        command = f"{hello['executable']} -m pip install 'tensorflow[and-cuda]=={version}'"
        return Problem(what, f"run on the host: {command}", host.name)
    return None


def missing_packages(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    """A host whose Python cannot train."""
    missing = [name for name in TRAINING_PACKAGES if name not in hello["packages"]]
    if not missing:
        return None
    fix = "install it, or choose a Python that has it with --python, or python= in the hostfile"
    return Problem(f"{hello['executable']} has no {' and no '.join(missing)}", fix, host.name)


def version_problems(hellos: Hellos, ignore_missing: bool) -> dict[str, Problem]:
    """Versions that must be equal on all hosts but are not, by name: Python's (minor) and the training packages'.

    Args:
        hellos: the descriptions of all hosts.
        ignore_missing: compare a package only among the hosts that have it.
    """
    problems = {}
    for name in ("Python", *TRAINING_PACKAGES):
        versions = {}
        for host, hello in hellos.items():
            minor = ".".join(str(hello["python"]).split(".")[:2])
            version = minor if name == "Python" else str(hello["packages"].get(name, ""))
            if version or not ignore_missing:
                versions[host.name] = version
        if len(set(versions.values())) > 1:
            each = ", ".join(f"{host} has {version or 'none'}" for host, version in versions.items())
            fix = "install the same version on all hosts, or choose another Python with --python"
            problems[name] = Problem(f"{name} differs between hosts: {each}", fix)
    return problems


def gpu_models(hellos: Hellos) -> dict[Host, tuple[str, ...]]:
    """The models of the GPUs that tasks may use on each host that accepts workers: sorted, each model once."""
    models = {}
    for host, hello in hellos.items():
        if host.role in FOR_WORKERS:
            named = (find_gpu(gpu, hello) for gpu in host.gpus)  # gpus=none names no GPU
            positions = named if host.gpus else range(len(hello["gpus"]))
            models[host] = tuple(sorted({hello["gpus"][position] for position in positions if position is not None}))
    return models


def gpus_in_use(host: Host, hello: Mapping[str, Any], gpus: Iterable[str], launcher: int = 0) -> Problem | None:
    """Processes that already compute on some of these GPUs.

    Args:
        host: with the GPUs.
        hello: its description.
        gpus: entries of CUDA_VISIBLE_DEVICES.
        launcher: number of the launcher's process: of a notebook that has used TensorFlow, it may be one of them.
    """
    positions = [find_gpu(gpu, hello) for gpu in gpus]
    names = {hello["gpu_uuids"][position]: hello["gpu_ids"][position] for position in positions if position is not None}
    used = [(f"GPU {names[uuid]}", pid) for uuid, pid, _, _ in hello["gpu_processes"] if uuid in names]
    users = [
        f"GPU {names[uuid]} by {program} (pid {pid}, {memory})"
        for uuid, pid, program, memory in hello["gpu_processes"]
        if uuid in names
    ]
    if not users:
        return None
    fix = "end the other programs, or choose GPUs with CUDA_VISIBLE_DEVICES or with gpus= in the hostfile"
    taken = [name for name, pid in used if host.local and pid == str(launcher)]
    if taken:
        what = f"this process has taken memory of {shortened(taken)}, which tasks may lack"
        fix = (
            "import TensorFlow only in the function, or call tf.config.set_visible_devices([], 'GPU') after the import"
        )
        return Problem(what, f"restart it (of a notebook: its kernel), then {fix}", host.name)
    return Problem(f"in use: {shortened(users)}", fix, host.name)


def broken_gpus(hello: Mapping[str, Any]) -> Problem | None:
    """Faults that the driver reports of the host's GPUs."""
    faults = "; ".join(hello["gpu_faults"])
    return Problem(faults, "see 'nvidia-smi -q' on the host, or --exclude it") if faults else None


def clock_problem(host: Host, behind_s: float) -> Problem | None:
    """A clock that differs by more than `MAX_SKEW_S`."""
    if abs(behind_s) <= MAX_SKEW_S:
        return None
    direction = "behind" if behind_s > 0 else "ahead of"
    what = f"its clock is {abs(behind_s):.1f} s {direction} this machine's, so the times in its logs are off"
    return Problem(what, "set up NTP on the host", host.name)


def folder_problem(host: Host, folder: Prepared) -> Problem | None:
    """A folder that does not exist. It is an error only if there is no home folder to fall back to."""
    if folder.actual == folder.requested:
        return None
    fallback = f", so tasks run in {one_line(folder.actual)}" if folder.actual else ""
    what = f"the folder {one_line(folder.requested)} does not exist{fallback}"
    return Problem(what, "create it, or choose another with --chdir", host.name)


def script_problems(script: str, folders: Mapping[Host, Prepared]) -> Iterator[Problem]:
    """Hosts that lack the program's file, or whose file differs from that on the first host that has it."""
    first = next((host for host, folder in folders.items() if folder.digest), None)
    for host, folder in folders.items():
        fix = "bring this folder to all hosts with --copy, or use one that they share (--chdir)"
        if first is None or not folder.digest:
            yield Problem(f"{script} is missing in {one_line(folder.actual)}", fix, host.name)
        elif folder.digest != folders[first].digest:
            yield Problem(f"{script} differs from that on {first.name}", fix, host.name)


def copy_problem(host: Host, reason: str) -> Problem:
    """A copy of the program's folder that could not be unpacked; `reason` as the agent reports it."""
    return Problem(
        f"the copy of the folder cannot be unpacked ({one_line(reason).lower()})",
        "free space in the folder for temporary files, or name another with TMPDIR in the host's login scripts",
        host.name,
    )


def port_problem(host: Host, port: int, reason: str) -> Problem:
    """A port that cannot be reserved."""
    option = "port= in the hostfile" if host.port else "--port"
    fix = f"choose another {option}, or omit it for free ports"
    return Problem(f"port {port} cannot be used ({reason.lower()})", fix, host.name)


def same_address(host: Host, other: Host, endpoint: str) -> Problem:
    """Two hosts whose tasks would have one address."""
    fix = "give each its own with addr= in the hostfile"
    return Problem(f"has the address of {other.name}, {endpoint}", fix, host.name)


def unreachable(source: str, target: str, endpoint: str, reason: str) -> Problem:
    """A port that cannot be dialled; `reason` as the agent reports it."""
    fix = "a firewall rejects the connection or there is no route: open the port, or set addr= in the hostfile"
    what = f"{source} cannot reach {target} at {endpoint} ({reason.lower()})"
    return Problem(what, _UNREACHABLE_FIXES.get(reason, fix))
