"""Restarts of real processes."""

import json
import os
import signal
import threading
from dataclasses import replace

import pytest

from tfdist.launch.agents.inbox import Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Started
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.policy import RestartOn
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import read_outcome

from .jobs import QUICK, python_job, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("started_both_ways")]

PREPARE = (
    "import json, os, signal, sys, time\n"
    "emit = lambda event, **e: os.write(int(os.environ['TFDIST_EVENTS_FD']), json.dumps({'event': event, **e}).encode() + b'\\n')\n"
    "task, attempt = os.environ['TFDIST_TASK'], int(os.environ['TFDIST_ATTEMPT'])\n"
    "print(f'{task} in attempt {attempt}', flush=True)\n"
)  # fmt: skip
RESTARTING = replace(QUICK, max_restarts=3, settle_killed_s=0.1)
KILL_WORKER_1_AT_FIRST = "if task == 'worker-1' and attempt == 0: os.kill(os.getpid(), signal.SIGKILL)\n"


def test_all_workers_are_started_again_after_one_was_killed(tmp_path, survivors):
    code = PREPARE + (
        "emit('step', step=5 + attempt)\n" + KILL_WORKER_1_AT_FIRST + "if attempt == 0: time.sleep(600)\n"
        "emit('record', record={'attempt': attempt})\n"
    )
    outcome, messages = run(python_job(code, {"worker": 2}), tmp_path, RESTARTING)
    assert (outcome.status, outcome.exit_code) == (Status.OK, 0)
    assert outcome.records == {"worker-0": {"attempt": 1}, "worker-1": {"attempt": 1}}
    (restarting,) = messages.of(Restarting)
    assert restarting.whole
    assert restarting.reason == "worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: all tasks"
    assert (tmp_path / "attempt-0/worker-1/stdout.log").read_text() == "worker-1 in attempt 0\n"
    assert (tmp_path / "attempt-1/worker-1/stdout.log").read_text() == "worker-1 in attempt 1\n"
    first, second = outcome.attempts
    assert (first.culprit, first.exit_code, first.last_step) == ("worker-1", 137, 5)
    assert (second.reason, second.tasks, second.last_step) == ("", ("worker-0", "worker-1"), 6)
    assert first.started < first.ended < second.started < second.first_step < second.ended
    assert read_outcome(RunDir(tmp_path)).attempts == outcome.attempts
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "Restarting" in kinds
    assert survivors() == []


def test_a_killed_worker_of_a_chief_is_started_again_alone_on_its_port(tmp_path):
    code = PREPARE + (
        "import socket, pathlib\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "if task == 'chief-0':\n"
        "    while not pathlib.Path('FOLDER/again').exists(): time.sleep(0.01)\n"
        "    sys.exit()\n"
        "port = int(config['cluster']['worker'][config['task']['index']].rpartition(':')[2])\n"
        "server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, 15, 1)\n"
        "server.bind(('', port)); server.listen()\n"
        + KILL_WORKER_1_AT_FIRST +
        "if attempt: pathlib.Path('FOLDER/again').touch()\n"
        "time.sleep(600)\n"
    ).replace("FOLDER", str(tmp_path))  # fmt: skip
    outcome, messages = run(python_job(code, {"chief": 1, "worker": 2}), tmp_path, RESTARTING)
    assert outcome.status is Status.OK
    assert [(message.task, message.attempt) for message in messages.of(Started)][-1] == ("worker-1", 1)
    assert len(messages.of(Started)) == 4
    assert [attempt.tasks for attempt in outcome.attempts] == [("chief-0", "worker-0", "worker-1"), ("worker-1",)]
    assert messages.of(Restarting)[0].reason == (
        "worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: worker-1"
    )


def test_chief_and_servers_are_started_again_together_and_workers_live_on(tmp_path, survivors):
    code = PREPARE + (
        "import pathlib\n"
        "def wait_for(*tasks):\n"
        "    while not all(pathlib.Path(f'FOLDER/{each}.{attempt}').exists() for each in tasks): time.sleep(0.01)\n"
        "pathlib.Path(f'FOLDER/{task}.{attempt}').touch()\n"
        "if task == 'ps-0' and not attempt: wait_for('chief-0', 'worker-0', 'ps-1'); os.kill(os.getpid(), 9)\n"
        "if task == 'chief-0' and attempt: wait_for('ps-0', 'ps-1'); sys.exit()\n"
        "time.sleep(600)\n"
    ).replace("FOLDER", str(tmp_path))
    outcome, messages = run(python_job(code, {"chief": 1, "worker": 1, "ps": 2}), tmp_path, RESTARTING)
    assert outcome.status is Status.OK
    assert [attempt.tasks for attempt in outcome.attempts][1] == ("chief-0", "ps-0", "ps-1")
    started = [(message.task, message.attempt) for message in messages.of(Started)]
    assert sorted(started[4:]) == [("chief-0", 1), ("ps-0", 1), ("ps-1", 1)]
    assert survivors() == []


def test_a_job_that_fails_again_and_again_ends_with_all_its_attempts(tmp_path):
    code = PREPARE + "emit('step', step=attempt + 1)\nif task == 'worker-1': sys.exit(3)\ntime.sleep(600)\n"
    policy = replace(RESTARTING, max_restarts=2)
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path, policy)
    assert (outcome.status, outcome.exit_code, outcome.culprit) == (Status.FAILED, 3, "worker-1")
    assert [attempt.reason for attempt in outcome.attempts] == ["worker-1 exited with code 3"] * 3
    assert outcome.not_restarted == "--max-restarts 2 is used up"


def test_exit_code_42_asks_for_a_restart(tmp_path):
    policy = replace(RESTARTING, restart_on=RestartOn.PREEMPTION, settle_s=5.0, settle_restart_s=5.0)
    outcome, _ = run(python_job(PREPARE + "sys.exit(0 if attempt else 42)", {"worker": 2}), tmp_path, policy)
    assert outcome.status is Status.OK
    assert outcome.attempts[0].reason == "both tasks failed alike: exited with code 42 (restart requested)"


def test_a_killed_worker_is_reported_within_3_s_with_the_default_settings(tmp_path):
    code = PREPARE + (
        "if task == 'worker-1': emit('now', time=time.time()); os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)\n"
    )
    outcome, messages = run(python_job(code, {"worker": 3}), tmp_path, replace(QUICK, settle_s=3.0))
    killed = next(message.time for message in messages.of(Event))
    assert max(message.time for message in messages.of(Exited)) - killed < 2.9
    assert outcome.culprit == "worker-1"


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_a_task_that_a_signal_has_stopped_counts_as_failed(tmp_path, max_restarts, monkeypatch, survivors):
    monkeypatch.setattr("tfdist.launch.supervision.watches.FREEZE_CHECK_S", 0.1)
    monkeypatch.setattr("tfdist.launch.supervision.watches.FROZEN_S", 0.3)
    code = PREPARE + (
        "if attempt: sys.exit()\nif task == 'worker-1': os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)\n"
    )
    policy = replace(RESTARTING, max_restarts=max_restarts)
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path, policy)
    assert outcome.status is (Status.OK if max_restarts else Status.FAILED)
    assert outcome.attempts[0].reason == "worker-1 is stopped (state T: SIGSTOP or a debugger)"
    assert outcome.attempts[0].culprit == "worker-1"
    assert survivors() == []


def is_ready(message):
    return isinstance(message, Event) and message.event["event"] == "ready"


def interrupt_once_ready(job, folder, policy, number, tasks, ready_when=is_ready):
    """Run the job, and send this process a signal when this many tasks are ready."""

    ready = threading.Semaphore(0)

    def send():
        for _ in range(tasks):
            assert ready.acquire(timeout=30)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()

    def release(message):
        if ready_when(message):
            ready.release()

    result = run(job, folder, policy, release)
    thread.join()
    return result


SAVES = PREPARE + (
    "def save(*_):\n"
    "    if task == 'worker-0': open('FOLDER/saved', 'w').close(); emit('checkpoint', step=7)\n"
    "    sys.exit(42)\n"
    "signal.signal(signal.SIGTERM, save if task == 'worker-0' else signal.SIG_DFL)\n"
    "emit('ready')\n"
    "while not os.path.exists('FOLDER/saved'): time.sleep(0.01)\n"
    "save()\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_lets_one_task_save_and_the_run_end_with_42(tmp_path, number, survivors):
    job = python_job(SAVES.replace("FOLDER", str(tmp_path)), {"worker": 2})
    policy = replace(RESTARTING, saves_on_signal=True, grace_s=20.0)
    outcome, _ = interrupt_once_ready(job, tmp_path, policy, number, 2)
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, 42)
    assert outcome.reason == f"interrupted by {number.name}: saved step 7"
    assert outcome.exits["worker-1"].code == 42  # SIGTERM would have killed it
    assert survivors() == []


def test_a_task_that_cannot_save_is_stopped_with_the_others_at_once(tmp_path):
    job = python_job(PREPARE + "emit('ready')\ntime.sleep(600)", {"worker": 2})
    policy = replace(RESTARTING, saves_on_signal=True, grace_s=20.0)
    outcome, _ = interrupt_once_ready(job, tmp_path, policy, signal.SIGTERM, 2)
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, 143)
    assert outcome.wall_s < 10.0


def test_servers_are_stopped_once_the_chief_has_saved(tmp_path, survivors):
    code = PREPARE + (
        "if task == 'chief-0': signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\nemit('ready')\ntime.sleep(600)\n"
    )
    policy = replace(QUICK, saves_on_signal=True, grace_s=20.0)
    outcome, _ = interrupt_once_ready(
        python_job(code, {"chief": 1, "worker": 1, "ps": 1}), tmp_path, policy, signal.SIGTERM, 3
    )
    assert outcome.exit_code == 42
    assert outcome.reason == "interrupted by SIGTERM: exited with code 42 (restart requested)"
    assert survivors() == []


def test_a_signal_without_checkpoints_ends_the_run_as_sigterm_does(tmp_path):
    job = python_job(PREPARE + "emit('ready')\ntime.sleep(600)", {"worker": 2})
    outcome, _ = interrupt_once_ready(job, tmp_path, QUICK, signal.SIGUSR1, 2)
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, 138)


def test_a_signal_during_the_pause_before_a_restart_ends_the_run(tmp_path):
    def in_pause(message):
        return isinstance(message, Restarting) and message.delay_s > 0

    job = python_job(PREPARE + "emit('step', step=3)\nsys.exit(3)\n", {"worker": 1})
    policy = replace(RESTARTING, max_restarts=9)
    outcome, messages = interrupt_once_ready(job, tmp_path, policy, signal.SIGTERM, 1, in_pause)
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, 143)
    assert len(messages.of(Started)) == 2


def test_a_preemption_during_the_pause_before_a_restart_counts_the_checkpoint_of_an_earlier_attempt(tmp_path):
    def in_pause(message):
        return isinstance(message, Restarting) and message.delay_s > 0

    code = PREPARE + "emit('step', step=3); emit('checkpoint', step=2)\nsys.exit(3)\n"
    policy = replace(RESTARTING, max_restarts=9, saves_on_signal=True)
    outcome, messages = interrupt_once_ready(
        python_job(code, {"worker": 1}), tmp_path, policy, signal.SIGUSR1, 1, in_pause
    )
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, 42)
    assert outcome.reason == "interrupted by SIGUSR1: step 2 was saved before"
    assert outcome.signal == signal.SIGUSR1
    assert len(messages.of(Started)) == 2


def test_a_preemption_of_a_restarted_task_that_cannot_save_yet_counts_an_earlier_checkpoint(tmp_path, survivors):
    code = PREPARE + (
        "if attempt == 0: emit('step', step=3); emit('checkpoint', step=2); sys.exit(3)\n"
        "emit('ready')\ntime.sleep(600)\n"
    )
    policy = replace(RESTARTING, saves_on_signal=True, grace_s=20.0)
    outcome, _ = interrupt_once_ready(python_job(code, {"worker": 2}), tmp_path, policy, signal.SIGTERM, 2)
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.INTERRUPTED, 42, signal.SIGTERM)
    assert outcome.reason == "interrupted by SIGTERM: step 2 was saved before"
    assert len(outcome.attempts) == 2
    assert survivors() == []


def test_the_job_waits_for_an_evaluator_but_not_for_servers(tmp_path, survivors):
    code = PREPARE + (
        "import pathlib\n"
        "if task == 'chief-0': sys.exit()\n"
        "if task == 'ps-0': time.sleep(600)\n"
        "time.sleep(0.5)\n"
        "emit('record', record={})\n"
    )
    outcome, _ = run(python_job(code, {"chief": 1, "ps": 1, "evaluator": 1}), tmp_path)
    assert (outcome.status, outcome.warnings) == (Status.OK, ())  # a warning says why the evaluator failed
    assert outcome.records == {"evaluator-0": {}}
    assert outcome.exits["ps-0"].code == -signal.SIGTERM
    assert survivors() == []


def test_agents_ignore_what_a_scheduler_sends_to_all_processes_and_tasks_do_not(tmp_path):
    code = PREPARE + (
        "for number in (signal.SIGUSR1, signal.SIGUSR2): os.kill(os.getppid(), number)\n"
        "emit('record', record={'default': signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL})\n"
        "time.sleep(0.2)\n"
    )
    outcome, _ = run(python_job(code, {"worker": 1}), tmp_path)
    assert outcome.status is Status.OK
    assert outcome.records == {"worker-0": {"default": True}}


def test_an_evaluator_that_fails_after_the_training_is_a_warning(tmp_path):
    code = PREPARE + "if task == 'evaluator-0':\n    time.sleep(0.5)\n    sys.exit(3)\n"
    outcome, _ = run(python_job(code, {"worker": 1, "evaluator": 1}), tmp_path)
    assert (outcome.status, outcome.warnings) == (Status.OK, ("evaluator-0 exited with code 3",))


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGINT, 130, "worker-1 exited with code 3"),
        (signal.SIGTERM, 42, "worker-1 exited with code 3; interrupted by SIGTERM: step 2 was saved before"),
    ],
)
def test_a_signal_while_a_failed_attempt_is_stopped_prevents_the_restart(tmp_path, number, code, reason):
    program = PREPARE + (
        "ready = 'FOLDER/ready'\n"
        "while task == 'worker-1' and not os.path.exists(ready): time.sleep(0.01)\n"
        "if task == 'worker-1': emit('checkpoint', step=2); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(ready, 'w').close()\n"
        "time.sleep(600)\n"
    )
    job = python_job(program.replace("FOLDER", str(tmp_path)), {"worker": 2})
    policy = replace(RESTARTING, saves_on_signal=True)
    outcome, messages = interrupt_once_ready(job, tmp_path, policy, number, 1, lambda each: isinstance(each, Stopped))
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.INTERRUPTED, code, number)
    assert outcome.reason == reason
    assert outcome.not_restarted == "interrupted before the restart"
    assert messages.of(Restarting) == []


def test_what_the_tasks_of_an_agent_that_leaves_have_started_is_ended_before_the_restart(tmp_path, survivors):
    """The agent gives them its grace period."""
    child = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); open('FOLDER/up', 'w').close(); time.sleep(607)"
    )
    code = PREPARE + (
        "if attempt: sys.exit()\n"
        "import subprocess\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "while not os.path.exists('FOLDER/up'): time.sleep(0.01)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )
    job = python_job(code.replace("FOLDER", str(tmp_path)), {"worker": 1})
    left = []

    def note(message):
        if isinstance(message, Started) and message.attempt:
            left.extend(process for process in survivors() if "time.sleep(607)" in process and "'-S'" not in process)

    outcome, _ = run(job, tmp_path, replace(RESTARTING, grace_s=3.0, lost_grace_s=0.3), note)
    assert outcome.status is Status.OK
    assert left == []
