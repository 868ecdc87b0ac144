"""The GPUs of a host, from nvidia-smi, and the CUDA libraries that TensorFlow loads. Part of the agent."""

import glob
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfdist.launch.agent_program.system import find_program, output_of, read_text

CUDA_LIBRARIES = {
    "libcudart.so.12": "cuda_runtime",
    "libcublas.so.12": "cublas",
    "libcufft.so.11": "cufft",
    "libcusolver.so.11": "cusolver",
    "libcusparse.so.12": "cusparse",
    "libcudnn.so.9": "cudnn",
}
"""File -> folder below site-packages/nvidia. If one is missing, TensorFlow uses no GPU ("Cannot dlopen some GPU
libraries"). Source: the RUNPATH of libtensorflow_framework.so.2 and the extra `and-cuda`, of 2.21 and 2.22."""
LINKER_CACHE = "/etc/ld.so.cache"
"""Lists the libraries in the folders of the system; ldconfig writes it."""


def missing_cuda_libraries() -> list[str]:
    """The CUDA libraries that are neither beside TensorFlow nor where the dynamic linker looks."""
    installed = [os.path.join(folder, "nvidia") for folder in sys.path if os.path.isdir(folder)]
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), os.path.join(sys.prefix, "lib")]
    cache = read_text(LINKER_CACHE)
    return [
        library
        for library, package in CUDA_LIBRARIES.items()
        if library not in cache
        and not any(os.path.exists(os.path.join(folder, package, "lib", library)) for folder in installed)
        and not any(folder and os.path.exists(os.path.join(folder, library)) for folder in folders)
    ]


def with_cusolver(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a task, LD_LIBRARY_PATH with the folder of cuSOLVER's wheel on a host that has GPUs.

    TensorFlow 2.21 looks for the other libraries beside itself, but not for this one, and uses no GPU without it.
    Source: the RUNPATH of its libtensorflow_framework.so.2, and a machine with an H200.
    """
    if not device_files():
        return dict(environment)
    paths = environment.get("LD_LIBRARY_PATH", "")
    folders = [os.path.join(folder, "nvidia", "cusolver", "lib") for folder in sys.path]
    more = [folder for folder in folders if os.path.isdir(folder) and folder not in paths.split(":")]
    if not more:
        return dict(environment)
    return {**environment, "LD_LIBRARY_PATH": ":".join(filter(None, [paths, *more]))}


PCI_DEVICES = "/sys/bus/pci/devices"
CPUS = "/sys/devices/system/cpu"


def gpu_memory_and_cores(tool: str) -> dict[str, tuple[int, list[int]]]:
    """Bytes of memory and the cores of the NUMA node of each GPU, by UUID; no cores if they are unknown.

    Source of the fields: `nvidia-smi --help-query-gpu`.
    """
    text = output_of([tool, "--query-gpu=uuid,memory.total,pci.bus_id", "--format=csv,noheader,nounits"])
    rows = [re.match(r"(GPU-\S+), (\d+), (\S+)", line) for line in text.splitlines()]
    return {row[1]: (int(row[2]) << 20, near_cores(row[3])) for row in rows if row}


def fullest_gpu() -> dict[str, float]:
    """`gpu_free_bytes` and `gpu_total_bytes` of the GPU with the least free memory; empty without nvidia-smi."""
    tool = find_program("nvidia-smi") if device_files() else None
    query = "--query-gpu=memory.free,memory.total"
    text = output_of([tool, query, "--format=csv,noheader,nounits"]) if tool else ""
    rows = [re.match(r"(\d+), (\d+)", line) for line in text.splitlines()]
    memory = min(((int(row[1]), int(row[2])) for row in rows if row), default=None)
    return {} if memory is None else {"gpu_free_bytes": memory[0] << 20, "gpu_total_bytes": memory[1] << 20}


def gpu_faults(tool: str) -> list[str]:
    """What nvidia-smi says is broken: uncorrected memory errors since the last reset, and NVLinks that are down.

    A GPU with fewer active links than another one of the host: some models have links that are never connected.
    """
    query = [tool, "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"]
    rows = [re.match(r"(\d+), (\d+)$", line) for line in output_of(query).splitlines()]
    faults = [f"GPU {row[1]} has {row[2]} uncorrected memory errors" for row in rows if row and int(row[2])]
    links: dict[str, int] = {}
    for line in output_of([tool, "nvlink", "--status"]).splitlines():
        if match := re.match(r"GPU (\d+):", line):
            links[match[1]] = 0
        elif links and re.match(r"\s+Link \d+: [\d.]+ GB/s", line):
            links[list(links)[-1]] += 1
    most = max(links.values(), default=0)
    return faults + [f"GPU {gpu} has {count} of {most} NVLinks" for gpu, count in links.items() if count < most]


def near_cores(bus_id: str) -> list[int]:
    """The cores of the NUMA node of a PCI device, the hardware threads of a core side by side.

    The kernel writes bus ids with four hexadecimal digits for the domain, nvidia-smi with eight.
    """
    domain, _, rest = bus_id.lower().partition(":")
    cores = core_list(read_text(f"{PCI_DEVICES}/{domain[-4:]}:{rest}/local_cpulist"))
    threads = {core: core_list(read_text(f"{CPUS}/cpu{core}/topology/thread_siblings_list")) for core in cores}
    return sorted(cores, key=lambda core: (threads[core][0] if threads[core] else core, core))


def core_list(text: str) -> list[int]:
    """The numbers in a list of the kernel: `0-2,8` is 0, 1, 2, 8."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    cores: list[int] = []
    for first, _, last in ranges:
        cores += range(int(first), int(last or first) + 1)
    return cores


def gpu_topology(tool: str) -> list[str]:
    """The rows of `nvidia-smi topo -m`: how GPUs and network cards are linked. Empty if it cannot tell."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output_of([tool, "topo", "-m"]))
    rows = [line.rstrip() for line in text.partition("Legend")[0].splitlines()]
    if not any(row.startswith("GPU0") for row in rows):
        return []
    return [row for row in rows if row]


GPU_DEVICES = "/dev/nvidia[0-9]*"
"""The device files of NVIDIA's kernel driver. Without one, nvidia-smi is not started."""


def describe_gpus() -> dict[str, Any]:
    """The GPUs that tasks may use.

    `gpus`, `gpu_ids` and `gpu_uuids` are names, CUDA_VISIBLE_DEVICES entries and UUIDs of the visible GPUs,
    `gpus_hidden` is the number of GPUs that CUDA_VISIBLE_DEVICES hides, `gpu_devices` the number of device files. With
    device files, but neither visible nor hidden GPUs, nvidia-smi is missing or failed.
    `gpu_memory` and `gpu_cores` are the bytes of each visible GPU (0: unknown, as of MIG instances) and the cores of
    its NUMA node, `gpu_faults` says what is broken, `gpu_topology` is the matrix of nvidia-smi for several GPUs, and
    `cuda_missing` the CUDA libraries that TensorFlow will not find.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    files = device_files()
    tool = find_program("nvidia-smi")
    hides_all = visible is not None and not re.match(r"\s*(\d|GPU-|MIG-)", visible)
    gpus = list_gpus(output_of([tool, "-L"])) if tool is not None and files and not hides_all else []
    shown = visible_gpus(gpus, visible)
    hardware = gpu_memory_and_cores(tool) if tool and shown else {}
    of_shown = [hardware.get(gpu.gpu_uuid, (0, [])) for _, gpu in shown]
    whole = [gpu.uuid == gpu.gpu_uuid for _, gpu in shown]
    return {
        "gpus": [gpu.name for _, gpu in shown],
        "gpu_ids": [entry for entry, _ in shown],
        "gpu_uuids": [gpu.uuid for _, gpu in shown],
        "gpu_processes": _gpu_processes(tool, [gpu for _, gpu in shown]) if tool and shown else [],
        "gpus_hidden": len(files) if hides_all else max(0, len(gpus) - len(shown)),
        "gpu_devices": len(files),
        "gpu_memory": [memory if is_whole else 0 for is_whole, (memory, _) in zip(whole, of_shown, strict=True)],
        "gpu_cores": [cores for _, cores in of_shown],
        "gpu_topology": gpu_topology(tool) if tool and len(shown) > 1 else [],
        "gpu_faults": gpu_faults(tool) if tool and shown else [],
        "driver": read_text("/sys/module/nvidia/version").strip() if gpus else "",
        "cuda_missing": missing_cuda_libraries() if shown else [],
    }


def device_files() -> list[str]:
    """The device files of this host's GPUs."""
    return glob.glob(GPU_DEVICES)


class Gpu(NamedTuple):
    """A CUDA device: a GPU, or a MIG instance of one."""

    number: str
    """Index of the GPU, by PCI bus."""
    gpu_uuid: str
    """UUID of the GPU."""
    uuid: str
    """UUID of the instance; of the GPU if it is not divided."""
    name: str


def list_gpus(text: str) -> list[Gpu]:
    """The CUDA devices in the output of `nvidia-smi -L`. MIG instances replace the GPU that they divide."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): (.*) \(UUID: (\S+)\)", line):
            gpus.append(Gpu(match[1], match[3], match[3], match[2]))
        elif gpus and (match := re.match(r"\s+(MIG \S+).*\(UUID: (\S+)\)", line)):
            last = gpus.pop() if gpus[-1].uuid == gpus[-1].gpu_uuid else gpus[-1]
            model = last.name.partition(" MIG ")[0]
            gpus.append(Gpu(last.number, last.gpu_uuid, match[2], f"{model} {match[1]}"))
    return gpus


def visible_gpus(gpus: list[Gpu], visible: str | None) -> list[tuple[str, Gpu]]:
    """Each GPU that a value of CUDA_VISIBLE_DEVICES selects, in its order, with the entry that selects it.

    As in CUDA, an entry is an index or a UUID prefix, an invalid entry hides itself and all that follow
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars), and a GPU that is divided by MIG stands for its
    first instance (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/#cuda-device-enumeration).
    """
    if visible is None:
        return [(gpu.number if gpu.uuid == gpu.gpu_uuid else gpu.uuid, gpu) for gpu in gpus]
    shown = []
    for entry in map(str.strip, visible.split(",")):
        matches = [
            gpu
            for gpu in gpus
            if entry and (entry == gpu.number or gpu.uuid.startswith(entry) or gpu.gpu_uuid.startswith(entry))
        ]
        if not matches:
            break
        shown.append((entry, matches[0]))
    return shown


def _gpu_processes(tool: str, gpus: list[Gpu]) -> list[list[str]]:
    # UUID (as in `gpu_uuids`), pid, program and memory of each process that computes on one of these GPUs.
    query = [tool, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader"]
    rows = [re.match(r"(\S+), (\S+), (.*), (.*)", line) for line in output_of(query).splitlines()]
    return [[*row.groups()] for gpu in gpus for row in rows if row and row[1] == gpu.uuid]
