"""A launch from a planned job to its outcome. This file is the table of contents of the package."""

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tfdist.launch import agent
from tfdist.launch.channel import Channel, Inbox, heartbeats
from tfdist.launch.diagnose import Outcome, diagnose
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts import Host
from tfdist.launch.job import Job, TaskPlan
from tfdist.launch.messages import AgentLost, Finish, Hello, Interrupted, Message, Refused, Reserve, Reserved, Start
from tfdist.launch.policy import Policy
from tfdist.launch.rundir import RunDir, save_json
from tfdist.launch.supervise import Listener, Watch, interruptions, supervise

TAIL_BYTES = 1 << 16


def launch(job: Job, run_dir: RunDir, policy: Policy | None = None, listen: Listener = lambda _: None) -> Outcome:
    """Run a job to its end; nothing of it is left over, whatever happens.

    Raises:
        TfdistError: an agent could not be started, or a port is in use; no task was started.
    """
    policy = policy or Policy()
    inbox: Inbox = SimpleQueue()
    with interruptions(inbox), agents(job.hosts, inbox) as channels:
        hellos = greet(channels, inbox, policy)
        job = reserve_ports(job, channels, inbox, policy)
        write_plan(job, hellos, run_dir)
        began = time.monotonic()
        by_task = {plan.task.name: channels[plan.host] for plan in job.plans}
        watch = Watch(job, by_task, policy, inbox, running=set(by_task))
        for plan in job.plans:
            by_task[plan.task.name].say(start_message(job, plan))
        with heartbeats(list(channels.values()), policy.heartbeat_s):
            supervise(watch, run_dir, listen)
        wall_s = time.monotonic() - began
        for channel in channels.values():
            channel.say(Finish())
    outcome = replace(
        diagnose(watch.history, {name: tail(run_dir.log(name, "stderr")) for name in by_task}),
        wall_s=wall_s,
        records=watch.records,
        hosts=hellos,
        run_dir=str(run_dir.path),
    )
    save_json(run_dir.outcome, outcome.to_json())
    return outcome


@contextmanager
def agents(hosts: tuple[Host, ...], inbox: Inbox) -> Iterator[Mapping[Host, Channel]]:
    """An agent on every host, and none any more afterwards."""
    channels: dict[Host, Channel] = {}
    try:
        for host in hosts:
            channels[host] = Channel(host, inbox)
        yield channels
    finally:
        for channel in channels.values():
            channel.close()


def greet(channels: Mapping[Host, Channel], inbox: Inbox, policy: Policy) -> Mapping[str, Mapping[str, Any]]:
    """Every host's description of itself, by its name."""
    hellos: dict[str, Mapping[str, Any]] = {}
    deadline = time.monotonic() + policy.hello_s
    while len(hellos) < len(channels):
        host, message = answer(inbox, deadline, "say hello")
        if isinstance(message, Hello):
            hellos[host] = message.description
    return hellos


def reserve_ports(job: Job, channels: Mapping[Host, Channel], inbox: Inbox, policy: Policy) -> Job:
    """Have each host's agent hold its tasks' ports; the job then knows its cluster."""
    wanted = {host: [plan for plan in job.plans if plan.host == host and plan.port is not None] for host in channels}
    asked = {host.name: plans for host, plans in wanted.items() if plans}
    for host, plans in wanted.items():
        if plans:
            channels[host].say(Reserve(tuple(plan.port or 0 for plan in plans)))
    ports: dict[str, int] = {}
    deadline = time.monotonic() + policy.hello_s
    while len(ports) < sum(map(len, asked.values())):
        name, message = answer(inbox, deadline, "reserve ports")
        if isinstance(message, Refused):
            raise TfdistError(port_sentence(name, message.port, message.reason))
        if isinstance(message, Reserved):
            ports |= {plan.task.name: port for plan, port in zip(asked[name], message.ports, strict=True)}
    return job.with_ports(ports)


def answer(inbox: Inbox, deadline: float, what: str) -> tuple[str, Message]:
    """The next message of an agent before any task runs, and its host's name.

    Raises:
        TfdistError: the agent is lost, takes too long, or the user has had enough.
    """
    try:
        channel, message = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
    except Empty:
        raise TfdistError(f"an agent did not {what} in time: is the host overloaded?", ExitCode.HOST_LOST) from None
    if channel is None:
        number = message.signal if isinstance(message, Interrupted) else signal.SIGINT
        raise TfdistError("interrupted before any task was started", 128 + number)
    if isinstance(message, AgentLost):
        raise TfdistError(f"the agent on {message.host} could not run: {message.reason}", ExitCode.HOST_LOST)
    return channel.host.name, message


def port_sentence(host: str, port: int, reason: str) -> str:
    """Why a port could not be had, and the way out."""
    return f"port {port} on {host} cannot be used ({reason.lower()}): choose another --port, or none for free ones"


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
        raise TfdistError(port_sentence(plan.host.name, plan.port or 0, error.strerror or str(error))) from None
    finally:
        for one in held:
            one.close()
    return job.with_ports(ports)


def write_plan(job: Job, hellos: Mapping[str, Mapping[str, Any]], run_dir: RunDir) -> None:
    """The folder's files that are known before the first task starts."""
    save_json(run_dir.hosts, hellos)
    save_json(run_dir.cluster, [describe_plan(job, plan) for plan in job.plans])
    commands = [f"{plan.task.name}: {shlex.join(plan.program.argv)}" for plan in job.plans]
    text = "\n".join([shlex.join(sys.argv), *commands]) + "\n"
    run_dir.commands.write_text(text, encoding="utf-8", errors="surrogateescape")


def describe_plan(job: Job, plan: TaskPlan) -> dict[str, Any]:
    """One task as `--dry-run` and cluster.json show it: its own variables, not the whole environment."""
    return {
        "task": plan.task.name,
        "host": plan.host.name,
        "cores": list(plan.cores),
        "env": job.environment(plan),
        "cwd": plan.program.cwd,
        "argv": list(plan.program.argv),
        "command": shlex.join(plan.program.argv),
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
