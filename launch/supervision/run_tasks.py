"""Run the tasks of a job on connected hosts, from preflight to outcome."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from tfdist.launch.agents.channel import DESCRIPTORS
from tfdist.launch.agents.connect import SPARE_DESCRIPTORS, allow_descriptors, connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Inbox, OnMessage
from tfdist.launch.agents.messages import FindWritten, Finish, Reply, Written
from tfdist.launch.agents.template import Templates
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.runs.launcher import serve
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.attempt_planner import AttemptPlanner
from tfdist.launch.supervision.attempts import AttemptLog
from tfdist.launch.supervision.listeners import Listeners
from tfdist.launch.supervision.rejoin import HostChoice, Rejoin, SameHosts
from tfdist.launch.supervision.supervise import Supervisor, supervise
from tfdist.launch.text import counted, shortened

LOGS_PER_TASK = 3
"""Open files of a task: the logs of its stdout and stderr, and its stacks."""
WRITTEN_S = 10.0
"""Time to find what tasks have written in a copy."""
NOBODY: Mapping[str, OnMessage] = {}


def launch(
    job: Job,
    writer: RunWriter,
    policy: Policy | None = None,
    listeners: Mapping[str, OnMessage] = NOBODY,
    *,
    fleet: Fleet | None = None,
    needs_tensorflow: bool = False,
    paced: bool = False,
    hosts: HostChoice | None = None,
    before_start: Callable[[Inbox], None] = lambda _: None,
) -> Outcome:
    """Run a job to its end. No process is left over, whatever happens.

    Args:
        job: from `plan_job`.
        writer: keeps logs, events and outcome in the run's folder.
        policy: timeouts.
        listeners: called with every message; the names are for the line about one that fails.
        fleet: the agents of the job's hosts, if they are connected already.
        needs_tensorflow: refuse hosts without TensorFlow.
        paced: open the barrier only for each `NextTurn` in the inbox of `fleet`; `policy.timeout_s` limits each turn.
        hosts: plans a restart of all tasks on the hosts that answer; None: the same job on the same hosts.
        before_start: called with the inbox once the hosts are checked; nothing is started if it raises a TfdistError.

    Raises:
        TfdistError: an agent could not be started or the preflight failed; no task was started.
    """
    policy = policy or Policy()
    choice = hosts or SameHosts(job.hosts)
    allow_descriptors(SPARE_DESCRIPTORS + DESCRIPTORS * len(job.hosts) + LOGS_PER_TASK * len(job.plans))
    with ExitStack() as stack:
        if fleet is None:
            template = stack.enter_context(closing(Templates())).of(job) if len(job.plans) > 1 else None
            fleet = stack.enter_context(connect(job.hosts, policy, template=template))
        handlers = Listeners(listeners, writer.write)
        rejoin = Rejoin(fleet, choice.wanted)
        planner = AttemptPlanner(fleet, writer, policy, handlers, needs_tensorflow, choice, rejoin)
        tasks = planner.first_tasks(job)
        before_start(fleet.inbox)
        supervisor = Supervisor(tasks, fleet.inbox, AttemptLog(), planner.next_tasks, paced)
        started = time.monotonic()
        with serve(writer.run_dir, fleet.inbox, lambda: sorted(supervisor.tasks.running)), closing(rejoin):
            if hosts is not None:  # hosts that were lost, or are new, are connected while the job runs
                rejoin.start()
            supervisor.start(started)
            outcome = supervise(supervisor, writer, handlers)
        written = tuple(written_in_copies(fleet)) if job.copy is not None and job.copy.folder else ()
        for channel in fleet.channels.values():
            channel.shield(False)
            channel.send(Finish())
        outcome = replace(
            outcome,
            wall_s=time.monotonic() - started,
            hosts={host.name: hello for host, hello in fleet.hellos.items()},
            run_dir=str(writer.run_dir.path),
            warnings=(*outcome.warnings, *writer.warnings, *written),
        )
        writer.save_outcome(outcome.to_json())  # signals would end the launcher later
        return outcome


def written_in_copies(fleet: Fleet) -> Iterator[str]:
    """A warning about what tasks have written in the copies of the folder, which are removed."""
    replies: dict[Host, Reply] = {}
    with suppress(TfdistError):  # one more signal
        left = [host for host in fleet.hellos if not (fleet.channels[host].lost or fleet.channels[host].silent)]
        replies = fleet.ask({host: FindWritten() for host in left}, "look for new files", WRITTEN_S)
    found = {host: reply for host, reply in replies.items() if isinstance(reply, Written) and reply.count}
    if found:
        names = shortened(f"{name} on {host.name}" for host, reply in found.items() for name in reply.names)
        files = counted(sum(reply.count for reply in found.values()), "file")
        fix = "write to TFDIST_ARM_DIR or TFDIST_CHECKPOINT_DIR"
        yield f"{files} written in the copy of the folder, which is removed: {names}; {fix}"
