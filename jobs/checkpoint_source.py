"""A run or a folder whose checkpoints are resumed or exported."""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import read_json
from tfdist.launch.program_copy import Origin
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import LAST, find_run
from tfdist.launch.text import is_path, shortened
from tfdist.launch.typed_json import from_json
from tfdist.models.checkpoints import Checkpointing, CheckpointList, Manifest, list_checkpoints
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice


@dataclass(frozen=True)
class SavedSpec:
    """What a run was started with."""

    spec: StrategyChoice
    """A TrainingSpec for the built-in training."""
    command: tuple[str, ...] = ()
    """The user's own program, without its secrets; empty for the built-in training."""
    checkpointing: Checkpointing | None = None
    copy: Origin | None = None
    """The folder in whose copy it ran."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        checkpoints = {"checkpointing": asdict(self.checkpointing)} if self.checkpointing is not None else {}
        copy = {"copy": asdict(self.copy)} if self.copy is not None else {}
        return {"command": list(self.command), **self.spec.to_json(), **checkpoints, **copy}


def read_saved_spec(run_dir: RunDir) -> SavedSpec | None:
    """The inverse of `to_json`; None if the file is missing, or another version of tfdist wrote it."""
    with suppress(ValueError, TfdistError):
        values = from_json(read_json(run_dir.spec), dict[str, Any])
        saved = from_json(values, _Saved)
        command, checkpointing = saved.get("command", ()), saved.get("checkpointing")
        if checkpointing is not None and not is_path(checkpointing.folder):
            return None
        kind = StrategyChoice if command else TrainingSpec
        spec = kind.from_json({name: value for name, value in values.items() if name not in _Saved.__annotations__})
        return SavedSpec(spec, command, checkpointing, saved.get("copy"))
    return None


class _Saved(TypedDict, total=False):
    """What `SavedSpec.to_json` adds to the spec."""

    command: tuple[str, ...]
    checkpointing: Checkpointing | None
    copy: Origin | None


@dataclass(frozen=True)
class CheckpointSource:
    """Checkpoints to continue from, or to export."""

    option: str
    """Name of the option in messages: `--resume last`."""
    folder: str
    """An absolute path or a URL."""
    run: SavedSpec | None = None
    """Spec of the run that was named; None for a folder."""
    newest: Manifest | None = None
    """None for programs of the user, and if this machine cannot read the folder."""
    run_dir: RunDir | None = None
    """The run's folder; None for a folder of checkpoints."""
    may_be_empty: bool = False
    """The training starts from the beginning if the folder holds no checkpoint."""

    @property
    def spec(self) -> StrategyChoice | None:
        """What was trained, with the hosts that the run was started on; None if this machine cannot know it."""
        # what was observed beside the training was decided for the machine that trained then
        last = None
        if self.newest is not None:
            last = replace(TrainingSpec.from_json(self.newest.spec), step_times=None, count_updates=None)
        if self.run is None or last is None or not isinstance(self.run.spec, TrainingSpec):
            return last if self.run is None else self.run.spec
        return replace(self.run.spec, examples=last.examples)

    @property
    def checkpointing(self) -> Checkpointing:
        """How the checkpoints were saved, as far as it is known."""
        return (self.run and self.run.checkpointing) or Checkpointing(self.folder)


def find_source(text: str, runs_dir: Path, option: str) -> CheckpointSource:
    """The folder that `text` names: a run's, or itself. `option` is for messages, as in `--resume last`.

    Raises:
        TfdistError: there is none.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - it raises nothing for an unknown user
    is_run = text == LAST or RunDir(path).created is not None or RunDir(path).spec.exists()
    if "://" in text or (path.is_dir() and not is_run):
        return CheckpointSource(option, absolute(text, option.partition(" ")[0]))
    if path.is_file():
        raise TfdistError(f"{option}: a file; give a run, or the folder that holds the checkpoints")
    run_dir = find_run(text, runs_dir, option)
    saved = read_saved_spec(run_dir)
    if saved is None:
        raise TfdistError(f"{option}: {run_dir.spec} cannot be read; give another run, or a folder of checkpoints")
    if saved.checkpointing is None:
        raise TfdistError(
            f"{option}: {run_dir.path.name} was started without checkpoints; give another run, or a folder of "
            "checkpoints ('tfdist runs' lists the runs)"
        )
    moved = run_dir.checkpoints  # with the run's folder
    return CheckpointSource(
        option, str(moved.absolute()) if moved.is_dir() else saved.checkpointing.folder, saved, run_dir=run_dir
    )


def listing_of(source: CheckpointSource) -> CheckpointList:
    """The checkpoints in the folder of a source.

    Raises:
        TfdistError: it cannot be read.
    """
    try:
        return list_checkpoints(source.folder)
    except OSError as error:
        raise TfdistError(f"{source.option}: {source.folder} cannot be read ({error.strerror})") from None


def no_checkpoint(source: CheckpointSource, listing: CheckpointList) -> TfdistError:
    """Why nothing can be resumed from, or exported."""
    problems = f" ({shortened(listing.problems.values(), 2)})" if listing.problems else ""
    return TfdistError(f"{source.option}: no {'complete ' if problems else ''}checkpoint in {source.folder}{problems}")


def absolute(folder: str, flag: str) -> str:
    """The folder as an absolute path, which is the same for tasks in other folders; a URL as it is.

    Raises:
        TfdistError: TensorFlow cannot open a folder of this name.
    """
    if not folder.isprintable() or not folder.strip():  # lone surrogates are not printable
        raise TfdistError(f"{flag} {folder!r}: not the name of a folder; use printable UTF-8 characters")
    path = folder.removeprefix("file://")
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - keeps links
