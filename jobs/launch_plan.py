"""Plans a launch: the options of `tfdist launch` become a checked and complete plan. Starts nothing."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar

from tfdist.jobs import inherit as rules
from tfdist.jobs.checkpoint_source import CheckpointSource
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.plan import only_task, plan_command, plan_training
from tfdist.jobs.presets import resolve, resolve_strategy
from tfdist.jobs.recovery import AUTO, Recovery, plan_checkpointing, recovery_notes, with_variables
from tfdist.launch.environment import BARRIER_SECRET, INTRA_OP_THREADS, device_order
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.inherit.leader import Key, Rendezvous
from tfdist.launch.inherit.table import earlier_on_host, inherited
from tfdist.launch.job import Job, Program, program_of
from tfdist.launch.json_files import read_bytes
from tfdist.launch.machine import BUSY, Machines, combined, local_machines
from tfdist.launch.supervision.restarts import SavedState
from tfdist.launch.text import counted, did_you_mean
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.pace import TRACE_VARIABLE
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import LEGACY_KERAS, option_text

Choice = TypeVar("Choice", bound=StrategyChoice)


def resized(spec: Choice, workers: int, ps: int, saved: SavedState) -> Choice:
    """The spec for these workers and parameter servers.

    The batch per replica, the learning rate and the number of examples in all stay; so the global batch and the steps
    change. Under an asynchronous strategy a step is the batch of one worker, and its number stays too.

    Args:
        spec: of the attempt before.
        workers: number of workers.
        ps: number of parameter servers.
        saved: the checkpoint that the job continues from.
    """
    new = replace(spec, workers=workers, ps=ps)
    if not isinstance(new, TrainingSpec) or not isinstance(spec, TrainingSpec) or not spec.synchronous:
        return new
    # earlier steps may have had another batch
    left = (spec.steps - saved.step) * spec.global_batch_size
    examples = saved.examples + left if spec.examples is None else spec.examples
    new = replace(new, examples=examples)
    return replace(new, steps=saved.step + _steps_left(new, saved))


def effect(old: StrategyChoice, new: StrategyChoice, saved: SavedState) -> str:
    """What is different in the training, as in `global batch 64 instead of 96, 400 steps left instead of 267`."""
    if not isinstance(old, TrainingSpec) or not isinstance(new, TrainingSpec) or new.examples is None:
        return ""
    if old.global_batch_size == new.global_batch_size:
        return ""
    before = replace(old, examples=new.examples)
    return (
        f"global batch {new.global_batch_size} instead of {old.global_batch_size}, "
        f"{_steps_left(new, saved)} steps left instead of {_steps_left(before, saved)}"
    )


def _steps_left(spec: TrainingSpec, saved: SavedState) -> int:
    return -(-((spec.examples or 0) - saved.examples) // spec.global_batch_size)


ALL, NONE = "all", "none"


def output_tasks(text: str, job: Job) -> frozenset[str] | None:
    """The tasks that a comma-separated list of tasks and roles names; None: all.

    Raises:
        TfdistError: the job has no such task or role.
    """
    everywhere = job.cluster.addresses  # of which a job that another launcher started has one task here
    tasks = [plan.task.name for plan in job.plans] + [
        f"{role}-{n}" for role in everywhere for n in range(len(everywhere[role]))
    ]
    roles = list(dict.fromkeys([*(plan.task.role for plan in job.plans), *everywhere]))
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        if entry not in (ALL, NONE, *roles, *tasks):
            fix = did_you_mean(entry, (ALL, NONE, *roles, *tasks), most=8)
            raise TfdistError(f"--output {text or repr(text)}: no task or role {entry!r}; {fix}")
    if ALL in entries:
        return None
    return frozenset(plan.task.name for plan in job.plans if {plan.task.role, plan.task.name} & set(entries))


_END_OTHERS = "end them, or expect longer steps"


@dataclass(frozen=True)
class PlannedLaunch:
    """A job, and the messages to print before it starts."""

    job: Job
    spec: StrategyChoice
    """A TrainingSpec for the built-in training."""
    argv: tuple[str, ...]
    """The user's own program; empty for the built-in training."""
    notes: tuple[str, ...]
    """Decisions that tfdist made."""
    warnings: tuple[str, ...]
    plan_again: Callable[[Any, Machines], Job]
    """Plans the job with another spec, on other machines."""
    checkpointing: Checkpointing | None = None
    """Its folder is empty for the one in the run's folder, until `with_checkpoints`. None: the job is not saved."""
    rendezvous: Rendezvous | None = None
    """Where the tasks of an inherited cluster wait for each other; None: this one starts at once."""


@dataclass(frozen=True)
class LaunchOptions:
    """The options that define the job."""

    choices: Mapping[str, Any]
    """Values by TrainingSpec's field names, and `preset`; only those that were given."""
    command: tuple[str, ...] = ()
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every task."""
    inherit: Inherit | None = None
    """Run only the task that the environment describes; None: all tasks."""
    recovery: Recovery = field(default_factory=Recovery)
    source: CheckpointSource | None = None
    """What --resume names."""

    @property
    def base(self) -> StrategyChoice | None:
        """What is resumed: it has the values of options that are not given."""
        return None if self.source is None else self.source.spec

    @property
    def devices(self) -> int:
        """Devices per task; 1 if not given."""
        return max(1, int(self.choices.get("devices", 1 if self.base is None else self.base.devices)))


def plan_request(options: LaunchOptions, machines: Machines) -> PlannedLaunch:
    """Plan the job on these machines.

    Raises:
        TfdistError: an option is wrong.
    """
    inherit = options.inherit
    planned = _plan(options, machines) if inherit is None else _plan_inherited(options, inherit, machines)
    own = bool(options.command)
    recovery = options.recovery
    source = options.source
    flag = "" if inherit is None else inherit.flag
    saved = plan_checkpointing(planned.job, planned.spec, recovery, source, own=own, inherited=flag)
    notes = (*planned.notes, *recovery_notes(saved, recovery, source, own=own))
    return replace(planned, checkpointing=saved, notes=notes)


def with_checkpoints(planned: PlannedLaunch, folder: str, *, check: bool = True) -> PlannedLaunch:
    """The plan whose tasks know the folder of checkpoints: the one that was chosen, else `folder`.

    Args:
        planned: unchanged if its job is not saved.
        folder: in the run's folder, an absolute path.
        check: the preflight checks the folder.
    """
    if planned.checkpointing is None:
        return planned
    saved = replace(planned.checkpointing, folder=planned.checkpointing.folder or folder)
    job = with_variables(planned.job, saved, own=bool(planned.argv))
    checked = saved.folder if check and "://" not in saved.folder else ""
    return replace(planned, job=replace(job, checkpoint_dir=checked), checkpointing=saved)


def why_not_traced(*, own: bool, hosts: Collection[Host]) -> str:
    """Why tf.profiler cannot trace a job: the user's own program or the built-in training, on these hosts; or empty."""
    if own:
        return "it runs your own program, which can call tf.profiler.experimental itself"
    return "" if all(host.local for host in hosts) else "traces would be written on the other hosts"


def with_trace(planned: PlannedLaunch, folder: str) -> PlannedLaunch:
    """The plan whose tasks trace the last steps of their warm-up into this folder; empty: only check that they can.

    Raises:
        TfdistError: they cannot.
    """
    reason = why_not_traced(own=bool(planned.argv), hosts=planned.job.hosts)
    spec = planned.spec
    if isinstance(spec, TrainingSpec) and spec.warmup_steps < 2:
        reason = f"the last steps of the warm-up are traced, and it has {counted(spec.warmup_steps, 'step')}"
    if reason:
        raise TfdistError(f"--trace: {reason}; omit --trace")
    return replace(planned, job=planned.job.with_variables({TRACE_VARIABLE: folder})) if folder else planned


def _plan(options: LaunchOptions, machines: Machines) -> PlannedLaunch:
    choices = options.choices
    machine = combined(machines)
    env = {**device_order(os.environ), **options.env}
    servers = sum(machine.slots or 1 for host, machine in machines.items() if host.role == "ps")
    if servers:
        choices = {"ps": servers, **choices}
    if not options.command:
        if LEGACY_KERAS in options.env:
            raise TfdistError(
                f"--env {LEGACY_KERAS}={options.env[LEGACY_KERAS]}: the built-in training sets it; use --keras 2 or 3"
            )
        base = options.base if isinstance(options.base, TrainingSpec) else None
        resolved = resolve({**choices, "preset": None}, machine, choices.get("preset"), base)
        spec, changed = _with_all_examples(resolved.spec, options)
        plan = partial(plan_training, base_port=options.port, env=env, evaluator=options.recovery.evaluator)
        notes = (*resolved.notes, *changed)
        return PlannedLaunch(plan(spec, machines), spec, (), notes, resolved.warnings, plan_again=plan)
    refuse_training_options(choices)
    if LEGACY_KERAS in os.environ and "keras" not in choices:
        env.setdefault(LEGACY_KERAS, os.environ[LEGACY_KERAS])  # other hosts do not have it
    program = program_of(options.command, env, machines)
    chosen = resolve_strategy(choices, machine, options.base)

    def plan_own(choice: StrategyChoice, machines: Machines) -> Job:
        return plan_command(choice, program, machines, options.port)

    notes = (*chosen.notes, *_program_notes(program, choices))
    job = plan_own(chosen.spec, machines)
    return PlannedLaunch(job, chosen.spec, options.command, notes, chosen.warnings, plan_again=plan_own)


def _with_all_examples(spec: TrainingSpec, options: LaunchOptions) -> tuple[TrainingSpec, tuple[str, ...]]:
    """The spec of a training that is resumed with another number of workers: on as many examples, unless its length was
    chosen; and a note. What `--resume auto` finds is as long as it was when it lost workers.
    """
    base = options.base
    newest = None if options.source is None else options.source.newest
    if newest is None or not isinstance(base, TrainingSpec):
        return spec, ()
    chosen = {"steps", "epochs"} & set(options.choices)
    again = options.recovery.resume == AUTO and base.examples is not None  # the command of a job that has lost workers
    if chosen and not again:
        if "steps" in chosen or not spec.synchronous:
            return spec, ()
        base = replace(base, examples=spec.steps * spec.global_batch_size)
    saved = SavedState(newest.step, newest.examples)
    kept = resized(base, spec.workers, spec.ps, saved)
    if kept.global_batch_size == base.global_batch_size and not again:
        return spec, ()
    spec = replace(spec, steps=kept.steps, examples=kept.examples)
    return spec, tuple(filter(None, [effect(base, spec, saved)]))


def _program_notes(program: Program, choices: Mapping[str, Any]) -> Iterator[str]:
    """Notes on the environment of a Python program that the user did not choose: which Keras `tf.keras` is."""
    imports_keras = re.search(r"^\s*(import|from) keras\b", _source(program.argv), re.MULTILINE)
    if program.python and "keras" not in choices and LEGACY_KERAS not in program.env and not imports_keras:
        yield "tf.keras is tf_keras (Keras 2) in the program; choose Keras 3 with --keras 3"


def _source(words: tuple[str, ...]) -> str:
    """The text of the program that `python WORDS` runs; empty if it cannot be read here."""
    if words[:1] == ("-c",):
        return " ".join(words[1:2])
    try:
        return read_bytes(words[0]).decode(errors="replace")
    except (OSError, IndexError, ValueError):
        return ""


def _plan_inherited(options: LaunchOptions, inherit: Inherit, machines: Machines) -> PlannedLaunch:
    """One task of a cluster whose other tasks another launcher starts elsewhere."""
    if any(host != LOCAL for host in machines):
        raise TfdistError(f"{inherit.flag} runs one task on this machine: omit --hosts and --hostfile")
    attempt = rules.attempt_number(os.environ)
    found = inherited(inherit.source, os.environ, options.port, inherit.flag)
    if found is None:
        planned = _plan(replace(options, choices=rules.choices_of_one(options.choices)), machines)
        if len(planned.job.plans) > 1:
            raise TfdistError(
                f"{inherit.flag}: the environment describes no cluster, so this is the only task, but "
                f"{planned.spec.strategy} with these options has {counted(len(planned.job.plans), 'task')}; "
                f"omit {inherit.flag}, or --workers and --ps"
            )
        job = replace(planned.job, first_attempt=attempt)
        return replace(planned, job=job, notes=(*planned.notes, rules.ONE_TASK))
    choices = rules.implied_choices(found, options.choices, machines[LOCAL])
    machines = local_machines(rules.machine_of_all(machines[LOCAL], found, choices["workers"]))
    options = replace(options, choices=choices, port=None)
    planned = _plan(options, machines)
    # a scheduler that has sized the thread pools may run other tasks here: this one is not pinned to cores
    sized = INTRA_OP_THREADS in os.environ and "cores_per_device" not in options.choices
    if sized and planned.spec.cores_per_device is not None:
        spec = replace(planned.spec, cores_per_device=None)
        planned = replace(planned, spec=spec, job=planned.plan_again(spec, machines))
    rules.check_task(found, planned.job, planned.spec, own=bool(options.command))
    job = only_task(planned.job, found.cluster, found.task, earlier_on_host(found.cluster, found.task))
    key = Key(os.environ.get(rules.ATTEMPT, ""), os.environ.get(BARRIER_SECRET, ""))
    rendezvous = Rendezvous(found.cluster, found.task, key) if inherit.waits else None
    job = replace(job, first_attempt=attempt)
    notes = (*planned.notes, rules.task_note(found))
    return replace(planned, job=job, notes=notes, rendezvous=rendezvous)


def refuse_training_options(choices: Mapping[str, Any]) -> None:
    """Refuse options that only the built-in training has.

    Raises:
        TfdistError: the first of them.
    """
    stray = sorted(set(choices) - {each.name for each in fields(StrategyChoice)})
    if stray:
        raise TfdistError(
            f"{option_text(stray[0], choices[stray[0]])} is for the built-in training, but a COMMAND was given: "
            "omit it, or write it after the program if it is an option of the program"
        )


def busy_warnings(job: Job, machines: Machines) -> Iterator[str]:
    """Hosts of the job on which other programs run, as bench reports them: its tasks will be slower than alone."""
    for host in job.hosts:
        machine = machines[host]
        shared = sorted(
            {core for plan in job.plans if plan.host == host for core in plan.cores} & {*machine.cores_in_use}
        )
        if shared:
            cores = f"cores {', '.join(map(str, shared))}" if len(shared) > 1 else f"core {shared[0]}"
            yield f"other programs on {host.name} are pinned to {cores}, as this job is: {_END_OTHERS}"
        elif machine.busy > BUSY:
            share = f"{machine.busy:.0%} of all cores"
            yield f"other programs on {host.name} are busy ({share}): {_END_OTHERS}"
