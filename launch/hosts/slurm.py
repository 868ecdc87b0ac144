"""What the environment of a Slurm job says: its nodes, and the variables that must not reach srun. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import parse_hosts

NODES = "SLURM_JOB_NODELIST"
"""The nodes of the job; of a heterogeneous job only those of group 0, or none."""
GROUPS = "SLURM_HET_SIZE"
"""Number of groups of a heterogeneous job; other jobs do not have it."""
LEAKING = (
    "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_EXACT", "SLURM_NTASKS*", "SLURM_GPUS*",
    "SLURM_GPU_BIND", "SLURM_MEM_*", "SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_DISTRIBUTION",
)  # fmt: skip
"""Options of the batch job that srun takes from its environment, too. They would shrink an agent's step to some of the
node's CPUs and GPUs, or make srun fail (https://slurm.schedmd.com/srun.html#SECTION_INPUT-ENVIRONMENT-VARIABLES)."""


def leaking_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of `environ` that srun must not see, sorted."""
    return tuple(sorted(name for name in environ if any(fnmatchcase(name, pattern) for pattern in LEAKING)))


def slurm_hosts(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the current allocation in Slurm's order; those of a heterogeneous job group by group.

    Source: https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES and
    https://slurm.schedmd.com/heterogeneous_jobs.html#env_var.

    Raises:
        TfdistError: not inside an allocation, or two groups share a node.
    """
    if GROUPS in environ:
        return _hosts_of_groups(environ)
    if not environ.get(NODES):
        raise TfdistError(
            "--transport srun: not inside a Slurm allocation; start one with 'salloc' or 'sbatch', or add --hosts"
        )
    return parse_hosts(environ[NODES], NODES)


def with_groups(hosts: Sequence[Host], environ: Mapping[str, str]) -> tuple[Host, ...]:
    """These hosts with their groups, if the current job is heterogeneous.

    Raises:
        TfdistError: a host is in none of the groups, or two groups share a node.
    """
    if GROUPS not in environ:
        return tuple(hosts)
    groups = {host.name: host.het_group for host in _hosts_of_groups(environ)}
    for host in hosts:
        if host.name not in groups:
            raise TfdistError(f"{host.name}: not a node of this heterogeneous job; use {', '.join(groups)}")
    return tuple(replace(host, het_group=groups[host.name]) for host in hosts)


def _hosts_of_groups(environ: Mapping[str, str]) -> tuple[Host, ...]:
    hosts: dict[str, Host] = {}
    for group in range(int(environ[GROUPS])):
        variable = f"{NODES}_HET_GROUP_{group}"
        for host in parse_hosts(environ.get(variable, ""), variable):
            if host.name in hosts:
                raise TfdistError(
                    f"{variable} {host.name}: also in group {hosts[host.name].het_group}; "
                    "request each group with --exclusive, so that no two share a node"
                )
            hosts[host.name] = replace(host, het_group=group)
    return tuple(hosts.values())
