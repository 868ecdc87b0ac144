"""Memory, nearest cores and links of GPUs. Part of the agent."""

import re

from tfdist.launch.agent_program.commands import find_program, output_of
from tfdist.launch.agent_program.files import read_text

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
    tool = find_program("nvidia-smi")
    query = "--query-gpu=memory.free,memory.total"
    text = output_of([tool, query, "--format=csv,noheader,nounits"]) if tool else ""
    rows = [re.match(r"(\d+), (\d+)", line) for line in text.splitlines()]
    memory = min(((int(row[1]), int(row[2])) for row in rows if row), default=None)
    return {} if memory is None else {"gpu_free_bytes": memory[0] << 20, "gpu_total_bytes": memory[1] << 20}


def near_cores(bus_id: str) -> list[int]:
    """The cores of the NUMA node of a PCI device, the hardware threads of a core side by side.

    The kernel writes bus ids with four hexadecimal digits for the domain, nvidia-smi with eight.
    """
    domain, _, rest = bus_id.lower().partition(":")
    cores = core_list(read_text(f"{PCI_DEVICES}/{domain[-4:]}:{rest}/local_cpulist"))
    return sorted(cores, key=lambda core: (_first_thread(core), core))


def _first_thread(core: int) -> int:
    return next(iter(core_list(read_text(f"{CPUS}/cpu{core}/topology/thread_siblings_list"))), core)


def core_list(text: str) -> list[int]:
    """The numbers in a list of the kernel: `0-2,8` is 0, 1, 2, 8."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return [core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)]


def gpu_topology(tool: str) -> list[str]:
    """The rows of `nvidia-smi topo -m`: how GPUs and network cards are linked. Empty if it cannot tell."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output_of([tool, "topo", "-m"]))
    rows = [line.rstrip() for line in text.partition("Legend")[0].splitlines()]
    return [row for row in rows if row] if any(row.startswith("GPU0") for row in rows) else []
