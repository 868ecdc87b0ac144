"""The options about checkpoints, restarts and timeouts, and what they mean."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.jobs.checkpoint_source import CheckpointSource, absolute
from tfdist.jobs.options import RECOVERY_OPTIONS, TIMEOUT_OPTIONS
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.quantities import parse_seconds
from tfdist.launch.text import listed
from tfdist.models.checkpoints import KEEP, Checkpointing, check_can_be_saved, differences
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import option_name, option_text, option_words

AUTO = "auto"
"""The value of --resume that continues what --checkpoint-dir holds, if it holds a checkpoint."""
MAX_S = 1e6
"""The longest of the timeouts: 11 days."""


@dataclass(frozen=True)
class Recovery:
    """The options that were given."""

    checkpoint_every: tuple[int | None, float | None] = (None, None)
    """Steps, or seconds, between two checkpoints."""
    checkpoint_dir: str | None = None
    """An absolute path or a URL."""
    keep: int | None = None
    resume: str | None = None
    evaluator: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Policy."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Each option as it would be on the command line, by name: `--max-restarts 3`."""


def read_recovery(values: Mapping[str, Any]) -> Recovery:
    """What the values mean, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range, or has no effect without another option.
    """
    given = {name: value for name, value in values.items() if value is not None}
    words = {name: option_text(name, value) for name, value in given.items() if value is not False}
    for option in RECOVERY_OPTIONS:
        if option.least is not None and given.get(option.name, option.least) < option.least:
            raise TfdistError(f"{words[option.name]}: must be at least {option.least:g}")
    for name in ("restart_on", "min_workers"):
        if name in given and not given.get("max_restarts"):
            raise TfdistError(
                f"{words[name]}: has no effect without --max-restarts; add it, or omit {option_name(name)}"
            )
    names = ("max_restarts", "restart_on", "min_workers", "stop_on_nan")
    policy: dict[str, Any] = {name: given[name] for name in names if name in given}
    if "stall_timeout" in given:
        policy["stall_timeout_s"] = given["stall_timeout"] or None
    return Recovery(
        checkpoint_every=_interval(given.get("checkpoint_every")),
        checkpoint_dir=absolute(given["checkpoint_dir"], "--checkpoint-dir") if "checkpoint_dir" in given else None,
        keep=given.get("keep"),
        resume=given.get("resume"),
        evaluator=given.get("evaluator", False),
        policy=policy,
        words=words,
    )


def _interval(text: str | None) -> tuple[int | None, float | None]:
    """Steps or seconds."""
    if text is None:
        return None, None
    if not re.fullmatch(r"-?[0-9]+", text.strip()):
        try:
            return None, parse_seconds(text if text.strip()[-1:].isalpha() else "", "--checkpoint-every")
        except TfdistError as error:
            form = f"--checkpoint-every {text}: give a number of steps, as 200, or a duration, as 30s, 10m or 1h"
            raise TfdistError(str(error) if "positive" in str(error) else form) from None
    if int(text) < 1:
        raise TfdistError(f"--checkpoint-every {text}: must be positive")
    return int(text), None


def read_timeouts(values: Mapping[str, float | None]) -> Policy:
    """The policy with these values, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range.
    """
    given = {option: value for option in TIMEOUT_OPTIONS if (value := values.get(option.name)) is not None}
    for option, value in given.items():
        if not (option.least or 0.0) <= value <= MAX_S:
            limits = f"must be {option.least:g} to {MAX_S:.0f} seconds; omit it for {getattr(Policy(), option.field):g}"
            raise TfdistError(f"{option_text(option.name, value)}: {limits}")
    fields: dict[str, Any] = {option.field: value for option, value in given.items()}
    return Policy(**fields)


def timeout_words(policy: Policy) -> list[str]:
    """The command-line words of the timeouts that differ from the defaults."""
    fields = [(option, getattr(policy, option.field)) for option in TIMEOUT_OPTIONS]
    given = [(option.name, value) for option, value in fields if value != getattr(Policy(), option.field)]
    return [word for name, value in given for word in option_words(name, value)]


def plan_checkpointing(
    job: Job, spec: StrategyChoice, recovery: Recovery, source: CheckpointSource | None, *, own: bool, inherited: str
) -> Checkpointing | None:
    """Where and how often a job is saved. The folder is empty for one in the run's folder; None: it is not saved.

    Args:
        job: before it is known whether it is saved.
        spec: of the job.
        recovery: the options.
        source: what it continues from.
        own: its program is the user's.
        inherited: the option by which it is one task of a cluster whose other tasks another launcher starts; empty: it
            is not.

    Raises:
        TfdistError: an option cannot work with this job, or would have no effect.
    """
    words = recovery.words
    if own:
        refuse_for_command(recovery)
    for name in ("max_restarts", "evaluator") if inherited else ():
        if words.get(name) not in (None, "--max-restarts 0"):
            raise TfdistError(f"{words[name]}: has no effect with {inherited}, which runs one task; omit it")
    if inherited and "checkpoint_every" in words and recovery.checkpoint_dir is None:
        raise TfdistError(
            f"{words['checkpoint_every']}: with {inherited}, each task has a run folder of its own; give them "
            "a common folder with --checkpoint-dir"
        )
    _check_restarts(job, spec, recovery)
    if isinstance(spec, TrainingSpec) and source is not None:
        _check_same(spec, source, auto=recovery.resume == AUTO)
    # a program of the user's has a folder in the run's folder only if its tasks are on one host
    wanted = _restarts(recovery) or "checkpoint_every" in words or recovery.evaluator
    named = source is not None or recovery.checkpoint_dir is not None
    if named or (wanted and not (own and len(job.hosts) > 1)):
        if not own:
            check_can_be_saved(spec)
        return _checkpointing(recovery, source)
    if "keep" in words:
        raise TfdistError(f"{words['keep']}: has no effect without --checkpoint-every; add it, or omit --set keep")
    return None


def recovery_notes(
    saved: Checkpointing | None, recovery: Recovery, source: CheckpointSource | None, *, own: bool
) -> Iterator[str]:
    """What the user did not choose, or may not expect."""
    if source is not None and not source.may_be_empty:
        step = "its last checkpoint" if source.newest is None else f"step {source.newest.step}"
        yield f"resumes {source.folder} from {'what the program saved there' if own else step}"
    if saved is not None and "://" in saved.folder:
        yield f"{saved.folder} is not checked before the start"
    if saved is None and own and _restarts(recovery):
        yield "no TFDIST_CHECKPOINT_DIR for the program: give a folder that all hosts share with --checkpoint-dir"


def with_variables(job: Job, checkpointing: Checkpointing, *, own: bool) -> Job:
    """The job whose tasks know where they are saved; the user's own program only gets the folder."""
    return job.with_variables({checkpointing.FOLDER_VARIABLE: checkpointing.folder} if own else checkpointing.to_env())


def refuse_for_command(recovery: Recovery) -> None:
    """Refuse options that only the built-in training has.

    Raises:
        TfdistError: the first of them.
    """
    for name in ("checkpoint_every", "keep", "evaluator"):
        if name in recovery.words:
            raise TfdistError(
                f"{recovery.words[name]} is for the built-in training, but a COMMAND was given: omit it; "
                "your program saves its own checkpoints, in TFDIST_CHECKPOINT_DIR"
            )


def _restarts(recovery: Recovery) -> bool:
    return bool(recovery.policy.get("max_restarts"))


def _checkpointing(recovery: Recovery, source: CheckpointSource | None) -> Checkpointing:
    before = source.checkpointing if source is not None else Checkpointing(recovery.checkpoint_dir or "")
    steps, seconds = (
        (before.every_steps, before.every_s) if recovery.checkpoint_every == (None, None) else recovery.checkpoint_every
    )
    keep = recovery.keep or before.keep or KEEP
    folder = source.folder if source is not None else before.folder
    may_be_empty = source is not None and source.may_be_empty
    return Checkpointing(folder, steps, seconds, keep, resume=source is not None, may_be_empty=may_be_empty)


def _check_restarts(job: Job, spec: StrategyChoice, recovery: Recovery) -> None:
    under = f"has no effect under --strategy {spec.strategy}"
    if _restarts(recovery) and all(role.restarts is None for role in job.roles.values()):
        raise TfdistError(f"{recovery.words['max_restarts']}: {under}, which restarts no task; omit it")
    least = recovery.policy.get("min_workers")
    if least is None:
        return
    option = recovery.words["min_workers"]
    elastic = [name for name, row in CATALOG.items() if row.has_cluster]
    if spec.strategy not in elastic:
        raise TfdistError(f"{option} {under}: omit it, or use {' or '.join(elastic)}")
    if least > spec.workers:
        raise TfdistError(f"{option}: more than the {spec.workers} workers; use at most that many")
    if least <= spec.backup_workers:
        raise TfdistError(
            f"{option}: a step needs the gradients of at least one worker besides the "
            f"--set backup_workers={spec.backup_workers}; use {spec.backup_workers + 1} or more"
        )
    if all(host.local for host in job.hosts):
        raise TfdistError(f"{option}: has no effect without other hosts, which can be lost; omit it")


def _check_same(spec: TrainingSpec, source: CheckpointSource, *, auto: bool) -> None:
    """Refuse to continue another training, or one that is complete.

    With `auto`, whoever starts a job again need not know whether it was complete, so that is success.
    """
    option, newest = source.option, source.newest
    different = () if source.spec is None else differences(source.spec.to_json(), spec)
    if different:
        raise TfdistError(f"{option}: was trained with {listed(different)}; omit what differs, or start a new run")
    if newest is not None and newest.step >= spec.steps and (spec.examples is None or newest.examples >= spec.examples):
        raise TfdistError(
            f"{option}: has trained {newest.step} of {spec.steps} steps; give more --steps, or write the model "
            "with 'tfdist export'",
            ExitCode.SUCCESS if auto else ExitCode.USAGE,
        )
