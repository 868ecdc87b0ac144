"""Plans checkpoints and restarts: what cannot work or has no effect is refused. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tfdist.jobs.checkpoint_source import CheckpointSource
from tfdist.jobs.recovery import AUTO, Recovery
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.job import Job
from tfdist.launch.text import listed
from tfdist.models.checkpointing import KEEP, Checkpointing
from tfdist.models.checkpoints import check_can_be_saved, differences
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice

_FOR_TRAINING = ("checkpoint_every", "keep", "evaluator")


@dataclass(frozen=True)
class PlannedJob:
    """A job before it is known whether it is saved."""

    job: Job
    spec: StrategyChoice
    own: bool
    """Its program is the user's."""
    inherited: str
    """The option by which it is one task of a cluster whose other tasks another launcher starts; empty: it is not."""


def plan_checkpointing(
    planned: PlannedJob, recovery: Recovery, source: CheckpointSource | None
) -> Checkpointing | None:
    """Where and how often a job is saved. The folder is empty for one in the run's folder; None: it is not saved.

    Raises:
        TfdistError: an option cannot work with this job, or would have no effect.
    """
    if planned.own:
        refuse_for_command(recovery)
    if planned.inherited:
        _check_inherited(recovery, planned.inherited)
    _check_restarts(planned, recovery)
    if isinstance(planned.spec, TrainingSpec) and source is not None:
        _check_same(planned.spec, source, auto=recovery.resume == AUTO)
    if _is_saved(planned, recovery, source):
        return _checkpointing(recovery, source)
    if "keep" in recovery.words:
        raise TfdistError(
            f"{recovery.words['keep']}: has no effect without --checkpoint-every; add it, or omit --set keep"
        )
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
    env = {Checkpointing.FOLDER_VARIABLE: checkpointing.folder} if own else checkpointing.to_env()
    plans = tuple(replace(plan, program=replace(plan.program, env={**plan.program.env, **env})) for plan in job.plans)
    return replace(job, plans=plans)


def refuse_for_command(recovery: Recovery) -> None:
    """Refuse options that only the built-in training has.

    Raises:
        TfdistError: the first of them.
    """
    for name in _FOR_TRAINING:
        if name in recovery.words:
            raise TfdistError(
                f"{recovery.words[name]} is for the built-in training, but a COMMAND was given: omit it; "
                "your program saves its own checkpoints, in TFDIST_CHECKPOINT_DIR"
            )


def _check_inherited(recovery: Recovery, flag: str) -> None:
    for name in ("max_restarts", "evaluator"):
        if recovery.words.get(name) not in (None, "--max-restarts 0"):
            raise TfdistError(f"{recovery.words[name]}: has no effect with {flag}, which runs one task; omit it")
    if "checkpoint_every" in recovery.words and recovery.folder is None:
        raise TfdistError(
            f"{recovery.words['checkpoint_every']}: with {flag}, each task has a run folder of its own; "
            "give them a common folder with --checkpoint-dir"
        )


def _is_saved(planned: PlannedJob, recovery: Recovery, source: CheckpointSource | None) -> bool:
    """Whether there is a folder. The user's program has one in the run's folder only if its tasks are on one host."""
    if source is None and recovery.folder is None:
        wanted = _restarts(recovery) or "checkpoint_every" in recovery.words or recovery.evaluator
        if not wanted or (planned.own and len(planned.job.hosts) > 1):
            return False
    if not planned.own:
        check_can_be_saved(planned.spec)
    return True


def _restarts(recovery: Recovery) -> bool:
    return bool(recovery.policy.get("max_restarts"))


def _checkpointing(recovery: Recovery, source: CheckpointSource | None) -> Checkpointing:
    before = source.checkpointing if source is not None else Checkpointing(recovery.folder or "")
    every = (recovery.every_steps, recovery.every_s)
    steps, seconds = (before.every_steps, before.every_s) if every == (None, None) else every
    keep = recovery.keep or before.keep or KEEP
    folder = source.folder if source is not None else before.folder
    may_be_empty = source is not None and source.may_be_empty
    return Checkpointing(folder, steps, seconds, keep, resume=source is not None, may_be_empty=may_be_empty)


def _check_restarts(planned: PlannedJob, recovery: Recovery) -> None:
    words, strategy = recovery.words, planned.spec.strategy
    if _restarts(recovery) and all(role.restarts is None for role in planned.job.roles.values()):
        raise TfdistError(
            f"{words['max_restarts']}: has no effect under --strategy {strategy}, which restarts no task; omit it"
        )
    least = recovery.policy.get("min_workers")
    if least is None:
        return
    elastic = [name for name, row in CATALOG.items() if row.has_cluster]
    if strategy not in elastic:
        raise TfdistError(
            f"{words['min_workers']} has no effect under --strategy {strategy}: omit it, or use {' or '.join(elastic)}"
        )
    if least > planned.spec.workers:
        raise TfdistError(
            f"{words['min_workers']}: more than the {planned.spec.workers} workers; use at most that many"
        )
    if least <= planned.spec.backup_workers:
        raise TfdistError(
            f"{words['min_workers']}: a step needs the gradients of at least one worker besides the "
            f"--set backup_workers={planned.spec.backup_workers}; use {planned.spec.backup_workers + 1} or more"
        )
    if all(host.local for host in planned.job.hosts):
        raise TfdistError(f"{words['min_workers']}: has no effect without other hosts, which can be lost; omit it")


def _check_same(spec: TrainingSpec, source: CheckpointSource, *, auto: bool) -> None:
    """Refuse to continue another training, or one that is complete.

    With `auto`, whoever starts a job again need not know whether it was complete, so that is success.
    """
    different = () if source.spec is None else differences(source.spec.to_json(), spec)
    if different:
        raise TfdistError(
            f"{source.option}: was trained with {listed(different)}; omit what differs, or start a new run"
        )
    newest = source.newest
    if newest is not None and newest.step >= spec.steps and (spec.examples is None or newest.examples >= spec.examples):
        raise TfdistError(
            f"{source.option}: has trained {newest.step} of {spec.steps} steps; give more --steps, or write the model "
            "with 'tfdist export'",
            ExitCode.SUCCESS if auto else ExitCode.USAGE,
        )
