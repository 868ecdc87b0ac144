"""Checkpoints in a folder: their names, their manifests, which are complete, and who may resume them. No TensorFlow.

A checkpoint is the files that tf.train.Checkpoint writes, and a manifest, which is moved into place last: without it,
or with other file sizes than it says, the checkpoint does not count.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import LARGEST_JSON, parse_bounded, read_bytes
from tfdist.launch.text import listed
from tfdist.launch.typed_json import from_json
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import option_text

KEEP = 3
"""Checkpoints that are kept by default."""


@dataclass(frozen=True)
class Checkpointing:
    """How the built-in training is saved."""

    VARIABLE: ClassVar[str] = "TFDIST_CHECKPOINTING"
    FOLDER_VARIABLE: ClassVar[str] = "TFDIST_CHECKPOINT_DIR"
    """The folder alone, for custom programs."""

    folder: str
    """Anything that tf.io.gfile writes: a path on a local or shared disk, or gs://..."""
    every_steps: int | None = None
    every_s: float | None = None
    """Seconds between two checkpoints. With neither of the two: only at the end, and when the job is preempted."""
    keep: int = KEEP
    """Number of checkpoints that are kept, the newest ones."""
    resume: bool = False
    """Continue from what is in the folder. Otherwise only a restart does, and a folder that holds some is refused."""
    may_be_empty: bool = False
    """Whether `resume` starts from the beginning without any checkpoint in the folder."""

    def to_env(self) -> dict[str, str]:
        """The variables of every task."""
        return {self.VARIABLE: json.dumps(asdict(self)), self.FOLDER_VARIABLE: self.folder}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Checkpointing | None":
        """The value that `to_env` wrote; None if the training is not saved."""
        text = environ.get(cls.VARIABLE)
        return cls(**json.loads(text)) if text else None


FORMAT = 1
MAY_CHANGE = frozenset([
    "steps", "epochs", "examples", "evaluate", "warmup_steps", "steps_per_window", "timeout_collective_s",
    "workers", "ps", "gpus", "logical_gpus", "cores_per_device", "intra_op_threads", "gpu_threads", "data_dir",
    "communication", "memory_growth", "memory_limit_mb", "soft_placement", "log_device_placement",
    "meta_optimizer", "step_times", "count_updates",
])  # fmt: skip
"""Fields of a spec that may differ from the saved one: the length, what depends on the hosts, timeouts, measuring."""
UNREADABLE = 65
"""Exit code of the process that exports a checkpoint, if the checkpoint is damaged (EX_DATAERR in sysexits.h)."""
_FILE = re.compile(r"step-(\d{8,})([._].*)")


def name_of(step: int) -> str:
    """The common beginning of the names of a checkpoint's files; TensorFlow reads it by this prefix."""
    return f"step-{step:08d}"


def step_of(file: str) -> int | None:
    """The step of the checkpoint that a file or folder belongs to; None: to none."""
    found = _FILE.fullmatch(file)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint contains."""

    step: int
    """Steps trained so far."""
    examples: int
    """Trained so far by all workers together: the position in the data."""
    spec: Mapping[str, Any]
    """TrainingSpec.to_json()."""
    files: Mapping[str, int]
    """Bytes of each file of the checkpoint, by name."""
    attempt: int = 0
    """Attempt of the task that saved it."""
    final: bool = False
    """The training was complete."""

    @property
    def name(self) -> str:
        """See `name_of`."""
        return name_of(self.step)

    @property
    def file(self) -> str:
        """The name of the manifest's file."""
        return f"{self.name}.json"

    def to_text(self) -> str:
        """The content of the manifest's file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "Manifest":
        """The inverse of `to_text`.

        Raises:
            ValueError: the text is something else.
        """
        data = parse_bounded(text.encode())
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"not a manifest of format {FORMAT}")
        return from_json(data, cls)


class Files:
    """Reads folders of this machine; a subclass reads others. Every method raises OSError."""

    def names(self, folder: str) -> Sequence[str]:
        """Names of all files and folders in it. FileNotFoundError: it does not exist."""
        return [path.name for path in Path(folder).iterdir()]

    def text(self, path: str) -> str:
        """The content of a text file."""
        return read_bytes(path, LARGEST_JSON).decode()

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return Path(path).stat().st_size


@dataclass(frozen=True)
class CheckpointList:
    """The checkpoints of a folder."""

    complete: tuple[Manifest, ...]
    """The newest one first. Whether their content is intact, only TensorFlow can tell, by its checksums."""
    problems: Mapping[int, str]
    """Why a checkpoint that has a manifest does not count, by step: a sentence that names the file."""

    @property
    def newest(self) -> Manifest | None:
        """The newest complete checkpoint."""
        return self.complete[0] if self.complete else None

    def newest_intact(self, damage: Callable[[str], str]) -> tuple[Manifest | None, list[str]]:
        """The newest checkpoint that can be read, and the problems of those that are newer.

        Args:
            damage: from a checkpoint's name to why it cannot be read; empty if it can.
        """
        problems = dict(self.problems)
        for manifest in self.complete:
            problem = damage(manifest.name)
            if not problem:
                return manifest, [text for step, text in sorted(problems.items(), reverse=True) if step > manifest.step]
            problems[manifest.step] = f"{manifest.name} is damaged ({problem})"
        return None, [problems[step] for step in sorted(problems, reverse=True)]


def list_checkpoints(folder: str, files: Files | None = None) -> CheckpointList:
    """The checkpoints in a folder, a local one unless `files` reads others. Without the folder there are none.

    Raises:
        OSError: the folder cannot be read.
    """
    files = files or Files()
    names: Sequence[str] = ()
    with suppress(FileNotFoundError):
        names = files.names(folder)
    complete = []
    problems = {}
    for name in sorted(names, reverse=True):
        step = step_of(name)
        if step is None or name != f"{name_of(step)}.json":
            continue
        try:
            complete.append(_complete(folder, name, files))
        except ValueError as error:
            problems[step] = str(error)
    return CheckpointList(tuple(sorted(complete, key=lambda manifest: manifest.step, reverse=True)), problems)


def _complete(folder: str, name: str, files: Files) -> Manifest:
    """The manifest in the file `name`, unless it or one of the files that it lists is damaged: then a ValueError."""
    try:
        manifest = Manifest.from_text(files.text(f"{folder}/{name}"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} cannot be read ({error})") from None
    for file, expected in manifest.files.items():
        try:
            size = files.size(f"{folder}/{file}")
        except OSError:
            raise ValueError(f"{file[:255]} is missing") from None
        if size != expected:
            raise ValueError(f"{file[:255]} has {size} bytes, not {expected}")
    return manifest


def differences(saved: Mapping[str, Any], spec: TrainingSpec) -> tuple[str, ...]:
    """The options that differ and may not, as `--set seed=0 (now 1)`. `saved`: the spec of a manifest."""
    defaults = TrainingSpec().to_json()
    now = spec.to_json()
    return tuple(
        f"{option_text(name, saved.get(name, defaults[name]))} (now {now[name]})"
        for name in now
        if name not in MAY_CHANGE and saved.get(name, defaults[name]) != now[name]
    )


def check_same_training(manifest: Manifest, spec: TrainingSpec, folder: str) -> None:
    """Refuse to continue a checkpoint with a spec that trains something else.

    Raises:
        TfdistError: it names the options that differ.
    """
    different = differences(manifest.spec, spec)
    if different:
        raise TfdistError(
            f"{folder}: the checkpoint of step {manifest.step} was trained with {listed(different)}: "
            "use the saved values, or another --checkpoint-dir"
        )


def check_empty(listing: CheckpointList, folder: str) -> None:
    """Refuse to start from the beginning in a folder that holds checkpoints.

    Raises:
        TfdistError: it holds some.
    """
    if listing.newest is not None or listing.problems:
        step = listing.newest.step if listing.newest is not None else max(listing.problems)
        raise TfdistError(
            f"--checkpoint-dir {folder}: it holds a checkpoint of step {step}; use --resume {folder} to continue it, "
            "or another folder"
        )


def check_folder_name(folder: str) -> None:
    """Refuse a folder whose checkpoints TensorFlow could write, but not read: it takes their path for a pattern.

    Raises:
        TfdistError: it has such a character.
    """
    found = next((character for character in "[\\" if character in folder), None)
    if found is not None:
        raise TfdistError(
            f"{folder}: TensorFlow cannot read checkpoints in a folder with {found} in its path; choose another one "
            "with --checkpoint-dir"
        )


def check_can_be_saved(choice: StrategyChoice) -> None:
    """Refuse checkpoints of a strategy whose tasks do not train one model.

    Raises:
        TfdistError: independent tasks.
    """
    if CATALOG[choice.strategy].exchange is Exchange.NONE:
        raise TfdistError(
            f"--strategy {choice.strategy}: each task trains a model of its own, so there is no checkpoint of the job; "
            "omit the checkpoint options, or use another strategy"
        )
