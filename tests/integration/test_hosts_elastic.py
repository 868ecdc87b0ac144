"""Hosts that are lost during a run, come back, or are added: with small programs on three hosts."""

import json
import os
import signal
import threading
import time
from queue import Empty, Queue

import psutil
import pytest

from .conftest import hosts_fixture

pytestmark = pytest.mark.thorough

PROGRAM = """
import json, os, sys, time
attempt = os.environ["TFDIST_ATTEMPT"]
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
sizes = " ".join(f"{len(hosts)} {role}" for role, hosts in sorted(cluster.items()))
print("attempt", attempt, "with", sizes, flush=True)
while not os.path.exists(sys.argv[1] + attempt):
    time.sleep(0.05)
"""
"""Prints its cluster, and exits once the file of its attempt exists."""
MULTI = ("--strategy", "multiworker", "--max-restarts", "2")
net = hosts_fixture(3, "module")


class Run:
    """A launch whose lines on stdout and stderr are read in threads."""

    def __init__(self, launcher, *options, command=None):
        self.launcher, self.folder = launcher, launcher.folder
        if command is None:
            command = ("--", "python", launcher.script(PROGRAM), f"{launcher.folder}/end-")
        self.process = launcher.start("--python", str(launcher.python), *options, *command)
        self.lines, self.seen = Queue(), []
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self.lines.put(line)

    def wait_for(self, *texts, seconds=60.0):
        """Read on until every text was in a line."""
        left = [text for text in texts if not any(text in line for line in self.seen)]
        while left:
            try:
                self.seen.append(self.lines.get(timeout=seconds))
            except Empty:
                raise AssertionError(f"no line with {left} within {seconds:g} s in:\n{''.join(self.seen)}") from None
            left = [text for text in left if text not in self.seen[-1]]

    def wait_for_start(self, attempt, workers):
        self.wait_for(*(f"[worker-{n}] attempt {attempt} with" for n in range(workers)))
        assert f"attempt {attempt} with {workers} worker\n" in "".join(self.seen)

    def end(self, attempt, seconds=40.0):
        """Let all tasks of the attempt exit with 0; the exit code of the launch."""
        (self.folder / f"end-{attempt}").touch()
        return self.process.wait(seconds)

    def kill_agent(self, host):
        """Kill the agent of a host, and leave the process that cleans up after it."""
        agents = [
            int(line.split(": ")[1])
            for line in self.launcher.net.processes()
            if line.startswith(f"{host.namespace}: ") and "agent_program.loader" in line
        ]
        (agent,) = (pid for pid in agents if psutil.Process(pid).ppid() in agents)
        os.kill(agent, signal.SIGKILL)

    def hosts(self):
        """The host of each task in the last attempt."""
        return [task["host"] for task in json.loads((self.launcher.run_dir / "cluster.json").read_text())["tasks"]]

    def outcome(self):
        return json.loads((self.launcher.run_dir / "outcome.json").read_text())


@pytest.mark.core
def test_a_killed_agent_is_connected_again_and_all_tasks_restart(launcher, net):
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3")
    run.wait_for_start(0, 3)
    run.kill_agent(net.hosts[1])
    run.wait_for("lost the agent on h2", "restart 1 of 2: all tasks")
    run.wait_for_start(1, 3)
    assert run.end(1) == 0
    attempts = run.outcome()["attempts"]
    assert [attempt["exit_code"] for attempt in attempts] == [69, 0]


def test_a_host_that_is_cut_off_is_left_out(launcher, net):
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3", "--min-workers", "2", "--launcher-timeout", "5")
    run.wait_for_start(0, 3)
    with net.hosts[1].down():
        run.wait_for("2 workers instead of 3 (lost h2)")
        run.wait_for_start(1, 2)
        assert run.end(1) == 0
        assert run.outcome()["attempts"][1]["note"] == "2 workers instead of 3 (lost h2)"
        assert launcher.left_over() == []  # on h2, too


def test_too_few_hosts_end_the_run_with_one_sentence(launcher, net):
    options = ("--min-workers", "3", "--start-timeout", "15", "--launcher-timeout", "5")
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3", *options)
    run.wait_for_start(0, 3)
    with net.hosts[2].down():
        run.wait_for("waiting 15 s for h3", "2 workers fit on h1, h2, but --min-workers is 3\n")
        assert run.process.wait(20) == 69
        assert launcher.left_over() == []
    assert run.outcome()["not_restarted"] == "2 workers fit on h1, h2, but --min-workers is 3"


def test_a_parameter_server_job_continues_without_the_host_of_a_worker(launcher, net):
    options = ("--strategy", "parameter-server", "--max-restarts", "1", "--min-workers", "1")
    run = Run(launcher, *options, "--hosts", "h1,h2,h3", "--launcher-timeout", "5")
    run.wait_for("[chief-0] attempt 0 with 1 chief 1 ps 3 worker", "[worker-2] attempt 0")
    with net.hosts[2].down():
        run.wait_for("2 workers instead of 3 (lost h3)", "[chief-0] attempt 1 with 1 chief 1 ps 2 worker")
        assert run.end(1) == 0
        assert launcher.left_over() == []


def test_a_host_that_comes_back_joins_at_the_next_restart(launcher, net):
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3", "--min-workers", "1")
    run.wait_for_start(0, 3)
    with net.hosts[1].down():
        run.wait_for("2 workers instead of 3 (lost h2)")
        run.wait_for_start(1, 2)
    run.wait_for("[h2] connected; the next restart uses it", seconds=100)
    run.kill_agent(net.hosts[2])
    run.wait_for("2 workers (lost h3, with h2)")
    run.wait_for_start(2, 2)
    assert run.end(2) == 0
    assert run.hosts() == ["h1", "h2"]


def test_hosts_that_are_added_to_the_hostfile_join_and_removed_ones_leave(launcher, net):
    hostfile = launcher.script("h1\nh2\n", "hosts.txt")
    run = Run(launcher, *MULTI, "--hostfile", hostfile, "--min-workers", "1")
    run.wait_for_start(0, 2)
    launcher.script("h2\nh3 slots=2\n", "hosts.txt")
    run.wait_for("[h3] connected; the next restart uses it")
    run.kill_agent(net.hosts[0])
    run.wait_for("3 workers instead of 2 (")
    run.wait_for_start(1, 3)
    assert run.end(1) == 0
    assert run.hosts() == ["h2", "h3", "h3"]


def test_what_still_runs_on_a_host_that_was_cut_off_is_ended_before_it_is_used_again(launcher, net):
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3")
    run.wait_for_start(0, 3)
    with net.hosts[1].down():
        run.wait_for("waiting 60 s for h2")
        old = [line for line in net.processes() if line.startswith(f"{net.hosts[1].namespace}: ")]
        assert any("script.py" in line for line in old)  # its agent has not noticed yet
    run.wait_for_start(1, 3)
    assert not set(old) & set(net.processes())
    assert run.end(1) == 0


def test_a_training_continues_with_fewer_workers_and_trains_the_remaining_examples(launcher, net):
    training = (
        "--preset",
        "smoke",
        "--model",
        "tiny",
        "--batch-size",
        "8",
        "--steps",
        "600",
        "--set",
        "steps_per_window=10",
    )
    options = ("--checkpoint-every", "50", "--checkpoint-dir", f"{launcher.folder}/saved", "--min-workers", "2")
    run = Run(launcher, *MULTI, "--hosts", "h1,h2,h3", *options, *training, command=())
    run.wait_for("step 1/600", seconds=120)
    deadline = time.monotonic() + 60
    while not list((launcher.folder / "saved").glob("*.json")):
        assert time.monotonic() < deadline, "".join(run.seen)
        time.sleep(0.05)
    run.kill_agent(net.hosts[2])
    run.wait_for("2 workers instead of 3 (lost h3): global batch 16 instead of 24")
    assert run.process.wait(120) == 0, "".join(run.seen)
    saved = sorted((launcher.folder / "saved").glob("*.json"))[-1]
    manifest = json.loads(saved.read_text())
    assert manifest["final"]
    assert manifest["examples"] == 600 * 24  # the steps before were of 24 examples, the others of 16
    resumed = run.outcome()["attempts"][1]["resumed_from"]
    assert manifest["step"] == resumed + (600 - resumed) * 24 // 16
    record = json.loads((launcher.run_dir / "records.jsonl").read_text())
    assert (record["status"], record["spec"]["workers"], len(record["ranks"])) == ("ok", 2, 2)
