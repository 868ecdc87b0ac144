"""Jobs that lose a host: real agents behind scripts that stand in for ssh, and small programs."""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass, replace

import pytest

from tests.launch.agents.stand_ins import host, wait_for_message
from tests.launch.jobs import Messages
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.inbox import AgentLost, HostReady, Interrupted, Note, Restarting
from tfdist.launch.agents.messages import Output, Started
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.rejoin import NextPlan
from tfdist.launch.supervision.run_tasks import WRITTEN_S, launch, written_in_copies

pytestmark = pytest.mark.slow

POLICY = Policy(grace_s=1.0, settle_s=0.3, lost_grace_s=0.3, start_timeout_s=15.0, max_restarts=1, rejoin_s=0.2)
WORKER = RoleShape(1, restarts=("worker",))
LOSES_B = """
import json, os, signal, sys, time
first, task = os.environ['TFDIST_ATTEMPT'] == '0', os.environ['TFDIST_TASK']
print(task, 'of', len(json.loads(os.environ['TF_CONFIG'])['cluster']['worker']), flush=True)
if first and task == 'worker-1':
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGKILL)
if first:
    time.sleep(60)
"""
"""Kills the agent of worker-1 in the first attempt, as soon as a file exists."""


def job_on(hosts, folder):
    """A worker on each host."""
    machines = {one: Machine((0,), (), slots=1) for one in hosts}
    shape = Shape({"worker": RoleShape(len(hosts), restarts=("worker",))}, has_cluster=True)
    return plan_job(shape, Program((sys.executable, "-S", "-c", LOSES_B, f"{folder}/go"), {}, "/"), machines)


@dataclass
class Elastic:
    """A worker on each host that answers."""

    hosts: list
    least: int
    folder: str

    def wanted(self):
        return self.hosts

    def plan(self, job, hellos, saved):
        if len(hellos) < self.least:
            raise TfdistError(f"{len(hellos)} of at least {self.least} workers", 69)
        return NextPlan(job_on(hellos, self.folder), f"{len(hellos)} workers instead of {len(job.hosts)}")


def switched(folder, name):
    """A host that cannot be connected while the file `name` exists in the folder."""
    return host(name, f'[ ! -e {folder}/{name} ] || {{ echo "no route to host" >&2; exit 255; }}; exec "$@"')


def run(job, fleet, folder, choice=None, policy=POLICY, on_message=lambda message: None):
    messages = Messages()

    def keep(message):
        messages.append(message)
        on_message(message)

    (folder / "run").mkdir()
    with RunWriter(RunDir(folder / "run")) as writer:
        outcome = launch(job, writer, policy, {"test": keep}, fleet=fleet, hosts=choice)
    return outcome, messages


def losing_b(folder, fleet, start_timeout_s):
    """Once a task has started, lets host b be lost, and gives it this long to come back; the first start had longer."""

    def lose(message):
        if isinstance(message, Started):
            fleet.policy = replace(fleet.policy, start_timeout_s=start_timeout_s)
            (folder / "b").touch()
            (folder / "go").touch()

    return lose


def output(messages):
    return sorted(message.text for message in messages.of(Output))


def hosts_of(folder):
    """The host of each task in the last plan."""
    return [task["host"] for task in json.loads((folder / "run/cluster.json").read_text())["tasks"]]


def test_a_host_whose_agent_was_killed_is_connected_again(tmp_path, survivors):
    hosts = [host("a"), host("b")]
    (tmp_path / "go").touch()
    with connect(hosts, POLICY) as fleet:
        outcome, messages = run(job_on(hosts, tmp_path), fleet, tmp_path)
    assert (outcome.status, outcome.exit_code) == (Status.OK, 0), outcome
    assert [attempt.exit_code for attempt in outcome.attempts] == [69, 0]
    assert output(messages)[-1] == "worker-1 of 2\n"
    assert survivors() == []


def test_the_files_of_a_program_that_runs_in_the_home_folder_are_below_it(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    words = ("sh", "-c", 'test -d "$TFDIST_ARM_DIR" && echo "$TFDIST_ARM_DIR"')
    program, hosts = Program(words, {}, str(tmp_path / "only here")), [host("a")]
    job = plan_job(Shape({"worker": WORKER}, has_cluster=False), program, {hosts[0]: Machine((0,), (), slots=1)})
    with connect(hosts, POLICY) as fleet:
        outcome, messages = run(job, fleet, tmp_path)
    assert outcome.exit_code == 0, outcome
    assert output(messages) == [f"{tmp_path}/home/runs/run/files\n"]
    assert not (tmp_path / "only here").exists()


def test_a_host_that_does_not_answer_again_ends_the_run(tmp_path):
    hosts = [host("a"), switched(tmp_path, "b")]
    policy = Policy(settle_s=0.3, lost_grace_s=0.3, start_timeout_s=20.0, max_restarts=1)
    with connect(hosts) as fleet:
        fleet.policy = policy
        lose_b = losing_b(tmp_path, fleet, start_timeout_s=2.0)
        outcome, messages = run(job_on(hosts, tmp_path), fleet, tmp_path, policy=policy, on_message=lose_b)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 69)
    assert outcome.reason.startswith("lost the agent on b")
    assert outcome.not_restarted == "b is lost, and without --min-workers all hosts are needed"
    assert any("waiting 2 s for b" in note.text for note in messages.of(Note))
    assert messages.of(Restarting) == []


def test_a_lost_host_is_left_out(tmp_path):
    hosts = [host("a"), switched(tmp_path, "b"), host("c")]
    with connect(hosts, POLICY) as fleet:
        (tmp_path / "b").touch()
        (tmp_path / "go").touch()
        outcome, messages = run(job_on(hosts, tmp_path), fleet, tmp_path, Elastic(hosts, 2, tmp_path))
    assert outcome.exit_code == 0, outcome
    assert outcome.attempts[1].note == "2 workers instead of 3"
    assert outcome.attempts[1].tasks == ("worker-0", "worker-1")
    assert [message.reason.endswith("; 2 workers instead of 3") for message in messages.of(Restarting)] == [True]
    assert output(messages)[0] == "worker-0 of 2\n"
    assert hosts_of(tmp_path) == ["a", "c"]


def test_too_few_hosts_end_the_run_with_one_sentence(tmp_path):
    hosts = [host("a"), switched(tmp_path, "b")]
    with connect(hosts, Policy(start_timeout_s=20.0)) as fleet:
        lose_b = losing_b(tmp_path, fleet, start_timeout_s=1.0)
        outcome, _ = run(job_on(hosts, tmp_path), fleet, tmp_path, Elastic(hosts, 2, tmp_path), on_message=lose_b)
    assert (outcome.exit_code, outcome.not_restarted) == (69, "1 of at least 2 workers")


def test_a_new_host_joins_at_the_next_restart(tmp_path):
    hosts = [host("a"), switched(tmp_path, "b"), host("c")]

    def let_fail(message):
        if isinstance(message, HostReady):
            (tmp_path / "b").touch()
            (tmp_path / "go").touch()

    with connect(hosts[:2], POLICY) as fleet:
        elastic = Elastic(hosts, 2, tmp_path)
        outcome, messages = run(job_on(hosts[:2], tmp_path), fleet, tmp_path, elastic, on_message=let_fail)
    assert outcome.exit_code == 0, outcome
    assert len(outcome.attempts) == 2
    assert messages.of(HostReady) == [HostReady("c")]
    assert hosts_of(tmp_path) == ["a", "c"]


def test_ctrl_c_while_it_waits_for_a_host(tmp_path):
    hosts = [host("a"), switched(tmp_path, "b")]

    def interrupt(message):
        if isinstance(message, Note) and "waiting" in message.text:
            fleet.inbox.put(None, Interrupted(signal.SIGINT))

    with connect(hosts, POLICY) as fleet:
        (tmp_path / "b").touch()
        (tmp_path / "go").touch()
        outcome, _ = run(job_on(hosts, tmp_path), fleet, tmp_path, on_message=interrupt)
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.INTERRUPTED, 130, signal.SIGINT)
    assert outcome.not_restarted == "interrupted before the restart"


def test_a_new_host_that_fails_the_preflight_is_left_out(tmp_path):
    good, bad = [host("a"), host("b")], host("c", chdir="/nowhere/at all")

    def let_fail(message):
        if isinstance(message, HostReady):
            (tmp_path / "go").touch()

    with connect(good, POLICY) as fleet:
        choice = Elastic([*good, bad], 1, tmp_path)
        outcome, messages = run(job_on(good, tmp_path), fleet, tmp_path, choice, on_message=let_fail)
    assert outcome.exit_code == 0, outcome
    notes = [note.text for note in messages.of(Note) if "continuing without c" in note.text]
    assert len(notes) == 1
    assert "/nowhere/at all" in notes[0]


def test_a_host_that_was_lost_is_not_asked_what_its_tasks_have_written():
    h1, h2 = host("h1"), host("h2")
    with connect((h1, h2), POLICY) as fleet:
        os.killpg(fleet.channels[h2].process.pid, signal.SIGKILL)
        wait_for_message(fleet.inbox, AgentLost)
        started_at = time.monotonic()
        assert list(written_in_copies(fleet)) == []
        assert time.monotonic() - started_at < WRITTEN_S
        assert h1 not in fleet.lost
