"""Slurm: its variables, its commands and its batch scripts. A `BatchSystem` (`table.py`)."""

import math
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.launch.errors import TfdistError
from tfdist.launch.host_list import node_names, place_in
from tfdist.launch.text import check_name

NAME = "Slurm"
COMMAND = "sbatch"
TRANSPORT = "srun"
PREFIXES: tuple[str, ...] = ("SLURM_",)
LEAKING: tuple[str, ...] = (
    "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_EXACT", "SLURM_NTASKS*", "SLURM_GPUS*",
    "SLURM_GPU_BIND", "SLURM_MEM_*", "SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_DISTRIBUTION",
)  # fmt: skip
"""Options of the batch job that srun takes from its environment, too. They would shrink an agent's step to some of the
node's CPUs and GPUs, or make srun fail (https://slurm.schedmd.com/srun.html#SECTION_INPUT-ENVIRONMENT-VARIABLES)."""
STEP_DIES_ON_SIGTERM = True

_JOB = "SLURM_JOB_ID"
"""In a heterogeneous job, started with salloc, it has the group as a suffix."""
_NODES = "SLURM_JOB_NODELIST"
"""The nodes of the job; of a heterogeneous job only those of group 0, or none."""
_GROUPS = "SLURM_HET_SIZE"
"""Number of groups of a heterogeneous job; other jobs do not have it."""
_RESTARTS = "SLURM_RESTART_COUNT"
"""Not set at first."""


def is_inside(environ: Mapping[str, str]) -> bool:
    """Whether a process with these variables belongs to a job."""
    return not environ.keys().isdisjoint((_JOB, _GROUPS))


# The hosts of a job


def nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes of the current allocation in Slurm's order; those of a heterogeneous job group by group.

    Source: https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES

    Raises:
        TfdistError: not inside an allocation, or two groups share a node.
    """
    if _GROUPS in environ:
        return tuple(groups(environ))
    if not environ.get(_NODES):
        raise TfdistError(
            "--transport srun: not inside a Slurm allocation; start one with 'salloc' or 'sbatch', or add --hosts"
        )
    return node_names(environ[_NODES], _NODES)


def groups(environ: Mapping[str, str]) -> Mapping[str, int]:
    """The group of each node of a heterogeneous job; empty in any other job.

    Source: https://slurm.schedmd.com/heterogeneous_jobs.html#env_var

    Raises:
        TfdistError: two groups share a node.
    """
    found: dict[str, int] = {}
    for group in range(int(environ.get(_GROUPS, "0"))):
        variable = f"{_NODES}_HET_GROUP_{group}"
        for name in node_names(environ.get(variable, ""), variable):
            if name in found:
                raise TfdistError(
                    f"{variable} {name}: also in group {found[name]}; "
                    "request each group with --exclusive, so that no two share a node"
                )
            found[name] = group
    return found


def step(node: str, group: int | None, hidden: Sequence[str]) -> tuple[str, ...]:
    """A job step in the current allocation, with all of its resources on that node, beside other steps.

    With `--export=ALL`, a SLURM_EXPORT_ENV=NONE of the job does not hide the user's environment; with `--mem=0`, a step
    without memory of its own does not wait for that of others.
    """
    unset = tuple(word for name in hidden for word in ("-u", name))
    prefix = ("env", *unset) if unset else ()
    options = ("--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mem=0", "--mpi=none", "--export=ALL")
    in_group = () if group is None else (f"--het-group={group}",)
    return (*prefix, "srun", *in_group, *options, "--quiet", "--job-name=tfdist", f"--nodelist={node}")


# A step whose tasks are launchers (`--inherit slurm`)

_STEP_NODES, _RANK = "SLURM_STEP_NODELIST", "SLURM_PROCID"
_TASKS_PER_NODE, _NODE = "SLURM_STEP_TASKS_PER_NODE", "SLURMD_NODENAME"
STEP_VARIABLES = (_STEP_NODES, _RANK)
_STEP_FIX = "run 'srun tfdist launch --inherit slurm' with --distribution=block, and without --het-group"


def tasks_of_step(environ: Mapping[str, str]) -> tuple[tuple[str, ...], int]:
    """The node of each task of this step, in order of their ranks, and the rank of this one.

    The tasks of the first node come first. Source: the output environment variables of srun
    (https://slurm.schedmd.com/srun.html).

    Raises:
        TfdistError: a variable is malformed, or the step distributes its tasks over the nodes in another way.
    """
    names = node_names(environ[_STEP_NODES], _STEP_NODES)
    text = environ.get(_TASKS_PER_NODE, f"1(x{len(names)})")  # 2(x3),1 is 2, 2, 2, 1
    parts = [re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part) for part in text.split(",")]
    if not all(parts):
        raise TfdistError(f"{_TASKS_PER_NODE}={text!r}: must be numbers as in 2(x3),1; {_STEP_FIX}")
    counts: list[int] = []
    for part in filter(None, parts):
        counts += [int(part[1])] * int(part[2] or 1)
    if len(counts) != len(names):
        raise TfdistError(
            f"{_TASKS_PER_NODE}={text}: not a number for each node of {environ[_STEP_NODES]}; {_STEP_FIX}"
        )
    hosts = tuple(node for node, count in zip(names, counts, strict=True) for _ in range(count))
    rank = place_in(environ, _RANK, len(hosts), f"tasks of this step; {_STEP_FIX}")
    if environ.get(_NODE, hosts[rank]) != hosts[rank]:
        raise TfdistError(f"{_RANK}={rank} runs on {environ[_NODE]}, not on {hosts[rank]}; {_STEP_FIX}")
    return hosts, rank


# The end of a job

DEFAULT_KILL_WAIT_S = 30.0
"""Slurm's default of KillWait (https://slurm.schedmd.com/slurm.conf.html#OPT_KillWait)."""
ANSWER_S = 5.0
"""Time for slurmctld to answer."""
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]+) sec", re.MULTILINE)


def kill_wait_s(environ: Mapping[str, str]) -> float:
    """KillWait in seconds, or its default if slurmctld does not answer."""
    command = ("scontrol", "show", "config")
    try:
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return DEFAULT_KILL_WAIT_S
    match = _KILL_WAIT.search(done.stdout)
    return float(match[1]) if match else DEFAULT_KILL_WAIT_S


def requeue_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What puts the current job back into the queue; empty if no batch script started it."""
    return ("scontrol", "requeue", environ[_JOB]) if _JOB in environ else ()


def restarts(environ: Mapping[str, str]) -> int:
    """Number of times that Slurm has started the current job again."""
    return int(environ.get(_RESTARTS, "0"))


# A batch script

SAVE_S = 180
"""Seconds before the time limit, to save a checkpoint. Slurm may send the signal up to 60 s early
(https://slurm.schedmd.com/sbatch.html#OPT_signal)."""
EARLY_S = 60
_SPECIAL = re.compile(r"[\s#'\"\\]")


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm is asked for: a job that runs one command on its first node."""

    nodes: int
    gpus_per_node: int = 0
    exclusive: bool = True
    options: tuple[str, ...] = ()
    """Other options of sbatch, without `--`."""

    def script(
        self,
        name: str,
        command: Sequence[str],
        *,
        requeue: bool = False,
        signal_s: int | None = None,
        unset: Sequence[str] = (),
    ) -> str:
        """The text of the batch script.

        Args:
            name: of the job.
            command: its words.
            requeue: Slurm may start the job again, with the same log.
            signal_s: the command gets SIGUSR2 this many seconds before the time limit; None: it does not.
            unset: variables that the command does not get. It gets all others of whoever submits the job.

        Raises:
            TfdistError: the name or an option has a line break or another control character.
        """
        for text in (name, *self.options):  # each is in a comment, which ends with its line
            check_name("sbatch", text)
        options = self._options(name, requeue, signal_s)
        comments = "".join(f"#SBATCH --{key}{equals}{quoted(value)}\n" for key, equals, value in options)
        removed = f"unset {' '.join(unset)}\n" if unset else ""
        return f"#!/bin/bash\n{comments}{removed}exec {shlex.join(command)}\n"

    def _options(self, name: str, requeue: bool, signal_s: int | None) -> list[tuple[str, str, str]]:
        named = any(option.startswith("job-name=") for option in self.options)
        options = [] if named else [f"job-name={name}"]
        options += [f"nodes={self.nodes}"]
        if self.exclusive:
            options.append("exclusive")
        if self.gpus_per_node:
            options.append(f"gpus-per-node={self.gpus_per_node}")
        if requeue:
            options += ["requeue", "open-mode=append"]
        if signal_s is not None:
            options.append(f"signal=B:USR2@{signal_s}")
        return [option.partition("=") for option in (*options, *self.options)]


def quoted(value: str) -> str:
    """The value of an option on a line that starts with #SBATCH.

    sbatch drops quotes and what follows a `#`, as a shell does. But a backslash escapes within each kind of quotes
    (`get_argument` in https://github.com/SchedMD/slurm/blob/master/src/sbatch/opt.c).
    """
    return "'" + re.sub(r"[\\']", r"\\\g<0>", value) + "'" if _SPECIAL.search(value) else value


def signal_time_s(grace_s: float) -> int:
    """Seconds before the time limit at which a job is signalled, so that a save of `grace_s` seconds fits."""
    return max(SAVE_S, EARLY_S + math.ceil(grace_s))
