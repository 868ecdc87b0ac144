"""`--copy`: pack the folder of the user's program before anything starts, or take the copy that a run has kept."""

import os
import sys
from typing import Annotated

import typer

from tfdist.cli.options import option
from tfdist.cli.show.steps import Steps
from tfdist.jobs.checkpoint_source import CheckpointSource
from tfdist.jobs.options import WHAT
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.program_copy import Origin, ProgramCopy
from tfdist.launch.runs.rundir import is_ours

Copy = Annotated[
    str | None,
    option("--copy", "Run in a copy of this folder, or DIR, on all hosts.", WHAT),
]


def program_copy(
    folder: str | None,
    limit: int | None = None,
    source: CheckpointSource | None = None,
    *,
    own: bool,
    dry_run: bool = False,
    quiet: bool = False,
) -> ProgramCopy | None:
    """The copy in which the program runs; None: it runs in the folder itself.

    Args:
        folder: what --copy names; None: it was not given.
        limit: of copy_limit; None: not given.
        source: what is resumed.
        own: the program is the user's.
        dry_run: nothing is started, so nothing is read.
        quiet: show no progress.

    Raises:
        TfdistError: it cannot be packed, or read.
    """
    kept = source.run.copy if source is not None and source.run is not None else None
    if kept is not None and not kept.folder:  # only a function, which is given again
        kept = None
    if folder is None:
        if limit is not None:
            raise TfdistError("--set copy_limit: has no effect without --copy; omit it")
        return None if kept is None or source is None else _kept_copy(source, kept)
    if not own:
        raise TfdistError(f"--copy {folder}: copies the folder of your own program; give it after --, or omit --copy")
    from tfdist.launch.packing import LIMIT, pack  # other launches need not import it

    with Steps(sys.stderr, quiet=quiet) as steps:
        steps.show(f"packing {os.path.abspath(folder)}")  # noqa: PTH100 - keeps links
        copy = pack(folder, limit or LIMIT, with_archive=not dry_run)
    if kept is not None and copy.archive and copy.origin.digest != kept.digest and not quiet:
        typer.echo(f"tfdist: {copy.folder} differs from the copy in which that run ran", err=True)
    return copy


def _kept_copy(source: CheckpointSource, origin: Origin) -> ProgramCopy:
    assert source.run_dir is not None
    path = source.run_dir.copy
    fix = "run your files with --copy"
    if not is_ours(source.run_dir.path):
        raise TfdistError(f"{source.option}: that run of another user has a copy of its program; {fix}")
    from tfdist.launch.packing import read_copy

    try:
        return read_copy(path, origin)
    except (OSError, ValueError) as error:
        raise TfdistError(f"{source.option}: {path} cannot be read ({error}); {fix}") from None


def check_no_chdir(hosts: tuple[Host, ...], copy: ProgramCopy | None) -> None:
    """Refuse a folder on a host: tasks run in the copy.

    Raises:
        TfdistError: there is one.
    """
    host = next((host for host in hosts if host.chdir), None)
    if copy is not None and copy.folder and host is not None:
        raise TfdistError(f"--chdir {host.chdir}: tasks run in the copy of {copy.folder}; omit --chdir or --copy")
