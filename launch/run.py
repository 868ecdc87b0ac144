"""A launch from a planned job to its outcome. This file is the table of contents of the package."""

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfdist.launch.agents import agent
from tfdist.launch.agents.fleet import Fleet, connect
from tfdist.launch.agents.messages import Finish, Start
from tfdist.launch.diagnose import Outcome, diagnose
from tfdist.launch.doctor.preflight import port_sentence, preflight
from tfdist.launch.environment import command_shown, shown
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Job, TaskPlan
from tfdist.launch.json_files import save_json
from tfdist.launch.policy import Policy
from tfdist.launch.rundir import RunDir
from tfdist.launch.supervise import OnMessage, Watch, supervise

TAIL_BYTES = 1 << 16


def launch(
    job: Job,
    run_dir: RunDir,
    policy: Policy | None = None,
    listen: OnMessage = lambda _: None,
    *,
    fleet: Fleet | None = None,
    needs_tensorflow: bool = False,
) -> Outcome:
    """Run a job to its end; nothing of it is left over, whatever happens.

    Args:
        job: as planned.
        run_dir: gets its logs, events and outcome.
        policy: how patient to be.
        listen: is told everything as it comes.
        fleet: the agents of its hosts, if they are connected already.
        needs_tensorflow: refuse hosts that have no TensorFlow.

    Raises:
        TfdistError: an agent could not be started, or the preflight failed; no task was started.
    """
    policy = policy or Policy()
    with nullcontext(fleet) if fleet is not None else connect(job.hosts, policy) as fleet:
        job, notes = preflight(job, fleet, needs_tensorflow)
        for note in notes:
            listen(note)
        hellos = {host.name: hello for host, hello in fleet.hellos.items()}
        write_plan(job, hellos, run_dir)
        watch = start(job, fleet, policy)
        began = time.monotonic()
        supervise(watch, run_dir, listen)
        wall_s = time.monotonic() - began
        for channel in fleet.channels.values():
            channel.send(Finish())
    tails = {name: tail(run_dir.log(name, "stderr")) for name in watch.channels}
    places = {} if job.hosts == (LOCAL,) else {plan.task.name: plan.host.name for plan in job.plans}
    outcome = replace(
        diagnose(watch.history, tails, places),
        wall_s=wall_s,
        records=watch.records,
        hosts=hellos,
        run_dir=str(run_dir.path),
    )
    save_json(run_dir.outcome, outcome.to_json())
    return outcome


def start(job: Job, fleet: Fleet, policy: Policy) -> Watch:
    """Tell the agents to start every task; who watches over them."""
    by_task = {plan.task.name: fleet.channels[plan.host] for plan in job.plans}
    for plan in job.plans:
        by_task[plan.task.name].send(start_message(job, plan))
    return Watch(job, by_task, policy, fleet.inbox, running=set(by_task))


def start_message(job: Job, plan: TaskPlan) -> Start:
    """What the agent is told of one task."""
    return Start(plan.task.name, plan.program.argv, job.environment(plan), plan.program.cwd, plan.cores)


def dry_ports(job: Job) -> Job:
    """The job with ports that are free now, for showing; nothing is started and nothing held.

    Raises:
        TfdistError: a fixed port is in use.
    """
    held, ports = [], {}
    try:
        for plan in job.plans:
            if plan.port is not None:
                held.append(agent.reserve(plan.port))
                ports[plan.task.name] = held[-1].getsockname()[1]
    except OSError as error:
        raise TfdistError(port_sentence(plan.host, plan.port or 0, error.strerror or str(error))) from None
    finally:
        for one in held:
            one.close()
    return job.with_ports(ports)


def write_plan(job: Job, hellos: Mapping[str, Mapping[str, Any]], run_dir: RunDir) -> None:
    """The folder's files that are known before the first task starts."""
    save_json(run_dir.hosts, hellos)
    save_json(run_dir.cluster, [describe_plan(job, plan) for plan in job.plans])
    commands = [f"{plan.task.name}: {command_shown(plan.program.argv)}" for plan in job.plans]
    text = "\n".join([command_shown(sys.argv), *commands]) + "\n"
    run_dir.commands.write_text(text, encoding="utf-8", errors="surrogateescape")


def describe_plan(job: Job, plan: TaskPlan) -> dict[str, Any]:
    """One task as `--dry-run` and cluster.json show it: its own variables, not the whole environment."""
    return {
        "task": plan.task.name,
        "host": plan.host.name,
        "cores": list(plan.cores),
        "env": {name: shown(name, value) for name, value in job.environment(plan).items()},
        "cwd": plan.program.cwd,
        "command": command_shown(plan.program.argv),
    }


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, as text; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
