"""`--requeue`: the last act of a launch in a Slurm batch job whose training was preempted."""

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.text import last_line

JOB = "SLURM_JOB_ID"
COUNT = "SLURM_RESTART_COUNT"
"""How often Slurm has started the job again; not set at first."""
ANSWER_S = 60.0
"""Seconds for slurmctld to answer."""


def check_requeue(most: int | None, recovery: Recovery, *, own: bool) -> None:
    """Do nothing for None.

    Args:
        most: value of --requeue.
        recovery: the options about checkpoints.
        own: the program is the user's.

    Raises:
        TfdistError: the value is out of range, or the requeued job would not find its checkpoint.
    """
    if most is None:
        return
    if most < 1:
        raise TfdistError(f"--requeue {most}: must be at least 1; omit it to never requeue the job")
    needed = [] if recovery.folder is not None else ["--checkpoint-dir DIR"]
    needed += [] if own or recovery.resume == AUTO else [f"--resume {AUTO}"]
    if needed:
        raise TfdistError(f"--requeue {most}: the job would start from step 0 again; add {' '.join(needed)}")


def check_slurm(most: int | None, environ: Mapping[str, str]) -> None:
    """Do nothing for None.

    Raises:
        TfdistError: this is no Slurm job.
    """
    if most is not None and JOB not in environ:
        raise TfdistError(
            f"--requeue {most}: not inside a Slurm job; submit one with 'tfdist sbatch', or omit --requeue"
        )


def refusal(outcome: Outcome, most: int, environ: Mapping[str, str]) -> str:
    """Why a job that ended with exit code 42 is not requeued; empty if it is. Pure."""
    if outcome.signal == signal.SIGTERM:  # scancel, the time limit, or a preemption after which Slurm itself requeues
        return "SIGTERM has ended it"
    return f"--requeue {most} is used up" if _count(environ) >= most else ""


@contextmanager
def without_sigterm() -> Iterator[None]:
    """Ignore SIGTERM, in programs that are started meanwhile, too.

    Slurm sends it to all processes of a job that it requeues, perhaps before scontrol and this process have finished.
    """
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def requeue(outcome: Outcome, code: int, most: int, environ: Mapping[str, str]) -> str:
    """Requeue this job if it ended with exit code 42. Returns what happened as one line; empty after another code.

    Slurm ends the job then, this process included, and starts its script again later: call it `without_sigterm`.

    Args:
        outcome: of the tasks, all of which have ended.
        code: the exit code of this process.
        most: number of times that the job may be requeued.
        environ: of this process.
    """
    if code != ExitCode.PREEMPTED:
        return ""
    reason = refusal(outcome, most, environ)
    if reason:
        return f"not requeued: {reason}"
    try:
        done = subprocess.run(
            ["scontrol", "requeue", environ[JOB]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
        )
        failure = last_line(done.stderr) if done.returncode else ""
    except OSError as error:
        failure = f"scontrol: {error.strerror}"
    except subprocess.TimeoutExpired:
        failure = f"scontrol: no answer within {ANSWER_S:g} s"
    times = f"{_count(environ) + 1} of {most}"
    return f"not requeued: {failure}; run 'scontrol requeue {environ[JOB]}'" if failure else f"requeued ({times})"


def _count(environ: Mapping[str, str]) -> int:
    return int(environ.get(COUNT, "0"))
