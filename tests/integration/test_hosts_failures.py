"""Failures on real hosts: one message with host and fix within 15 s, and no process left behind."""

import json
import os
import re
import shlex
import signal
import sysconfig
from pathlib import Path

import pytest

from .launcher import CLEAN_S, make_python

OWN = ("--strategy", "multiworker", "--hosts", "h1,h2")
PORT = 23456
REFUSED = (2, 69)
SLEEPER = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print('up', flush=True)\n"
    "time.sleep(600)\n"
)
"""A task with a child that has left its process group."""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
"""A task that ignores SIGTERM, and so does its child."""


def refused(done, *words):
    """Assert that a launch failed with one message in time, before any task was started."""
    assert done.code in REFUSED, done.err
    assert done.seconds < 15
    assert "Traceback" not in done.out + done.err
    before, _, message = done.err.partition("tfdist: ")
    assert before == "" or before.startswith("connecting to ")
    assert "\ntfdist: " not in message
    for word in words:
        assert word in message
    assert "worker-" not in done.out


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("h1,gone", ["gone: the host does not answer", "check that it is up", "ssh -v gone"]),
        ("h1,changed", ["changed: the host key differs", "ssh-keygen -R"]),
        ("h1,unknown", ["unknown: the host key is unknown", "run 'ssh unknown' once"]),
        ("h1,nobody-here@h2", ["h2: login denied for nobody-here", "ssh-copy-id nobody-here@h2", "--ssh"]),
        ("h1,no-such-name.invalid", ["no-such-name.invalid: the name cannot be resolved", "~/.ssh/config"]),
    ],
    ids=["down", "key-changed", "key-unknown", "user", "name"],
)
def test_a_host_that_cannot_be_connected(hosts, words, launcher):
    done = launcher.run("--strategy", "multiworker", "--hosts", hosts, "--", "python", "-c", "pass", "--quiet")
    refused(done, *words)


def test_all_hosts_that_fail_are_named(launcher):
    done = launcher.run("--strategy", "multiworker", "--hosts", "h1,gone,nobody@h2,unknown", "--", "true")
    refused(done, "gone: ", "h2: login denied for nobody", "unknown: ")
    assert "h1: " not in done.err


def test_a_closed_ssh_port(launcher):
    refused(
        launcher.run(*OWN, "--ssh", f"{shlex.quote(str(launcher.net.ssh))} -p 2222", "--", "true"),
        "h1: nothing listens",
        "h2: nothing",
        "ssh -p PORT",
    )


def test_a_missing_ssh_client(launcher):
    refused(launcher.run(*OWN, "--ssh", "/nowhere/ssh", "--", "true"), "--ssh /nowhere/ssh", "install")


@pytest.mark.parametrize("command", [["--preset", "smoke"], ["--", "true"]], ids=["training", "own"])
def test_a_missing_python(command, launcher):
    hostfile = launcher.script("h1\nh2 python=/nowhere/python3\n", "hosts.txt")
    done = launcher.run("--strategy", "multiworker", "--hostfile", hostfile, *command)
    refused(done, "h2: ", "/nowhere/python3", "not found", "--python")


def test_a_missing_folder(launcher):
    refused(
        launcher.run(*OWN, "--chdir", "/nowhere/at all", "--", "true"), "h1, h2: the folder /nowhere/at all", "--chdir"
    )


def test_a_host_without_tensorflow(launcher, tmp_path):
    python = make_python(tmp_path / "empty", ["*"])
    hostfile = launcher.script(f"h1\nh2 python={python}\n", "hosts.txt")
    done = launcher.run("--strategy", "multiworker", "--hostfile", hostfile, "--preset", "smoke")
    refused(done, f"h2: {python} has no tensorflow", "install", "--python")
    assert "h1: " not in done.err


def test_a_host_with_another_tensorflow(launcher, tmp_path):
    python = make_python(tmp_path / "older", ["*tfdist*", "tensorflow-*.dist-info"])
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "older")}))
    (packages / "tensorflow-2.19.1.dist-info").mkdir()
    hostfile = launcher.script(f"h1\nh2 python={python}\n", "hosts.txt")
    done = launcher.run("--strategy", "multiworker", "--hostfile", hostfile, "--preset", "smoke")
    refused(done, "tensorflow differs between hosts", "h2 has 2.19.1", "install the same")


def test_a_blocked_port_is_named_with_both_ends(launcher, net):
    one, other = net.hosts
    with other.block_port(PORT, source=one):
        done = launcher.run(*OWN, "--port", str(PORT), "--", "true")
    refused(done, f"h1 cannot reach worker-1 on h2 at {other.address}:{PORT} (timed out)", "firewall", "--port")
    assert "h2 cannot reach" not in done.err
    assert launcher.run(*OWN, "--port", str(PORT), "--", "true").code == 0


def test_a_busy_port(launcher, net):
    with net.hosts[1].listening(PORT):
        refused(
            launcher.run(*OWN, "--port", str(PORT), "--", "true"),
            f"h2: port {PORT} cannot be used",
            "in use",
            "another --port",
        )


def test_the_address_of_another_machine(launcher, net):
    hostfile = launcher.script(f"h1\nh2 addr={net.hosts[0].address}\n", "hosts.txt")
    done = launcher.run("--strategy", "multiworker", "--hostfile", hostfile, "--", "true")
    refused(done, "worker-1 on h2", "refused", "addr=")


def start_tasks(launcher, program=SLEEPER, *options):
    """A launch with two running tasks."""
    process = launcher.start(*OWN, *options, "--python", str(launcher.python), "--", "python", launcher.script(program))
    waited_for = {"[worker-0] up\n", "[worker-1] up\n"}
    while waited_for:
        line = process.stdout.readline()
        assert line, process.stderr.read()  # at the end of the stream
        waited_for.discard(line)
    assert len(launcher.net.processes()) >= 8  # on each host an agent, a task, its child; here a launcher, two ssh
    return process


def test_a_killed_launcher_leaves_nothing_behind(launcher):
    process = start_tasks(launcher, STUBBORN)
    process.kill()
    assert launcher.left_over() == []


@pytest.mark.thorough  # the launcher's time limit of an agent
def test_a_cut_link_ends_the_job_on_both_hosts(launcher, net):
    process = start_tasks(launcher, STUBBORN, "--launcher-timeout", "8")
    with net.hosts[1].down():  # 10 s until the host counts as lost, then the end of the tasks, which ignore SIGTERM
        assert launcher.left_over(10 + CLEAN_S) == []
        _, err = process.communicate(timeout=1)
    assert process.returncode == 69
    assert "tfdist: lost the agent on h2: no message for 10 s" in err
    assert "Traceback" not in err


def test_a_broken_connection_ends_the_job_on_all_hosts(launcher, net):
    process = start_tasks(launcher)
    (ssh,) = [line.split(": ")[1] for line in net.processes() if "ssh -F" in line and " -- h2 " in line]
    os.kill(int(ssh), signal.SIGKILL)
    _, err = process.communicate(timeout=CLEAN_S)
    assert process.returncode == 69
    assert "tfdist: lost the agent on h2" in err
    assert "Traceback" not in err
    assert launcher.left_over() == []


def test_ctrl_c_ends_the_job_on_all_hosts(launcher):
    process = start_tasks(launcher)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=CLEAN_S)
    assert process.returncode == 130
    assert "interrupted by SIGINT" in err
    assert launcher.left_over() == []


def test_a_failed_task_is_named_and_the_other_one_is_stopped(launcher):
    script = launcher.script(
        "import json, os, sys, time\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "sys.exit('failed on purpose') if index else time.sleep(600)\n"
    )
    done = launcher.run(*OWN, "--json", "--", "python", script)
    assert done.code == 1
    assert done.seconds < CLEAN_S
    assert "tfdist: worker-1 exited with code 1 on h2" in done.err
    assert "[worker-1] failed on purpose\n" in done.err  # just printed, so not repeated below
    report = json.loads(done.out.splitlines()[-1])
    assert (report["culprit"], report["casualties"]) == ("worker-1", {"worker-0": "stopped by tfdist on h1"})


def test_a_program_that_is_not_executable(launcher):
    here = launcher.script("#!/bin/sh\nexit 0\n", "program")
    done = launcher.run(*OWN, "--", here)
    assert done.code == 127
    assert re.search(
        r"tfdist: worker-[01] (and worker-[01] could not be started|could not be started on h[12]): ", done.err
    )
    assert "Permission denied" in done.err
    assert "Traceback" not in done.err
