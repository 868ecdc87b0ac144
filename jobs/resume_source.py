"""What `--resume` continues, and whether it can."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tfdist.jobs.checkpoint_source import CheckpointSource, find_source, listing_of, no_checkpoint, read_saved_spec
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.state import Run, RunState, list_runs
from tfdist.launch.text import last_line
from tfdist.models.checkpoints import Checkpointing, check_empty, list_checkpoints

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


def find_resumed(
    recovery: Recovery, runs_dir: Path, command: tuple[str, ...], *, remote: bool, shared: bool = False
) -> CheckpointSource | None:
    """What --resume names; None without it, and if `auto` finds no checkpoint.

    Args:
        recovery: the options.
        runs_dir: folder of the runs.
        command: the user's own program.
        remote: the job runs on hosts that may see other folders than this machine.
        shared: other launchers start the other tasks of the job, and save in the same folder. The tasks decide together
            whether they continue, for each launcher alone could see another state of the folder.

    Raises:
        TfdistError: there is nothing to continue, or it is in use.
    """
    if shared and recovery.resume in (None, AUTO):
        return _for_the_tasks(recovery)
    if recovery.resume is None:
        _refuse_if_used(recovery.folder, runs_dir)
        if recovery.folder is not None and not command and not remote:
            with suppress(OSError):  # the preflight says why it cannot be used
                check_empty(list_checkpoints(recovery.folder), recovery.folder)
        return None
    option = recovery.words["resume"]
    if recovery.resume == AUTO:
        return _find_auto(option, recovery.folder, runs_dir, command, remote)
    source = find_source(recovery.resume, runs_dir, option)
    if recovery.folder not in (None, source.folder):
        raise TfdistError(
            f"{recovery.words['checkpoint_dir']}: a resumed training saves in the folder that it continues from, "
            f"{source.folder}; omit --checkpoint-dir"
        )
    _check_program(source, command)
    if not shared:
        _refuse_if_used(source.folder, runs_dir)
    return _with_newest(source, remote) if not command else _checked_files(source, remote)


def resume_command(arguments: Sequence[str], run_dir: Path, saved: Checkpointing | None, *, own: bool) -> str:
    """The command that continues a run from its checkpoints; empty if it has saved none.

    Args:
        arguments: those of the run's command, from `launch` on.
        run_dir: its folder.
        saved: where it is saved.
        own: its program is the user's.
    """
    if saved is None:
        return ""
    folder = Path(saved.folder)
    with suppress(OSError):
        if "://" in saved.folder or (any(folder.iterdir()) if own else list_checkpoints(saved.folder).newest):
            return redact_command(["tfdist", *arguments[:1], "--resume", str(run_dir), *arguments[1:]])
    return ""


def _for_the_tasks(recovery: Recovery) -> CheckpointSource | None:
    """Without --resume the tasks refuse a folder that holds checkpoints, unless they are restarted."""
    if recovery.resume is None:
        return None
    option = recovery.words["resume"]
    return CheckpointSource(option, _auto_folder(option, recovery.folder), may_be_empty=True)


def _auto_folder(option: str, folder: str | None) -> str:
    if folder is None:
        raise TfdistError(f"{option}: needs --checkpoint-dir, the folder that is resumed if it holds a checkpoint")
    return folder


def _find_auto(
    option: str, folder: str | None, runs_dir: Path, command: tuple[str, ...], remote: bool
) -> CheckpointSource | None:
    folder = _auto_folder(option, folder)
    _refuse_if_used(folder, runs_dir)
    source = CheckpointSource(option, folder, may_be_empty=True)
    if command or _is_elsewhere(folder, remote):
        return source
    listing = listing_of(source)
    if listing.problems and listing.newest is None:
        raise no_checkpoint(source, listing)
    return None if listing.newest is None else CheckpointSource(option, folder, newest=listing.newest)


def _check_program(source: CheckpointSource, command: tuple[str, ...]) -> None:
    """Refuse to continue the training of another program."""
    if source.run is None:
        return
    if source.run.command and not command:
        raise TfdistError(
            f"{source.option}: that run was of your own program; give its command again: "
            f"tfdist launch {source.option} -- COMMAND"
        )
    if command and not source.run.command:
        raise TfdistError(f"{source.option}: that run was of the built-in training; omit the COMMAND")


def _with_newest(source: CheckpointSource, remote: bool) -> CheckpointSource:
    if _is_elsewhere(source.folder, remote):
        return source
    listing = listing_of(source)
    if listing.newest is None:
        error = no_checkpoint(source, listing)
        raise TfdistError(f"{error}; start the training again without --resume")
    return CheckpointSource(source.option, source.folder, source.run, listing.newest)


def _checked_files(source: CheckpointSource, remote: bool) -> CheckpointSource:
    """Refuse a folder in which the user's program cannot have saved anything."""
    folder = Path(source.folder)
    if not _is_elsewhere(source.folder, remote) and not (folder.is_dir() and any(folder.iterdir())):
        raise TfdistError(f"{source.option}: {source.folder} holds no files; start the program again without --resume")
    return source


def _is_elsewhere(folder: str, remote: bool) -> bool:
    """Whether only the tasks can read the folder."""
    return "://" in folder or (remote and not Path(folder).exists())


def _refuse_if_used(folder: str | None, runs_dir: Path) -> None:
    """Refuse the folder of a run that still saves checkpoints there."""
    if folder is None:
        return
    for run in list_runs(runs_dir):
        if run.state is RunState.RUNNING and _folder_of(run) == folder:
            path = run.run_dir.path
            raise TfdistError(f"{folder}: {run.name} still saves checkpoints there; stop it with 'tfdist stop {path}'")


def _folder_of(run: Run) -> str | None:
    """The folder of checkpoints of a run whose launcher runs on this machine."""
    saved = read_saved_spec(run.run_dir) if run.launcher is not None and run.launcher.local else None
    return saved.checkpointing.folder if saved is not None and saved.checkpointing is not None else None
