"""What `--resume` continues, and whether it can."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tfdist.jobs.checkpoint_source import CheckpointSource, find_source, listing_of, no_checkpoint, read_saved_spec
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.claim import ClaimedError, claim
from tfdist.launch.runs.state import RunState, list_runs
from tfdist.launch.text import last_line
from tfdist.models.checkpoints import Checkpointing, check_empty, list_checkpoints

JOB = "SLURM_JOB_ID"
COUNT = "SLURM_RESTART_COUNT"
"""How often Slurm has started the job again; not set at first."""
ANSWER_S = 60.0
"""Seconds for slurmctld to answer."""


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
    needed = [] if recovery.folder is not None else ["--checkpoint-dir DIR"]
    if not (own or recovery.resume == AUTO):
        needed.append(f"--resume {AUTO}")
    if needed:
        raise TfdistError(f"--requeue {most}: the job would start from step 0 again; add {' '.join(needed)}")
    if inherit is not None:
        raise TfdistError(
            f"--requeue {most}: with {inherit.flag} each task has its own launcher, and the first one to end would "
            f"requeue the job while others still save; omit it, or use --transport srun instead of {inherit.flag}"
        )


def check_slurm(most: int | None, environ: Mapping[str, str]) -> None:
    """Refuse a --requeue, if it was given, outside a Slurm job.

    Raises:
        TfdistError: this is no Slurm job.
    """
    if most is not None and JOB not in environ:
        raise TfdistError(f"--requeue {most}: not inside a Slurm job; submit one with 'tfdist sbatch', or omit it")


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
    count = int(environ.get(COUNT, "0"))
    if outcome.signal == signal.SIGTERM:  # scancel, the time limit, or a preemption after which Slurm itself requeues
        return "not requeued: SIGTERM has ended it"
    if count >= most:
        return f"not requeued: --requeue {most} is used up"
    try:
        words = ["scontrol", "requeue", environ[JOB]]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S)
        failure = last_line(done.stderr) if done.returncode else ""
    except OSError as error:
        failure = f"scontrol: {error.strerror}"
    except subprocess.TimeoutExpired:
        failure = f"scontrol: no answer within {ANSWER_S:g} s"
    if failure:
        return f"not requeued: {failure}; run 'scontrol requeue {environ[JOB]}'"
    return f"requeued ({count + 1} of {most})"


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
    option = recovery.words.get("resume", "")
    auto = recovery.resume == AUTO
    if auto and recovery.folder is None:
        raise TfdistError(f"{option}: needs --checkpoint-dir, the folder that is resumed if it holds a checkpoint")
    if recovery.resume is None:
        if not shared:  # else the tasks refuse a folder that holds checkpoints, unless they are restarted
            _refuse_if_used(recovery.folder, runs_dir)
            if recovery.folder is not None and not command and not remote:
                with suppress(OSError):  # the preflight says why it cannot be used
                    check_empty(list_checkpoints(recovery.folder), recovery.folder)
        return None
    if auto:
        source = CheckpointSource(option, recovery.folder or "", may_be_empty=True)
    else:
        source = find_source(recovery.resume, runs_dir, option)
    if recovery.folder not in (None, source.folder):
        raise TfdistError(
            f"{recovery.words['checkpoint_dir']}: a resumed training saves in the folder that it continues from, "
            f"{source.folder}; omit --checkpoint-dir"
        )
    if source.run is not None and source.run.command and not command:
        raise TfdistError(
            f"{option}: that run ran your own program; give its command again: tfdist launch {option} -- COMMAND"
        )
    if source.run is not None and command and not source.run.command:
        raise TfdistError(f"{option}: that run ran the built-in training; omit the COMMAND")
    if not shared:
        _refuse_if_used(source.folder, runs_dir)
    only_tasks_read_it = "://" in source.folder or (remote and not Path(source.folder).exists())
    if only_tasks_read_it or (auto and (shared or command)):
        return source
    if not command:
        listing = listing_of(source)
        if listing.newest is not None:
            return CheckpointSource(option, source.folder, source.run, listing.newest)
        if auto and not listing.problems:
            return None
        error = no_checkpoint(source, listing)
        raise error if auto else TfdistError(f"{error}; start the training again without --resume")
    folder = Path(source.folder)  # in which the program cannot have saved anything if it is empty
    if not folder.is_dir() or not any(folder.iterdir()):
        raise TfdistError(f"{option}: {folder} holds no files; start the program again without --resume")
    return source


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
    has_some = "://" in saved.folder
    with suppress(OSError):
        if not has_some:
            has_some = any(Path(saved.folder).iterdir()) if own else bool(list_checkpoints(saved.folder).newest)
    return redact_command(["tfdist", *arguments[:1], "--resume", str(run_dir), *arguments[1:]]) if has_some else ""


def _refuse_if_used(folder: str | None, runs_dir: Path) -> None:
    """Refuse the folder of a run that still saves checkpoints there."""
    if folder is None:
        return
    path = Path(folder).resolve()
    folders = {each.resolve(): each for each in (path.parent.parent, runs_dir)}  # mostly the same one
    for run in [run for each in folders.values() for run in list_runs(each)]:
        if run.state is not RunState.RUNNING or run.launcher is None or not run.launcher.local:
            continue
        saved = read_saved_spec(run.run_dir)
        if (
            saved is not None
            and saved.checkpointing is not None
            and os.path.realpath(saved.checkpointing.folder) == str(path)
        ):
            raise _in_use(folder, run.name, f"stop it with 'tfdist stop {run.run_dir.path}'")


@contextmanager
def claimed(recovery: Recovery, source: CheckpointSource | None, *, shared: bool, dry_run: bool) -> Iterator[None]:
    """Let no other launch save in the folder of checkpoints until the context ends, also before the run has a folder.

    Args:
        recovery: the options about checkpoints.
        source: what --resume names.
        shared: as in `find_resumed`; then nothing is claimed.
        dry_run: nor then.

    Raises:
        TfdistError: another launch has claimed the folder.
    """
    folder = recovery.folder if source is None else source.folder
    with ExitStack() as stack:
        if folder is not None and not shared and not dry_run:
            try:
                stack.enter_context(claim(folder if "://" in folder else os.path.realpath(folder)))
            except ClaimedError as error:
                if not error.pid:
                    raise _in_use(folder, "another launch", "wait for its end") from None
                raise _in_use(folder, f"process {error.pid}", f"stop it with 'kill {error.pid}'") from None
        yield


def _in_use(folder: str, user: str, fix: str) -> TfdistError:
    return TfdistError(f"{folder}: {user} still saves checkpoints there; {fix}")
