"""Run the tasks of a job on connected hosts: the sequence of steps from the preflight to the outcome."""

import os
from dataclasses import replace

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.launcher_messages import Message, OnMessage
from tfdist.launch.agents.messages import Finish, Start
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.outcome import Outcome
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.dry_run import save_plan
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.control import serve
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervise import Supervisor, supervise


def run_tasks(
    job: Job,
    fleet: Fleet,
    writer: RunWriter,
    policy: Policy,
    on_message: OnMessage,
    needs_tensorflow: bool,
    paced: bool = False,
) -> Outcome:
    """Check the hosts, start the tasks, supervise them to their end and say how they ended. Arguments as for `launch`.

    Raises:
        TfdistError: the preflight failed; no task was started.
    """
    job, notes = preflight(job.sharing(os.environ), fleet, needs_tensorflow)
    for note in notes:
        on_message(note)
    hellos = {host.name: hello for host, hello in fleet.hellos.items()}
    save_plan(job, hellos, writer)
    supervisor = _start(job, fleet, policy, writer, on_message, paced)
    with serve(writer.run_dir, fleet.inbox, lambda: sorted(supervisor.running)):
        wall_s = supervise(supervisor, writer, on_message)
    for channel in fleet.channels.values():
        channel.send(Finish())
    outcome = _safe(diagnose(supervisor.history, job))
    outcome = replace(outcome, wall_s=wall_s, records=supervisor.records, hosts=hellos)
    outcome = replace(outcome, run_dir=str(writer.run_dir.path))
    writer.save_outcome(outcome.to_json())  # signals would end the launcher later
    return outcome


def _safe(outcome: Outcome) -> Outcome:
    return replace(
        outcome,
        reason=safe_text(outcome.reason),
        log=tuple(map(safe_text, outcome.log)),
        casualties={task: safe_text(ending) for task, ending in outcome.casualties.items()},
        warnings=tuple(map(safe_text, outcome.warnings)),
    )


def _start(job: Job, fleet: Fleet, policy: Policy, writer: RunWriter, on_message: OnMessage, paced: bool) -> Supervisor:
    def announce(message: Message) -> None:
        writer.write(message)
        on_message(message)

    channels = {plan.task.name: fleet.channels[plan.host] for plan in job.plans}
    tasks = set(channels)
    supervisor = Supervisor(job, channels, policy, fleet.inbox, tasks, fleet.requests, announce=announce, paced=paced)
    for plan in job.plans:
        program = plan.program
        port = job.cluster.port(plan.task)
        start = Start(plan.task.name, program.argv, job.environment(plan), program.cwd, plan.cores, port)
        channels[plan.task.name].send(start)
    return supervisor
