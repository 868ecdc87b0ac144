"""`--requeue`: the batch job that runs this launcher goes back into its queue after it has saved."""

import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tfdist.jobs.inherit import Inherit
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.schedulers.table import BATCH_SYSTEMS, NAMES, current
from tfdist.launch.text import last_line

ANSWER_S = 60.0
"""Seconds for the scheduler to answer."""


def check_requeue(most: int | None, recovery: Recovery, inherit: Inherit | None, *, own: bool) -> None:
    """Refuse a --requeue that cannot work.

    Args:
        most: value of --requeue; None: not given.
        recovery: the options about checkpoints.
        inherit: other launchers start the other tasks of the job.
        own: the program is the user's.

    Raises:
        TfdistError: the value is out of range, the requeued job would not find its checkpoint, or other tasks still
            save theirs.
    """
    if most is None:
        return
    if most < 1:
        raise TfdistError(f"--requeue {most}: must be at least 1; omit it to never requeue the job")
    needed = [] if recovery.checkpoint_dir is not None else ["--checkpoint-dir DIR"]
    if not (own or recovery.resume == AUTO):
        needed.append(f"--resume {AUTO}")
    if needed:
        raise TfdistError(f"--requeue {most}: the job would start from step 0 again; add {' '.join(needed)}")
    if inherit is not None:
        transports = " or ".join(system.TRANSPORT for system in BATCH_SYSTEMS)
        raise TfdistError(
            f"--requeue {most}: with {inherit.flag} each task has its own launcher, and the first one to end would "
            f"requeue the job while others still save; omit it, or use --transport {transports} instead of "
            f"{inherit.flag}"
        )


def check_batch_job(most: int | None, environ: Mapping[str, str]) -> None:
    """Refuse a --requeue, if it was given, outside a job that can be requeued.

    Raises:
        TfdistError: this is no such job.
    """
    if most is not None and not _command(environ):
        commands = " or ".join(f"'tfdist {system.COMMAND}'" for system in BATCH_SYSTEMS)
        raise TfdistError(f"--requeue {most}: not inside a {NAMES} job; submit one with {commands}, or omit it")


def _command(environ: Mapping[str, str]) -> tuple[str, ...]:
    system = current(environ)
    return () if system is None else system.requeue_command(environ)


@contextmanager
def without_sigterm() -> Iterator[None]:
    """Ignore SIGTERM, in programs that are started meanwhile, too.

    A scheduler may send it to all processes of a job that it requeues, before its command and this process have
    finished.
    """
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def requeue(outcome: Outcome, code: int, most: int, environ: Mapping[str, str]) -> str:
    """Requeue this job if it ended with exit code 42. Returns what happened as one line; empty after another code.

    The scheduler ends the job then, this process included, and starts its script again later: call it
    `without_sigterm`, in a job that `check_batch_job` does not refuse.

    Args:
        outcome: of the tasks, all of which have ended.
        code: the exit code of this process.
        most: number of times that the job may be requeued.
        environ: of this process.
    """
    if code != ExitCode.PREEMPTED:
        return ""
    if outcome.signal == signal.SIGTERM:  # a cancel, the time limit, or a preemption that requeues the job itself
        return "not requeued: SIGTERM has ended it"
    system, words = current(environ), _command(environ)
    count = 0 if system is None else system.restarts(environ)
    if count >= most:
        return f"not requeued: --requeue {most} is used up"
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S)
        failure = last_line(done.stderr) if done.returncode else ""
    except OSError as error:
        failure = f"{words[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        failure = f"{words[0]}: no answer within {ANSWER_S:g} s"
    if failure:
        return f"not requeued: {failure}; run '{shlex.join(words)}'"
    return f"requeued ({count + 1} of {most})"
