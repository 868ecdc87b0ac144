"""How long a scheduler waits between the SIGTERM that it sends to all processes of a job, and its SIGKILL."""

import re
import subprocess
from collections.abc import Mapping

DEFAULT_S = 30.0
"""Slurm's default of KillWait (https://slurm.schedmd.com/slurm.conf.html#OPT_KillWait)."""
IN_A_JOB = {"SLURM_JOB_ID", "SLURM_HET_SIZE"}
"""Variables of a Slurm job. That of a heterogeneous one, started with salloc, has no number without its group."""
ANSWER_S = 5.0
"""Time for slurmctld to answer."""
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]+) sec", re.MULTILINE)


def kill_wait_s(environ: Mapping[str, str]) -> float:
    """Seconds; in a Slurm job its KillWait, or the default if it cannot be asked for; elsewhere 0."""
    if not IN_A_JOB & environ.keys():
        return 0.0
    command = ("scontrol", "show", "config")
    try:
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return DEFAULT_S
    match = _KILL_WAIT.search(done.stdout)
    return float(match[1]) if match else DEFAULT_S
