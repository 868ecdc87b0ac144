"""What `--resume` continues, and whether it can."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tfdist.jobs.checkpoint_source import CheckpointSource, find_source, listing_of, no_checkpoint, read_saved_spec
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.find import list_runs
from tfdist.launch.runs.state import Run, RunState
from tfdist.models.checkpointing import Checkpointing
from tfdist.models.checkpoints import check_empty, list_checkpoints


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
