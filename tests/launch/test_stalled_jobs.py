"""Stalls and bad losses of real agents and processes. Their programs are plain Python."""

import json
import sys
from dataclasses import replace

import pytest

from tfdist.launch.agents.inbox import Note
from tfdist.launch.agents.messages import Event
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import local_machines

from .jobs import QUICK, roles, run

pytestmark = pytest.mark.slow

HEAD = """\
import json, os, sys, time
from tfdist.launch.events import emit
from tfdist.launch.events import dump_on_request
task = os.environ["TFDIST_TASK"]
dump_on_request()
"""
HANG = """
def load():
    while True:
        time.sleep(600)

for step in (1, 2, 3):
    emit("step", step=step)
load() if task == "worker-1" else emit("step", step=4)
while True:
    time.sleep(600)
"""
STALL = replace(QUICK, stall_timeout_s=1.5)


def job_of(tmp_path, program, counts, **shape):
    """A job whose tasks run this program from a file."""
    (tmp_path / "train.py").write_text(HEAD + program)
    program = Program((sys.executable, str(tmp_path / "train.py")), {}, str(tmp_path))
    return plan_job(Shape(roles(**counts), has_cluster=False, **shape), program, local_machines())


def notes(messages):
    return [note.text for note in messages.of(Note)]


def test_a_job_that_takes_no_more_steps_is_warned_of_and_stopped(tmp_path, survivors):
    outcome, messages = run(job_of(tmp_path, HANG, {"worker": 2}), tmp_path / "run", STALL)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 76)
    assert outcome.reason == "no step for 1.5 s: worker-1 is behind (step 3, the other 4)"
    assert outcome.culprits == ("worker-1",)
    assert outcome.casualties == {"worker-0": "stopped by tfdist"}
    assert [note for note in notes(messages) if note.startswith("no step for")] == [
        "no step for 1.5 s (worker-0 at step 4, worker-1 at step 3); "
        "the stacks of all tasks are saved in stacks.txt, beside their logs"
    ]
    text = (tmp_path / "run/attempt-0/worker-1/stacks.txt").read_text()
    assert 'train.py", line 9 in load' in text
    assert (tmp_path / "run/attempt-0/worker-0/stacks.txt").stat().st_size
    assert '  File "' in "".join(outcome.log)
    assert "load" in "".join(outcome.log)
    assert survivors() == []
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert kinds.index("Note") < kinds.index("StacksDumped") < kinds.index("Stopped")


def test_the_stall_of_a_single_task_names_its_place(tmp_path):
    outcome, _ = run(job_of(tmp_path, "task = 'worker-1'" + HANG, {"worker": 1}), tmp_path / "run", STALL)
    assert outcome.reason == "no step for 1.5 s: worker-0 is in load() at train.py:9"
    assert outcome.exit_code == 76


def test_a_program_without_steps_is_only_warned_of(tmp_path):
    stacks = tmp_path / "run/attempt-0/worker-0/stacks.txt"
    program = f"while not os.path.exists({str(stacks)!r}): time.sleep(0.05)\n"
    outcome, messages = run(job_of(tmp_path, program, {"worker": 1}), tmp_path / "run", STALL)
    assert outcome.exit_code == 0
    (note,) = notes(messages)
    assert note.startswith("no output or event for 1.5 s; the stacks of all tasks are saved")
    assert "train.py" in stacks.read_text()


def test_a_silent_server_of_another_launchers_job_is_left_alone(tmp_path):
    job = replace(job_of(tmp_path, "time.sleep(1.5)\n", {"worker": 1}), led_elsewhere=True)
    outcome, messages = run(job, tmp_path / "run", replace(QUICK, stall_timeout_s=0.2))
    assert (outcome.exit_code, notes(messages)) == (0, [])
    assert list(tmp_path.rglob("stacks.txt")) == []


def test_a_task_of_another_launchers_job_that_reports_steps_is_watched(tmp_path):
    job = replace(job_of(tmp_path, HANG, {"worker": 1}), led_elsewhere=True)
    outcome, _ = run(job, tmp_path / "run", STALL)
    assert (outcome.exit_code, outcome.culprits) == (76, ("worker-0",))


def test_a_stalled_job_is_restarted(tmp_path):
    program = "if os.environ['TFDIST_ATTEMPT'] == '1':\n    emit('step', step=5)\n    sys.exit()" + HANG
    job = job_of(tmp_path, program, {"worker": 2})
    job = replace(job, roles={"worker": replace(job.roles["worker"], restarts=("worker",))})
    outcome, _ = run(job, tmp_path / "run", replace(STALL, max_restarts=1))
    assert outcome.exit_code == 0
    first, second = outcome.attempts
    assert (first.exit_code, first.culprit, first.last_step) == (76, "worker-1", 4)
    assert (second.exit_code, second.last_step) == (0, 5)
    folders = [path.parent.relative_to(tmp_path / "run") for path in sorted(tmp_path.rglob("stacks.txt"))]
    assert list(map(str, folders)) == ["attempt-0/worker-0", "attempt-0/worker-1"]


@pytest.mark.parametrize("stops", [True, False])
def test_a_loss_that_is_not_finite(tmp_path, stops):
    program = "emit('step', step=119, loss=1.0)\nemit('step', step=120, loss=float('nan'))\n" + (
        "time.sleep(600)" if stops else "emit('step', step=121, loss=float('inf'))"
    )
    policy = replace(QUICK, stop_on_nan=stops, max_restarts=2)
    outcome, messages = run(job_of(tmp_path, program, {"worker": 1}), tmp_path / "run", policy)
    if stops:
        assert (outcome.exit_code, outcome.reason) == (1, "loss of worker-0 is nan at step 120")
        assert (outcome.culprit, len(outcome.attempts)) == ("worker-0", 1)
        assert outcome.not_restarted == "--set stop_on_nan=true ends the run"
    else:
        assert outcome.exit_code == 0
        (note,) = notes(messages)
        assert note == "loss of worker-0 is nan at step 120; the training continues (--set stop_on_nan=true stops it)"
        assert len(messages.of(Event)) == 4
