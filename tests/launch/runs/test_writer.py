import errno
import json
import os
import resource
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launch.jobs import roles
from tfdist.launch.agents.inbox import Restarting
from tfdist.launch.agents.messages import Event, Heartbeat, Inspected, Output, Started
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.runs import writer as writer_module
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import tasks_of
from tfdist.launch.runs.writer import RunWriter, save_plan


def test_output_goes_to_the_tasks_log_and_other_messages_to_events(tmp_path):
    run_dir = RunDir(tmp_path)
    with RunWriter(run_dir) as logs:
        for message in (
            Started("worker-0", 7, 1.0),
            Output("worker-0", "stderr", "caf\udcff\n"),
            Heartbeat(1.0),
            Inspected({}, {}, {}),
        ):
            logs.write(message)
    assert run_dir.log("worker-0", "stderr").read_bytes() == b"caf\xff\n"
    (event,) = run_dir.events.read_text().splitlines()
    assert json.loads(event) == {
        "format": 1,
        "kind": "Started",
        "task": "worker-0",
        "attempt": 0,
        "pid": 7,
        "time": 1.0,
    }


def test_a_loss_that_is_nan_is_null_in_the_events(tmp_path):
    with RunWriter(RunDir(tmp_path)) as logs:
        logs.write(Event("worker-0", 1.0, {"event": "step", "loss": float("nan")}))
    assert '"loss": null' in RunDir(tmp_path).events.read_text()


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A run whose disk has no space for what holds the word "lost"."""
    write = os.write

    def write_unless_lost(descriptor, data):
        if b"lost" in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", write_unless_lost)
    return RunDir(tmp_path / "run")


def test_a_full_disk_is_one_warning_that_names_the_file(full):
    warnings = []
    with RunWriter(full, warnings.append) as writer:
        for _ in range(3):
            writer.write(Output("worker-0", "stdout", "lost\n"))
        writer.write(Output("worker-1", "stdout", "kept\n"))
        writer.save_outcome({"status": "ok"})
    (warning,) = warnings
    assert warning.startswith(f"cannot write {full.log('worker-0', 'stdout')} (No space left on device)")
    assert full.log("worker-1", "stdout").read_text() == "kept\n"
    assert json.loads(full.outcome.read_text()) == {"status": "ok"}
    assert not list(full.path.glob(".*"))


def test_writing_is_tried_again_and_the_gap_is_marked(full, monkeypatch):
    monkeypatch.setattr(writer_module, "RETRY_S", 0.0)
    log = full.log("worker-0", "stdout")
    with RunWriter(full) as writer:
        writer.write(Output("worker-0", "stdout", "lost\n"))
        writer.write(Output("worker-0", "stdout", "kept\n"))
    assert log.read_text() == "\n[tfdist: 5 bytes could not be written here]\nkept\n"


def test_between_two_attempts_nothing_is_written(full, monkeypatch):
    monkeypatch.setattr(writer_module, "RETRY_S", 1000.0)
    log = full.log("worker-0", "stdout")
    with RunWriter(full) as writer:
        writer.write(Output("worker-0", "stdout", "lost\n"))
        writer.write(Output("worker-0", "stdout", "small enough\n"))
    assert log.read_bytes() == b""


def test_a_deleted_run_folder_gets_its_outcome(tmp_path):
    run_dir = RunDir(tmp_path / "run")
    with RunWriter(run_dir) as writer:
        writer.write(Output("worker-0", "stdout", "x\n"))
        shutil.rmtree(run_dir.path)
        writer.save_outcome({"status": "ok"})
    assert json.loads(run_dir.outcome.read_text()) == {"status": "ok"}


def test_a_run_folder_that_is_gone_for_good_costs_no_file_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs, other, warnings = tmp_path / "runs", tmp_path / ".reserved", []
    other.touch()
    with RunWriter(RunDir(runs / "run"), warnings.append) as writer:
        shutil.rmtree(runs)
        runs.touch()
        writer.save_outcome({"status": "ok"})
    assert len(warnings) == 1
    assert other.exists()


def test_the_files_of_earlier_attempts_do_not_stay_open(tmp_path):
    run_dir = RunDir(tmp_path)
    with RunWriter(run_dir) as logs:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for attempt in range(1, 21):
            logs.write(Restarting(attempt, ("worker-0",), True, "it failed"))
            logs.write(Output("worker-0", "stdout", "late\n", attempt=attempt - 1))
            logs.write(Output("worker-0", "stdout", "new\n", attempt=attempt))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3
    assert run_dir.log("worker-0", "stdout", 7).read_text() == "new\nlate\n"
    assert len(run_dir.events.read_text().splitlines()) == 20


def test_a_log_ends_at_the_limit_and_says_so(tmp_path):
    run_dir, warned = RunDir(tmp_path), []
    with RunWriter(run_dir, warned.append, limit=100) as writer:
        for _ in range(1000):
            writer.write(Output("worker-0", "stdout", "x" * 39 + "\n"))
        writer.write(Output("worker-0", "stderr", "short\n"))
        assert writer.warnings == (
            "attempt-0/worker-0/stdout.log: cut at log_limit, 100 bytes; allow more with --set log_limit=100G",
        )
    lines = run_dir.log("worker-0", "stdout").read_text().splitlines()
    assert lines == ["x" * 39, "x" * 39, "", "[tfdist: cut at log_limit, 100 bytes]"]
    assert run_dir.log("worker-0", "stderr").read_text() == "short\n"
    assert warned == list(writer.warnings)


def test_the_events_end_at_the_limit_with_a_note(tmp_path):
    with RunWriter(RunDir(tmp_path), limit=1000) as writer:
        for number in range(1000):
            writer.write(Event("worker-0", 1.0, {"event": "step", "step": number}))
    *steps, note = map(json.loads, RunDir(tmp_path).events.read_text().splitlines())
    assert [step["event"]["step"] for step in steps] == list(range(len(steps)))
    text = "events.jsonl: cut at log_limit, 1,000 bytes"
    assert note == {"format": 1, "kind": "Note", "host": "tfdist", "text": text}
    assert 900 < RunDir(tmp_path).events.stat().st_size < 1200


def test_the_limit_counts_what_was_written_before_the_file_was_opened_again(tmp_path):
    log = RunDir(tmp_path).log("worker-0", "stdout")
    with RunWriter(RunDir(tmp_path), limit=100) as writer:
        for attempt in range(1, 20):
            writer.write(Output("worker-0", "stdout", "x" * 29 + "\n"))
            writer.write(Restarting(attempt, ("worker-0",), True, "it failed"))
    assert log.read_text().count("x\n") == 3
    assert log.read_text().count("cut at log_limit") == 1


def test_many_cut_logs_are_one_warning_of_the_outcome(tmp_path):
    with RunWriter(RunDir(tmp_path), limit=10) as writer:
        for number in range(6):
            writer.write(Output(f"worker-{number}", "stdout", "x" * 20))
    (warning,) = writer.warnings
    assert warning.startswith("attempt-0/worker-0/stdout.log, ")
    assert "and 2 more: cut at log_limit, 10 bytes" in warning


# --- folders that others may write to


def test_a_folder_that_is_exchanged_for_a_link_changes_no_other_file(tmp_path):
    run_dir, elsewhere = RunDir(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    with RunWriter(run_dir, pytest.fail) as writer:
        run_dir.path.rename(tmp_path / "moved")
        run_dir.path.symlink_to(elsewhere)
        writer.write(Output("worker-0", "stdout", "x\n"))
        writer.write(Started("worker-0", 7, 1.0))
        writer.save(run_dir.records, {})
        writer.save_text(run_dir.commands, "tfdist launch\n")
        writer.save_outcome({"status": "ok"})
    assert list(elsewhere.iterdir()) == []
    moved = RunDir(tmp_path / "moved")
    assert moved.log("worker-0", "stdout").read_text() == "x\n"
    assert json.loads(moved.outcome.read_text()) == {"status": "ok"}
    assert moved.events.exists()
    assert moved.commands.exists()


@pytest.mark.parametrize("name", ["events.jsonl", "outcome.json", "commands.txt", ".reserved"])
def test_a_link_in_place_of_a_file_is_not_followed(name, tmp_path):
    run_dir, victim = RunDir(tmp_path / "run"), tmp_path / "victim"
    victim.write_text("kept")
    run_dir.path.mkdir()
    (run_dir.path / name).symlink_to(victim)
    with RunWriter(run_dir) as writer:
        writer.write(Started("worker-0", 7, 1.0))
        writer.save_text(run_dir.commands, "tfdist launch\n")
        writer.save_outcome({"status": "ok"})
    assert victim.read_text() == "kept"


def test_a_link_in_place_of_the_folder_is_refused(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run").symlink_to(elsewhere)
    with pytest.raises(OSError, match="run"), RunWriter(RunDir(tmp_path / "run")):
        pytest.fail("opened")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_refused(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    os.chown(path, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to another user"), RunWriter(RunDir(path)):
        pytest.fail("opened")


def test_the_outcome_is_written_when_no_descriptor_is_left(tmp_path):
    run_dir, taken, warnings = RunDir(tmp_path / "run"), [], []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RunWriter(run_dir, warnings.append) as writer:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            writer.save_outcome({"status": "failed"})
            writer.save_outcome({"status": "ok"})  # as when its record is read
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert json.loads(run_dir.outcome.read_text()) == {"status": "ok"}
    assert warnings == []


def plan(workers, ps=1):
    """A job of which each task is on a host of its own, whose program gets the cluster by flags, too."""
    machines = {Host(f"node-{number:04}", f"10.0.{number >> 8}.{number & 255}"): Machine((0,), (), slots=1)
                for number in range(workers)}  # fmt: skip
    program = Program(("train.py", "--task={index}", "--workers={worker_hosts}"), {"TFDIST_SPEC": "x" * 500}, "/")
    job = plan_job(Shape(roles(worker=workers, ps=ps), has_cluster=True), program, machines)
    return job.with_ports({plan.task.name: 5000 + plan.task.index for plan in job.plans})


def test_the_plan_of_a_run_has_the_addresses_of_the_cluster_once(tmp_path):
    job = plan(workers=3)
    with RunWriter(run_dir := RunDir(tmp_path)) as writer:
        save_plan(job, {}, writer)
    saved = json.loads(run_dir.cluster.read_text())
    assert [(task["task"], task["host"]) for task in saved["tasks"]] == list(tasks_of(run_dir).items())
    for task, planned in zip(saved["tasks"], job.plans, strict=True):
        role, _, index = task["task"].rpartition("-")
        tf_config = json.dumps({"cluster": saved["cluster"], "task": {"type": role, "index": int(index)}})
        assert {**saved["env"], **task["env"], "TF_CONFIG": tf_config} == job.environment(planned)
        command = task["command"].replace("{worker_hosts}", job.host_lists["{worker_hosts}"])
        assert tuple(shlex.split(command)) == job.command(planned)
    commands = run_dir.commands.read_text().splitlines()
    assert commands[1] == "{worker_hosts}: 10.0.0.0:5000,10.0.0.1:5001,10.0.0.2:5002"
    assert commands[2] == "worker-0: train.py --task=0 '--workers={worker_hosts}'"


def test_the_plan_of_a_run_grows_linearly_with_its_tasks(tmp_path):
    sizes = []
    for number in (100, 400):
        with RunWriter(run_dir := RunDir(tmp_path / str(number))) as writer:
            save_plan(plan(number), {}, writer)
        sizes.append((run_dir.cluster.stat().st_size, run_dir.commands.stat().st_size))
    for few, many in zip(*sizes, strict=True):
        assert many < 4.2 * few  # with four times as many tasks
