"""Runs the job that `tfdist launch` has planned, here or detached, and prints it; or its plan, for --dry-run."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from textwrap import indent
from typing import Any, TextIO

import typer

from tfdist.cli.show.outcome import show_outcome, traces_line
from tfdist.cli.show.steps import Steps, connected
from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.jobs.elastic import ElasticHosts, elastic_hosts
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.launch_plan import (
    LaunchOptions,
    PlannedLaunch,
    busy_warnings,
    output_tasks,
    plan_request,
    with_checkpoints,
    with_trace,
)
from tfdist.jobs.resume_source import claimed, requeue, resume_command, without_sigterm
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Message, Note, OnMessage
from tfdist.launch.agents.messages import Event
from tfdist.launch.console.lines import LineOptions, PrefixedLines, can_redraw
from tfdist.launch.console.table import LiveTable
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.doctor.checks import Verdict
from tfdist.launch.doctor.preflight import preflight, with_free_ports
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.inherit.rendezvous import meet
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy, kill_wait_s
from tfdist.launch.redact import redact_arguments, safe_text
from tfdist.launch.runs.background import Background, fork_launcher
from tfdist.launch.runs.launcher import this_launcher
from tfdist.launch.runs.placement import save_placement
from tfdist.launch.runs.rundir import RunDir, check_runs_dir, create_run_dir
from tfdist.launch.runs.state import RunState
from tfdist.launch.runs.writer import RunWriter, describe_plan
from tfdist.launch.supervision import termination_log
from tfdist.launch.supervision.metrics import INSPECT_S, MetricsOptions, published
from tfdist.launch.supervision.run_tasks import launch as run_job
from tfdist.launch.text import shortened
from tfdist.launch.this_command import this_command
from tfdist.models.checkpoints import Checkpointing, check_folder_name
from tfdist.models.record import Record, RecordStatus
from tfdist.models.run import run_training
from tfdist.models.spec import TrainingSpec
from tfdist.models.strategy_check import StrategyCheck, StrategyFacts
from tfdist.strategies.choice import StrategyChoice


class BackgroundLines(PrefixedLines):
    """Prints the launcher's notes, but no output of tasks: their logs have it."""

    def __init__(self, background: Background, out: TextIO, err: TextIO, options: LineOptions) -> None:
        super().__init__(out, err, options)
        self.background = background

    def handle(self, message: Message) -> None:
        """Print a note; detach with the start of the last task."""
        if isinstance(message, Note):
            super().handle(message)
        self.background.handle(message)


def launch_detached(launch: Callable[[Background], int], *, json: bool, quiet: bool) -> int:
    """Call `launch` in a process that goes into the background; returns the exit code of either process."""
    process = fork_launcher()
    if isinstance(process, Background):
        return launch(process)
    result = process.wait()
    if isinstance(result, int):
        return result if result >= 0 else 128 - result
    run_dir, pid = result
    if json:
        typer.echo(dumps({"format": 1, "run_dir": run_dir, "pid": pid}))
    elif not quiet:
        path = shlex.quote(run_dir)
        typer.echo(f"{run_dir} runs in the background (process {pid})")
        typer.echo(f"  see it:    tfdist logs {path} --follow\n  stop it:   tfdist stop {path}")
    return 0


INTERNAL = (TrainingSpec.VARIABLE, StrategyChoice.VARIABLE, Checkpointing.VARIABLE)
"""Long variables that only tfdist reads."""


def show_plan(planned: PlannedLaunch, fleet: Fleet | None, *, json: bool, verbose: bool) -> None:
    """Print every task as it would be started; with other hosts, after their preflight."""
    if fleet is None:
        job = with_free_ports(planned.job)
    else:
        job, notes = preflight(planned.job.sharing(os.environ), fleet, needs_tensorflow=not planned.argv)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    tasks = [describe_plan(job, plan) for plan in job.plans]
    if json:
        typer.echo(dumps({"format": 1, "tasks": tasks}))
        return
    for task in tasks:
        cores = ", ".join(map(str, task["cores"])) or "any"
        typer.echo(f"\n{task['task']} on {task['host']}, cores: {cores}, in {task['cwd']}")
        env = dict(task["env"])
        tf_config = env.pop("TF_CONFIG", None)
        if tf_config is not None:
            typer.echo(indent(f"TF_CONFIG={dumps(loads(tf_config), indent=2)}", "  "))
        for name, value in env.items():
            if verbose or name not in INTERNAL:
                typer.echo(f"  {name}={value}")
        typer.echo(f"  {task['command']}")


IMPORT_CPU_S = 1.5
"""A program that used less CPU time did not train: the import of TensorFlow alone takes more."""
BUILT_IN_RESTART_GRACE_S = 0.3
"""`Policy.restart_grace_s` of the built-in training: with it a restart costs little more than a start."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is printed and kept."""

    name: str
    runs_dir: Path
    dry_run: bool
    json: bool
    output: str
    """Value of --output."""
    lines: LineOptions
    """Its `tasks` are not set yet: `output` names them."""
    metrics: MetricsOptions
    trace: bool = False
    """Trace the last steps of the warm-up with tf.profiler."""
    burn_s: float | None = None
    """Let the hosts compute and exchange for this time before, and refuse slow ones; None: do not."""
    requeue: int | None = None
    """Put the Slurm job back into its queue after exit code 42, at most this many times; None: never."""

    @property
    def out(self) -> TextIO:
        """The stream for people; with --json stdout holds only the JSON."""
        return sys.stderr if self.json else sys.stdout


def run_launch(
    options: LaunchOptions,
    selection: HostSelection,
    policy: Policy,
    run_options: RunOptions,
    background: Background | None = None,
) -> int:
    """Plan the job, run it and print its outcome; returns the exit code.

    Args:
        options: define the job.
        selection: its hosts.
        policy: timeouts.
        run_options: how the run is printed and kept.
        background: this process detaches once the tasks are started.

    Raises:
        TfdistError: no task was started.
    """
    check_runs_dir(run_options.runs_dir)
    policy = replace(policy, kill_wait_s=kill_wait_s(os.environ))
    selection.try_out(lambda machines: checked_plan(options, run_options, machines), options.devices)
    claim = claimed(options.recovery, options.source, shared=options.inherit is not None, dry_run=run_options.dry_run)
    with claim, connected(selection, policy, quiet=run_options.lines.quiet) as fleet:
        machines = selection.machines(fleet, options.devices)
        planned = checked_plan(options, run_options, machines)
        busy = () if run_options.dry_run else busy_warnings(planned.job, machines)
        for line in (*planned.notes, *(f"warning: {warning}" for warning in (*planned.warnings, *busy))):
            if not run_options.lines.quiet:
                typer.echo(line, file=run_options.out)
        if run_options.dry_run:
            folder = run_options.runs_dir.absolute() / f"TIME-{run_options.name}" / "checkpoints"
            planned = with_checkpoints(planned, str(folder), check=False)
            show_plan(planned, fleet, json=run_options.json, verbose=run_options.lines.verbose)
            return 0
        if run_options.burn_s is not None:
            _check_speed({} if fleet is None else fleet.hellos, selection, run_options)
        run_dir = create_run_dir(run_options.runs_dir, run_options.name)
        planned = with_checkpoints(planned, str(run_dir.checkpoints.absolute()))
        if planned.checkpointing is not None:  # the built-in training has nothing to do after a failure
            grace_s = policy.restart_grace_s if planned.argv else BUILT_IN_RESTART_GRACE_S
            policy = replace(policy, saves_on_signal=True, restart_grace_s=grace_s)
        traces = run_dir.path.absolute() / "traces"
        if run_options.trace:
            planned = with_trace(planned, str(traces))
        if background is not None:
            background.expect((plan.task.name for plan in planned.job.plans), run_dir)
        console = _console(planned, run_options, background, run_dir)
        hosts = elastic_hosts(planned, options.choices.get("workers"), selection, policy)
        if run_options.metrics.wanted:
            policy = replace(policy, inspect_s=INSPECT_S)
        outcome, record = _run(planned, run_dir, policy, console, fleet, hosts, run_options.metrics)

    resume = resume_command(this_command()[1:], run_dir.path, planned.checkpointing, own=bool(planned.argv))
    show_outcome(
        outcome,
        record,
        quiet=run_options.lines.quiet,
        json=run_options.json,
        resume="" if options.recovery.resume else resume,
        is_shown=console.shows,
    )
    if traces.is_dir() and not run_options.lines.quiet:
        typer.echo(traces_line(traces), file=run_options.out)
    code, reason = (outcome.exit_code, outcome.reason) if record is None else (record.exit_code, record.reason)
    termination_log.write(termination_log.short_form(outcome, int(code), reason))
    if run_options.requeue is not None:
        with without_sigterm():
            line = requeue(outcome, code, run_options.requeue, os.environ)
            if line:
                typer.echo(f"tfdist: {line}", err=True)
    return code


def _check_speed(hellos: Mapping[Host, Mapping[str, Any]], selection: HostSelection, options: RunOptions) -> None:
    """Compare the hosts while they compute and exchange.

    Raises:
        TfdistError: one is slow, or a link.
    """
    from tfdist.cli.doctor import burned_rows, row_lines  # it imports rich

    with Steps(sys.stderr, quiet=options.lines.quiet) as steps:
        rows = burned_rows(hellos, selection.per_host, options.burn_s or 0.0, steps.show)
    slow = [row for row in rows if row.verdict is not Verdict.OK]
    if slow or not options.lines.quiet:
        typer.echo("\n".join(row_lines(rows, None)), file=options.out)
    if slow:
        names = shortened(dict.fromkeys(row.host for row in slow))
        raise TfdistError(
            f"--burn: {names} slow, as the rows above say; repair or --exclude, or omit --burn", ExitCode.HOST_LOST
        )


def checked_plan(options: LaunchOptions, run_options: RunOptions, machines: Machines) -> PlannedLaunch:
    """The job on these machines; the options about its run are right, too.

    Raises:
        TfdistError: an option is wrong.
    """
    planned = plan_request(options, machines)
    output_tasks(run_options.output, planned.job)
    if run_options.trace:
        with_trace(planned, "")
    if planned.checkpointing is not None and not planned.argv:
        check_folder_name(planned.checkpointing.folder or str(run_options.runs_dir.absolute()))
    return planned


def _console(
    planned: PlannedLaunch, options: RunOptions, background: Background | None, run_dir: RunDir
) -> PrefixedLines:
    """A live table for the built-in training on a terminal, else prefixed lines."""
    if background is not None:
        return BackgroundLines(background, options.out, sys.stderr, options.lines)
    lines = replace(options.lines, tasks=output_tasks(options.output, planned.job), run_dir=run_dir)
    if not planned.argv and not lines.quiet and can_redraw(options.out):
        return LiveTable(planned.job, options.out, lines)
    return PrefixedLines(options.out, sys.stderr, lines)


def _run(
    planned: PlannedLaunch,
    run_dir: RunDir,
    policy: Policy,
    console: PrefixedLines,
    fleet: Fleet | None,
    hosts: ElasticHosts | None,
    metrics: MetricsOptions,
) -> tuple[Outcome, Record | None]:
    """Run the job and keep it: its launcher, its spec and, if no task was started, why."""
    with console, RunWriter(run_dir, lambda text: console.handle(Note("tfdist", text)), policy.log_limit) as writer:
        saved = SavedSpec(planned.spec, tuple(redact_arguments(planned.argv)), planned.checkpointing)
        writer.save(run_dir.launcher, this_launcher().to_json())
        writer.save(run_dir.spec, saved.to_json())
        try:
            with published(metrics, planned.job, writer, lambda text: console.handle(Note("tfdist", text))) as publish:
                if planned.rendezvous is not None:  # other launchers start the other tasks
                    meet(planned.rendezvous, policy.start_timeout_s, lambda text: console.handle(Note("tfdist", text)))
                listeners = {"console": console.handle, "metrics": publish}
                result = _run_kept(planned, writer, policy, listeners, fleet, hosts)
        except TfdistError as error:
            status = RunState.INTERRUPTED if error.exit_code > 128 else RunState.REFUSED
            ending = {"status": str(status), "exit_code": error.exit_code, "reason": safe_text(str(error))}
            writer.save_outcome({"format": 1, **ending})
            raise
        if planned.spec.log_device_placement:
            console.handle(Note("tfdist", save_placement(writer)))
        return result


def _run_kept(
    planned: PlannedLaunch,
    writer: RunWriter,
    policy: Policy,
    listeners: Mapping[str, OnMessage],
    fleet: Fleet | None,
    hosts: ElasticHosts | None,
) -> tuple[Outcome, Record | None]:
    """Run the job. Keeps, for the built-in training, the record that it returns."""
    job, spec = planned.job, planned.spec
    if not isinstance(spec, TrainingSpec):
        facts = StrategyFacts()
        said = set[str]()

        def note(message: Message) -> None:
            facts.note(message)
            if isinstance(message, Event) and message.event.get("event") == "strategy" and message.event.get("trains"):
                state, sentence = facts.judge(spec, job)
                if state is StrategyCheck.REFUTED and not said:
                    said.add(sentence)
                    listeners["console"](Note("tfdist", f"warning: {sentence}"))

        outcome = run_job(job, writer, policy, {**listeners, "strategy check": note}, fleet=fleet, hosts=hosts)
        if hosts is not None:
            job, spec = hosts.planned
        if outcome.status is Status.OK and any(exit.cpu_s > IMPORT_CPU_S for exit in outcome.exits.values()):
            outcome = replace(outcome, warnings=(*outcome.warnings, *facts.warnings(spec, job)))
            writer.save_outcome(outcome.to_json())
        return outcome, None
    arm = str(spec.strategy)
    outcome, record = run_training(job, spec, writer, policy, listeners, fleet=fleet, hosts=hosts, arm=arm)
    writer.save_text(writer.run_dir.records, dumps(record.to_json()) + "\n")
    if outcome.status is Status.OK and record.status is not RecordStatus.OK:
        failed = replace(outcome, status=Status.FAILED, exit_code=record.exit_code, reason=record.reason)
        writer.save_outcome(failed.to_json())
    return outcome, record
