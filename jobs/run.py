"""Runs a planned job, and keeps what it was started with and how it ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.jobs.elastic import ElasticHosts
from tfdist.jobs.plan import Planned
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Inbox, Message, Note, OnMessage
from tfdist.launch.agents.messages import Event
from tfdist.launch.console.lines import PrefixedLines
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.inherit.leader import Rendezvous
from tfdist.launch.inherit.rendezvous import TELL_S, meet
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_arguments, safe_text
from tfdist.launch.runs.launcher import this_launcher
from tfdist.launch.runs.placement import save_placement
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import RunState
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.metrics import INSPECT_S, MetricsOptions, published
from tfdist.launch.supervision.run_tasks import launch
from tfdist.models.record import Record, RecordStatus
from tfdist.models.run import run_training
from tfdist.models.strategy_check import StrategyCheck, StrategyFacts

IMPORT_CPU_S = 1.5
"""A program that used less CPU time did not train: the import of TensorFlow alone takes more."""
BUILT_IN_RESTART_GRACE_S = 0.3
"""`Policy.restart_grace_s` of the built-in training: with it a restart costs little more than a start."""


@dataclass(frozen=True)
class Run:
    """What is done with a job."""

    run_dir: RunDir
    policy: Policy
    console: PrefixedLines
    metrics: MetricsOptions
    fleet: Fleet | None = None
    """The agents of its hosts; None: this machine, whose agent starts now."""
    hosts: ElasticHosts | None = None
    """Plan the job again when hosts are lost or join; None: it stays on its hosts."""
    listeners: Mapping[str, OnMessage] = field(default_factory=dict)
    """More of them, besides the console and the metrics, by name."""

    def note(self, text: str) -> None:
        """Print a line of the launcher."""
        self.console.handle(Note("tfdist", text))


def policy_of(policy: Policy, planned: Planned, metrics: MetricsOptions) -> Policy:
    """The policy of a job: what follows from how it is saved, and from who reads its figures."""
    if planned.checkpointing is not None:  # the built-in training has nothing to do after a failure
        grace_s = policy.restart_grace_s if planned.request.own else BUILT_IN_RESTART_GRACE_S
        policy = replace(policy, saves_on_signal=True, restart_grace_s=grace_s)
    return replace(policy, inspect_s=INSPECT_S) if metrics.wanted else policy


@dataclass
class Barrier:
    """Where the tasks of an inherited cluster, which have launchers of their own, wait for each other."""

    rendezvous: Rendezvous | None
    """None: this job starts at once."""
    run: Run
    reached: bool = False

    def wait(self, inbox: Inbox) -> None:
        """Return when all tasks can start.

        Raises:
            TfdistError: they cannot.
        """
        self.reached = True
        if self.rendezvous is not None:
            timeout_s = self.run.policy.start_timeout_s
            meet(self.rendezvous, timeout_s, self.run.note, earlier=lambda: inbox.interrupted)

    def give_up(self, error: TfdistError) -> NoReturn:
        """Tell the other tasks why this one does not start, unless they have met, or a signal came: it may come yet.

        Raises:
            TfdistError: `error`, or a signal came.
        """
        if self.rendezvous is not None and not self.reached and error.exit_code < SIGNALS:
            self.run.note("telling the other tasks why this one does not start")
            meet(self.rendezvous, TELL_S, lambda _: None, problem=error)
        raise error


def run_planned(planned: Planned, run: Run) -> tuple[Outcome, Record | None]:
    """Run the job to its end; returns its outcome, and the record of the built-in training.

    Raises:
        TfdistError: no task was started; the run's folder has the reason.
    """
    with run.console, RunWriter(run.run_dir, run.note, run.policy.log_limit) as writer:
        copy = planned.job.copy
        command = tuple(redact_arguments(planned.request.command))
        saved = SavedSpec(planned.spec, command, planned.checkpointing, None if copy is None else copy.origin)
        writer.save(run.run_dir.launcher, this_launcher().to_json())
        writer.save(run.run_dir.spec, saved.to_json())
        if copy is not None and copy.folder:
            writer.save_bytes(run.run_dir.copy, copy.archive)
        barrier = Barrier(planned.rendezvous, run)
        try:
            with published(run.metrics, planned.job, writer, run.note) as publish:
                listeners = {"console": run.console.handle, "metrics": publish, **run.listeners}
                start = _run_program if planned.request.own else _run_training
                result = start(planned, run, writer, listeners, barrier.wait)
        except TfdistError as error:
            status = RunState.INTERRUPTED if error.exit_code > SIGNALS else RunState.REFUSED
            ending = {"status": str(status), "exit_code": error.exit_code, "reason": safe_text(str(error))}
            writer.save_outcome({"format": 1, **ending})
            barrier.give_up(error)
        if planned.spec.log_device_placement:
            run.note(save_placement(writer))
        return result


def _run_training(
    planned: Planned,
    run: Run,
    writer: RunWriter,
    listeners: Mapping[str, OnMessage],
    before_start: Callable[[Inbox], None],
) -> tuple[Outcome, Record]:
    """Run the built-in training. Keeps the record that it returns."""
    arm = str(planned.spec.strategy)
    outcome, record = run_training(
        planned.job,
        planned.spec,
        writer,
        run.policy,
        listeners,
        fleet=run.fleet,
        arm=arm,
        hosts=run.hosts,
        before_start=before_start,
    )
    writer.save_text(run.run_dir.records, dumps(record.to_json()) + "\n")
    if outcome.status is Status.OK and record.status is not RecordStatus.OK:
        failed = replace(outcome, status=Status.FAILED, exit_code=record.exit_code, reason=record.reason)
        writer.save_outcome(failed.to_json())
    return outcome, record


def _run_program(
    planned: Planned,
    run: Run,
    writer: RunWriter,
    listeners: Mapping[str, OnMessage],
    before_start: Callable[[Inbox], None],
) -> tuple[Outcome, None]:
    """Run the user's own program. Warns once it is known not to train under its strategy."""
    facts = StrategyFacts()
    said = set[str]()

    def check(message: Message) -> None:
        facts.note(message)
        if isinstance(message, Event) and message.event.get("event") == "strategy" and message.event.get("trains"):
            state, sentence = facts.judge(planned.spec, planned.job)
            if state is StrategyCheck.REFUTED and not said:
                said.add(sentence)
                run.note(f"warning: {sentence}")

    listeners = {**listeners, "strategy check": check}
    outcome = launch(
        planned.job, writer, run.policy, listeners, fleet=run.fleet, hosts=run.hosts, before_start=before_start
    )
    last = planned if run.hosts is None else run.hosts.current
    if outcome.status is Status.OK and any(exit.cpu_s > IMPORT_CPU_S for exit in outcome.exits.values()):
        outcome = replace(outcome, warnings=(*outcome.warnings, *facts.warnings(last.spec, last.job)))
        writer.save_outcome(outcome.to_json())
    return outcome, None
