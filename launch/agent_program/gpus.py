"""The GPUs of a host, from nvidia-smi. Part of the agent."""

import glob
import os
import re
from typing import Any, NamedTuple

from tfdist.launch.agent_program.commands import find_program, output_of
from tfdist.launch.agent_program.cuda import missing_cuda_libraries
from tfdist.launch.agent_program.files import read_text
from tfdist.launch.agent_program.gpu_hardware import gpu_memory_and_cores, gpu_topology

GPU_DEVICES = "/dev/nvidia[0-9]*"
"""The device files of NVIDIA's kernel driver. Without one, nvidia-smi is not started."""


def describe_gpus() -> dict[str, Any]:
    """The GPUs that tasks may use.

    `gpus`, `gpu_ids` and `gpu_uuids` are names, CUDA_VISIBLE_DEVICES entries and UUIDs of the visible GPUs,
    `gpus_hidden` is the number of GPUs that CUDA_VISIBLE_DEVICES hides, `gpu_devices` the number of device files. With
    device files, but neither visible nor hidden GPUs, nvidia-smi is missing or failed.
    `gpu_memory` and `gpu_cores` are the bytes of each visible GPU (0: unknown, as of MIG instances) and the cores of
    its NUMA node, `gpu_topology` is the matrix of nvidia-smi for several GPUs, and `cuda_missing` the CUDA libraries
    that TensorFlow will not find.
    """
    visible, files, tool = os.environ.get("CUDA_VISIBLE_DEVICES"), device_files(), find_program("nvidia-smi")
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
        matches = [gpu for gpu in gpus if entry and (entry == gpu.number or _has_prefix(gpu, entry))]
        if not matches:
            break
        shown.append((entry, matches[0]))
    return shown


def _has_prefix(gpu: Gpu, prefix: str) -> bool:
    return gpu.uuid.startswith(prefix) or gpu.gpu_uuid.startswith(prefix)


def _gpu_processes(tool: str, gpus: list[Gpu]) -> list[list[str]]:
    # UUID (as in `gpu_uuids`), pid, program and memory of each process that computes on one of these GPUs.
    query = [tool, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader"]
    rows = [re.match(r"(\S+), (\S+), (.*), (.*)", line) for line in output_of(query).splitlines()]
    return [[*row.groups()] for gpu in gpus for row in rows if row and row[1] == gpu.uuid]
