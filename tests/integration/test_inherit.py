"""Launchers that each run one task of a cluster, as a scheduler starts them; here all on one machine."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.waiting import wait_until
from tfdist.launch.agent_program.system import listening_ports

TRAINING = (
    "--model", "tiny", "--dataset", "digits", "--batch-size", "8", "--image-size", "32", "--set", "steps_per_window=3",
    "--steps", "24", "--set", "warmup_steps=2", "--checkpoint-every", "6", "--checkpoint-dir", "ckpt", "--resume", "auto",
)  # fmt: skip


def port_of(address: str) -> int:
    """The port of `host:port`."""
    return int(address.partition(":")[2])


class Launchers:
    """Starts `tfdist launch --inherit auto` for tasks of a cluster."""

    def __init__(self, folder: Path, cluster: dict[str, list[str]]) -> None:
        self.folder, self.cluster = folder, cluster
        self.started: list[subprocess.Popen[str]] = []

    def start(self, role: str, index: int, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        """Start the launcher of one task."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_"))}
        config = json.dumps({"cluster": self.cluster, "task": {"type": role, "index": index}})
        name = f"{role}-{index}"
        process = subprocess.Popen(
            [sys.executable, "-m", "tfdist.cli", "launch", "--inherit", "auto", "--name", name, *arguments],
            cwd=self.folder,
            env={**inherited, "TF_CONFIG": config, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start_all(self, *arguments: str, **env: str) -> dict[str, "subprocess.Popen[str]"]:
        """Start the launchers of all tasks, by task."""
        tasks = [(role, index) for role, hosts in self.cluster.items() for index in range(len(hosts))]
        return {f"{role}-{index}": self.start(role, index, *arguments, **env) for role, index in tasks}


@pytest.fixture
def launchers(tmp_path: Path, survivors: Callable[[], list[str]]) -> Iterator[Callable[..., Launchers]]:
    """Creates the launchers of a cluster; those that a failed test leaves are killed. No process may be left over."""
    created: list[Launchers] = []

    def create(**roles: int) -> Launchers:
        free = iter([f"localhost:{port}" for port in free_ports(sum(roles.values()))])
        cluster = {role: [next(free) for _ in range(count)] for role, count in roles.items()}
        created.append(Launchers(tmp_path, cluster))
        return created[-1]

    yield create
    for process in (process for each in created for process in each.started):
        process.kill()
        process.communicate()
    wait_until(lambda: survivors() == [], 15)


def ended(process: "subprocess.Popen[str]", seconds: float = 60.0) -> tuple[int, str]:
    """Exit code and output."""
    out, _ = process.communicate(timeout=seconds)
    return process.returncode, out


def test_each_launcher_ends_with_the_code_of_its_program(launchers):
    three = launchers(worker=3)
    codes = {0: 0, 1: 42, 2: 3}
    running = [three.start("worker", index, "--", "sh", "-c", f"exit {code}") for index, code in codes.items()]
    results = [ended(process) for process in running]
    assert [code for code, _ in results] == [0, 42, 3], results


def test_no_task_starts_before_all_are_there(launchers, tmp_path):
    three = launchers(worker=3)
    program = ("--", "sh", "-c", "touch started-$TFDIST_TASK")
    early = [three.start("worker", index, *program) for index in (0, 1)]
    wait_until(lambda: port_of(three.cluster["worker"][0]) in listening_ports())
    assert list(tmp_path.glob("started-*")) == []
    last = three.start("worker", 2, *program)
    wait_until(lambda: list(tmp_path.glob("runs/*-worker-2")))  # it has planned its task, and meets the others
    for process in (*early, last):
        code, out = ended(process)
        assert code == 0, out
    assert sorted(path.name for path in tmp_path.glob("started-*")) == [f"started-worker-{n}" for n in range(3)]


def test_no_task_starts_if_one_cannot_publish_its_figures(launchers, tmp_path):
    two = launchers(worker=2)
    with socket.create_server(("127.0.0.1", 0)) as used:
        metrics = ("--metrics", f"127.0.0.1:{used.getsockname()[1]}")
        first = two.start("worker", 0, *metrics, "--", "touch", "started")
        second = two.start("worker", 1, "--", "touch", "started")
        code, out = ended(first)
        assert code == 2, out
        assert "Address already in use; choose another address" in out
        code, out = ended(second)
    assert code == 75, out
    assert "choose another address (says worker-0)" in out
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("index", [0, 1])
def test_what_the_checks_before_the_start_find_is_told_to_all_tasks(index, launchers, tmp_path):
    two = launchers(worker=2)
    (tmp_path / "file").touch()
    folder = ("--checkpoint-dir", str(tmp_path / "file" / "ck"))
    refused = two.start("worker", index, *folder, "--", "touch", "started")
    waits = two.start("worker", 1 - index, "--", "touch", "started")
    code, reason = ended(refused)
    assert code == 2, reason
    assert "Not a directory" in reason
    code, out = ended(waits)
    assert code == 75, out
    assert f"(says worker-{index})" in out
    assert not (tmp_path / "started").exists()


def test_missing_tasks_are_named_and_nothing_starts(launchers, tmp_path):
    three = launchers(worker=3)
    options = ("--start-timeout", "3", "--", "touch", "started")
    for process in [three.start("worker", index, *options) for index in (0, 1)]:
        code, out = ended(process)
        assert code == 75, out
        assert "still missing after --start-timeout 3 s: worker-2" in out
    assert not (tmp_path / "started").exists()
    outcomes = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/outcome.json")]
    assert [(each["status"], each["exit_code"]) for each in outcomes] == [("refused", 75)] * 2


def test_sigterm_ends_the_wait(launchers, tmp_path):
    two = launchers(worker=2)
    process = two.start("worker", 0, "--", "true", TFDIST_TERMINATION_LOG=str(tmp_path / "log"))
    wait_until(lambda: port_of(two.cluster["worker"][0]) in listening_ports())
    process.send_signal(signal.SIGTERM)
    code, out = ended(process)
    assert (code, out.splitlines()[-1]) == (143, "tfdist: interrupted before any task was started")
    assert (tmp_path / "log").read_text() == "exit code 143: interrupted before any task was started"


def saved_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints."""
    return sorted(int(path.stem.removeprefix("step-")) for path in (folder / "ckpt").glob("step-*.json"))


@pytest.mark.thorough
def test_a_job_that_is_restarted_continues_from_its_checkpoint(launchers, tmp_path):
    two = launchers(chief=1, worker=1)
    first = two.start_all(*TRAINING, "--steps", "100000", TFDIST_ATTEMPT="0")
    wait_until(lambda: len(saved_steps(tmp_path)) > 1, 200)
    first["worker-0"].kill()  # its agent ends the task with SIGTERM, on which all tasks save
    code, out = ended(first["chief-0"], 200)
    assert code == 42, out
    ended(first["worker-0"])
    last = saved_steps(tmp_path)[-1]
    again = two.start_all(*TRAINING, "--steps", str(last + 12), TFDIST_ATTEMPT="1")
    results = {task: ended(process, 200) for task, process in again.items()}
    assert {task: code for task, (code, _) in results.items()} == {"chief-0": 0, "worker-0": 0}, results
    assert saved_steps(tmp_path)[-1] == last + 12
    (events,) = [path for path in tmp_path.glob("runs/*-chief-0*/events.jsonl") if '"resumed"' in path.read_text()]
    resumed = [json.loads(line) for line in events.read_text().splitlines() if '"resumed"' in line]
    assert [each["event"]["step"] for each in resumed] == [last]


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["parameter-server", "between-graph"])
def test_parameter_servers_train_under_launchers_of_their_own(strategy, launchers, tmp_path):
    job = launchers(chief=1, worker=1, ps=1)
    options = (*TRAINING, "--strategy", strategy)
    chief = job.start("chief", 0, *options)
    servers = [job.start(role, 0, *options, "--stall-timeout", "1") for role in ("worker", "ps")]
    code, out = ended(chief, 200)
    assert code == 0, out
    assert saved_steps(tmp_path)[-1] == 24
    for server in servers:
        assert server.poll() is None  # it serves until its scheduler stops it
        server.send_signal(signal.SIGTERM)
        code, out = ended(server)
        assert code == 143, out
        assert "stacks" not in out


LATE = """\
import os, time
if os.environ.get("TFDIST_TASK") == "worker-1":
    from tfdist.launch import events
    emit = events.emit
    def late(event, **values):
        emit(event, **values)
        while event == "record" and not os.path.exists("go"):
            time.sleep(0.05)
    events.emit = late
"""


def has_trained(folder: Path, task: str) -> bool:
    """Whether the launcher of this task has its record."""
    return any('"record"' in path.read_text() for path in folder.glob(f"runs/*-{task}/events.jsonl"))


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [False, True])
def test_a_worker_waits_for_the_others_before_it_exits(lost, launchers, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LATE)
    running = launchers(worker=2).start_all(*TRAINING, PYTHONPATH=str(tmp_path))
    wait_until(lambda: all(has_trained(tmp_path, task) for task in running), 200)
    with pytest.raises(subprocess.TimeoutExpired):
        running["worker-0"].wait(2.0)
    if lost:
        running["worker-1"].kill()
    else:
        (tmp_path / "go").touch()
    codes = {task: ended(process) for task, process in running.items()}
    assert {task: code for task, (code, _) in codes.items()} == {"worker-0": 0, "worker-1": -9 if lost else 0}, codes
