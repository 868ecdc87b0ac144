"""What `--resume` continues, and whether it can."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tfdist.jobs.checkpoint_source import CheckpointSource, find_source, listing_of, no_checkpoint, read_saved_spec
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.claim import ClaimedError, claim
from tfdist.launch.runs.state import RunState, list_runs
from tfdist.models.checkpoints import Checkpointing, check_empty, list_checkpoints


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
    option, folder = recovery.words.get("resume", ""), recovery.checkpoint_dir
    if recovery.resume is None:
        if not shared:  # else the tasks refuse a folder that holds checkpoints, unless they are restarted
            _check_new(folder, runs_dir, may_be_read=not command and not remote)
        return None
    auto = recovery.resume == AUTO
    if auto and folder is None:
        raise TfdistError(f"{option}: needs --checkpoint-dir, the folder that is resumed if it holds a checkpoint")
    if auto:
        source = CheckpointSource(option, folder or "", may_be_empty=True)
    else:
        source = find_source(recovery.resume, runs_dir, option)
    if folder not in (None, source.folder):
        raise TfdistError(
            f"{recovery.words['checkpoint_dir']}: a resumed training saves in the folder that it continues from, "
            f"{source.folder}; omit --checkpoint-dir"
        )
    _check_same_program(source, command)
    if not shared:
        _refuse_if_used(source.folder, runs_dir)
    only_tasks_read_it = "://" in source.folder or (remote and not Path(source.folder).exists())
    if only_tasks_read_it or (auto and (shared or command)):
        return source
    return _with_files(source) if command else _with_newest(source, auto=auto)


def _check_new(folder: str | None, runs_dir: Path, *, may_be_read: bool) -> None:
    """Refuse a folder for a new training that another one uses, or that holds checkpoints."""
    _refuse_if_used(folder, runs_dir)
    if folder is not None and may_be_read:
        with suppress(OSError):  # the preflight says why it cannot be used
            check_empty(list_checkpoints(folder), folder)


def _check_same_program(source: CheckpointSource, command: tuple[str, ...]) -> None:
    option = source.option
    if source.run is not None and source.run.command and not command:
        fix = f"give its command again: tfdist launch {option} -- COMMAND"
        if source.run.copy is not None and source.run.copy.function:
            fix = f"give the function again: tfdist.run({source.run.copy.function}, resume=...)"
        raise TfdistError(f"{option}: that run ran your own program; {fix}")
    if source.run is not None and command and not source.run.command:
        raise TfdistError(f"{option}: that run ran the built-in training; omit the COMMAND")


def _with_files(source: CheckpointSource) -> CheckpointSource:
    """The source, in which the user's program can have saved something."""
    folder = Path(source.folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise TfdistError(f"{source.option}: {folder} holds no files; start the program again without --resume")
    return source


def _with_newest(source: CheckpointSource, *, auto: bool) -> CheckpointSource | None:
    """The source with its newest checkpoint; with `auto` None if it holds none."""
    listing = listing_of(source)
    if listing.newest is not None:
        return CheckpointSource(source.option, source.folder, source.run, listing.newest)
    if auto and not listing.problems:
        return None
    error = no_checkpoint(source, listing)
    raise error if auto else TfdistError(f"{error}; start the training again without --resume")


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
def claimed(request: Request) -> Iterator[None]:
    """Let no other launch save in the folder of checkpoints until the context ends, also before the run has a folder.

    A dry run claims nothing, nor does one of several launchers that save in the same folder.

    Raises:
        TfdistError: another launch has claimed the folder.
    """
    folder = request.checkpoint_dir
    with ExitStack() as stack:
        if folder is not None and request.inherit is None and not request.dry_run:
            try:
                stack.enter_context(claim(folder if "://" in folder else os.path.realpath(folder)))
            except ClaimedError as error:
                if not error.pid:
                    raise _in_use(folder, "another launch", "wait for its end") from None
                raise _in_use(folder, f"process {error.pid}", f"stop it with 'kill {error.pid}'") from None
        yield


def _in_use(folder: str, user: str, fix: str) -> TfdistError:
    return TfdistError(f"{folder}: {user} still saves checkpoints there; {fix}")
