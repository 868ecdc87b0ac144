"""Which cores the tasks with GPUs are pinned to. Pure."""

from collections.abc import Sequence

from tfdist.launch.machine import Machine


def near_gpus(devices: int, tasks: int, machine: Machine) -> tuple[tuple[int, ...], ...]:
    """The cores of each task: those of its GPUs' NUMA nodes; empty: do not pin it.

    Tasks on the same nodes share their cores, disjointly if there is one for each. TensorFlow sizes its thread pools
    by the affinity of the process, so these need no setting.

    Args:
        devices: GPUs of each task; task i has the i-th `devices` GPUs of the machine.
        tasks: number of tasks on the machine that compute.
        machine: the host, with the cores that tasks may use.
    """
    nodes = [_cores_of(machine.gpu_cores[task * devices : (task + 1) * devices], machine) for task in range(tasks)]
    shares = [_share(node, nodes[:task].count(node), nodes.count(node)) for task, node in enumerate(nodes)]
    return tuple(() if len(share) == len(machine.cores) else tuple(sorted(share)) for share in shares)


def _cores_of(gpu_cores: Sequence[Sequence[int]], machine: Machine) -> tuple[int, ...]:
    """The usable cores near any of these GPUs; none if the node of one is unknown."""
    if not all(gpu_cores):
        return ()
    cores = dict.fromkeys(core for each in gpu_cores for core in each)
    return tuple(core for core in cores if core in machine.cores)


def _share(cores: Sequence[int], index: int, count: int) -> Sequence[int]:
    """Part `index` of `count` about equal parts; all cores if there are fewer than parts."""
    if len(cores) < count:
        return cores
    return cores[index * len(cores) // count : (index + 1) * len(cores) // count]
