"""The only way from what is asked to a job. Starts nothing; what is planned again is planned here.

    Request   what was asked                                                   jobs/request.py
    Machines  where: described by agents, or imagined before any is connected  jobs/host_selection.py, launch/machine.py
    Choice    complete and checked: the spec; presets, defaults, refusals      jobs/choice.py, presets.py, checks.py
    Job       tasks on hosts: environment, cores, GPUs, ports                  jobs/tasks.py, launch/job.py
    Run       timeouts, console, metrics, folder: what is done with the job    jobs/run.py

A new option is a row of jobs/options.py; a new refusal a check of the complete spec in jobs/checks.py.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfdist.jobs import inherit as rules
from tfdist.jobs.choice import choose, program_notes, resized
from tfdist.jobs.presets import Choice
from tfdist.jobs.recovery import plan_checkpointing, recovery_notes, with_variables
from tfdist.jobs.request import ALL, NONE, Request
from tfdist.jobs.tasks import job_of, only_task, program_for
from tfdist.launch.environment import INTRA_OP_THREADS
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.inherit.leader import Rendezvous
from tfdist.launch.inherit.table import earlier_on_host
from tfdist.launch.job import Job, Program
from tfdist.launch.machine import BUSY, Machines, local_machines
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.text import counted, did_you_mean
from tfdist.models.checkpoints import Checkpointing, check_folder_name
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.pace import TRACE_VARIABLE
from tfdist.strategies.choice import StrategyChoice


@dataclass(frozen=True)
class Planned:
    """A job, and what was decided for it."""

    request: Request
    machines: Machines
    program: Program | None
    """The user's own, as it was when the job was planned first."""
    choice: Choice[Any]
    job: Job
    checkpointing: Checkpointing | None
    """None: the job is not saved."""
    notes: tuple[str, ...]
    """Decisions that tfdist made, to be printed before the start."""
    warnings: tuple[str, ...]

    @property
    def rendezvous(self) -> Rendezvous | None:
        """Where the tasks of an inherited cluster wait for each other; None: this one starts at once."""
        return None if self.request.inherit is None else self.request.inherit.rendezvous

    @property
    def spec(self) -> StrategyChoice:
        """A TrainingSpec for the built-in training."""
        return self.choice.spec  # type: ignore[no-any-return]


def plan(request: Request, machines: Machines, before: Planned | None = None) -> Planned:
    """Plan the job that is asked for on these machines.

    Args:
        request: what is asked.
        machines: where.
        before: an earlier plan of the request, whose program, choice and checkpoints stay: now the run's folder is
            known, or the job goes on with another `size`.

    Raises:
        TfdistError: an option is wrong, or the machines cannot run the job.
    """
    whole, hosts = _whole_job(request, machines)
    if before is None:
        choice = choose(whole, hosts)
        program = program_for(whole, hosts) if request.own else None
    else:
        choice, program = _continued(before.choice, request), before.program
    job = replace(job_of(whole, choice.spec, program, hosts), copy=request.copy)
    job, task_notes = _task_of(job, choice.spec, request)
    if before is None:
        saved = _saving(job, choice.spec, request)
        output_tasks(request.output, job)  # only now: a task that was named may not come back after a restart
    else:
        saved = before.checkpointing
    saved = _in_folder(saved, request)
    job = _with_folders(job, choice.spec, saved, request)
    busy = () if request.dry_run or request.paced else busy_warnings(job, machines)
    return Planned(
        request,
        machines,
        program,
        choice,
        job,
        saved,
        notes=(
            *choice.notes,
            *(program_notes(program, whole.choices) if program is not None else ()),
            *task_notes,
            *recovery_notes(saved, request.recovery, request.source, own=request.own),
        ),
        warnings=(*choice.warnings, *busy),
    )


def check_before_connecting(request: Request, imagined: Iterable[Machines]) -> None:
    """Refuse what no hardware could change: planning fails with the same message on all imagined machines.

    Raises:
        TfdistError: the reason.
    """
    errors: dict[str, TfdistError] = {}
    for machines in imagined:
        try:
            plan(request, machines)
        except TfdistError as error:
            errors[str(error)] = error
        else:
            return
    if len(errors) == 1:
        raise next(iter(errors.values()))


def _continued(choice: Choice[Any], request: Request) -> Choice[Any]:
    return choice if request.size is None else replace(choice, spec=resized(choice.spec, request.size))


# --- the one task of a cluster that another launcher has started


def _whole_job(request: Request, machines: Machines) -> tuple[Request, Machines]:
    """Request and machines for all tasks of a cluster of which one is run here."""
    inherit = request.inherit
    if inherit is None:
        return request, machines
    found = inherit.found
    if found is None:
        return replace(request, choices=rules.choices_of_one(request.choices)), machines
    choices = rules.implied_choices(found, request.choices, machines[LOCAL])
    # a scheduler that has sized the thread pools may run other tasks here: this one is not pinned to cores
    pinned = INTRA_OP_THREADS not in request.environ
    whole = replace(request, choices=choices, port=None, pinned=pinned)
    return whole, local_machines(rules.machine_of_all(machines[LOCAL], found, choices["workers"]))


def _task_of(job: Job, spec: StrategyChoice, request: Request) -> tuple[Job, tuple[str, ...]]:
    """The job with only the task that is run here, and a note; without --inherit the whole job."""
    inherit = request.inherit
    if inherit is None:
        return job, ()
    found = inherit.found
    if found is None:
        if len(job.plans) > 1:
            raise TfdistError(
                f"{inherit.flag}: the environment describes no cluster, so this is the only task, but {spec.strategy} "
                f"with these options has {counted(len(job.plans), 'task')}; omit {inherit.flag}, or --workers and --ps"
            )
        return replace(job, first_attempt=inherit.attempt), (rules.ONE_TASK,)
    rules.check_task(found, job, spec, own=request.own)
    one = only_task(job, found.cluster, found.task, earlier_on_host(found.cluster, found.task))
    return replace(one, first_attempt=inherit.attempt), (rules.task_note(found),)


# --- the folders of checkpoints and traces


def _saving(job: Job, spec: StrategyChoice, request: Request) -> Checkpointing | None:
    flag = "" if request.inherit is None else request.inherit.flag
    return plan_checkpointing(job, spec, request.recovery, request.source, own=request.own, inherited=flag)


def _in_folder(saved: Checkpointing | None, request: Request) -> Checkpointing | None:
    """The checkpoints in the folder that was chosen, else in the run's."""
    if saved is None:
        return None
    run_dir = RunDir(Path(request.run_dir))
    chosen = request.checkpoint_dir
    if not request.own:
        check_folder_name(chosen or str(run_dir.path.parent))
    return replace(saved, folder=chosen or str(run_dir.checkpoints))


def _with_folders(job: Job, spec: StrategyChoice, saved: Checkpointing | None, request: Request) -> Job:
    """The job whose tasks know where they save checkpoints and traces; before the start the former is checked."""
    if saved is not None:
        job = with_variables(job, saved, own=request.own)
        checked = "://" not in saved.folder and not request.dry_run
        job = replace(job, checkpoint_dir=saved.folder if checked else "")
    if request.trace:
        _check_trace(job, spec, own=request.own)
        job = job.with_variables({TRACE_VARIABLE: str(RunDir(Path(request.run_dir)).traces)})
    return job


def _check_trace(job: Job, spec: StrategyChoice, *, own: bool) -> None:
    reason = why_not_traced(own=own, hosts=job.hosts)
    if isinstance(spec, TrainingSpec) and spec.warmup_steps < 2:
        reason = f"the last steps of the warm-up are traced, and it has {counted(spec.warmup_steps, 'step')}"
    if reason:
        raise TfdistError(f"--trace: {reason}; omit --trace")


def why_not_traced(*, own: bool, hosts: Collection[Host]) -> str:
    """Why tf.profiler cannot trace a job: the user's own program or the built-in training, on these hosts; or empty."""
    if own:
        return "it runs your own program, which can call tf.profiler.experimental itself"
    return "" if all(host.local for host in hosts) else "traces would be written on the other hosts"


# --- what is printed


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


def busy_warnings(job: Job, machines: Machines) -> Iterator[str]:
    """Hosts of the job on which other programs run, as bench reports them: its tasks will be slower than alone."""
    for host, plans in job.plans_on.items():
        machine = machines[host]
        shared = sorted({core for plan in plans for core in plan.cores} & {*machine.cores_in_use})
        if shared:
            cores = f"cores {', '.join(map(str, shared))}" if len(shared) > 1 else f"core {shared[0]}"
            yield f"other programs on {host.name} are pinned to {cores}, as this job is: {_END_OTHERS}"
        elif machine.busy > BUSY:
            share = f"{machine.busy:.0%} of all cores"
            yield f"other programs on {host.name} are busy ({share}): {_END_OTHERS}"
