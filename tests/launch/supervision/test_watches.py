from dataclasses import replace

import pytest

from tests.launch.jobs import python_job, roles
from tests.launch.supervisors import FakeChannel, log_of, running_tasks, same_tasks, supervisor_of
from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.messages import DumpStacks, Event, Exited, Inspect, Listening, Output, StacksDumped, Started
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import ProcessState, Stall
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.supervise import Supervisor
from tfdist.launch.supervision.watches import EVIDENCE_S, FREEZE_CHECK_S, LISTEN_S, FrozenWatch, StallWatch


def failed_after(states, *, ports=True):
    """When and which tasks have failed if worker-1 is in these states, one per check."""
    supervisor, _ = supervisor_of({"worker": 3}, ports=ports)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append((now, frozen.tasks)))
    supervisor.deadlines.clear()
    watch.start(0.0)
    for check, state in enumerate(states, 1):
        now = check * FREEZE_CHECK_S
        if state:
            supervisor.tasks.history.states["worker-1"] = ProcessState(state, time=now - 0.1)
        assert not ports or supervisor.deadlines.get(watch.check) == now
        supervisor.deadlines.run_due(now)
    return failures


def test_a_task_that_is_stopped_for_10_s_has_failed_within_15_s():
    ((seconds, tasks), *_) = failed_after("STTTTTT")
    assert tasks == ("worker-1",)
    assert seconds - FREEZE_CHECK_S <= 13.0


def test_the_processes_of_1000_tasks_are_checked_every_10_s_which_is_no_pause():
    supervisor, _ = supervisor_of({"worker": 1000}, ports=True)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append((now, frozen.tasks)))
    supervisor.deadlines.clear()
    watch.start(0.0)
    for now in (10.0, 20.0, 30.0):
        supervisor.tasks.history.states["worker-7"] = ProcessState("T", time=now - 9.9)
        assert supervisor.deadlines.get(watch.check) == now
        supervisor.deadlines.run_due(now)
    assert failures == [(20.0, ("worker-7",)), (30.0, ("worker-7",))]


def test_the_time_during_which_the_launcher_was_suspended_does_not_count():
    supervisor, _ = supervisor_of({"worker": 2}, ports=True)
    failures = []
    watch = FrozenWatch(supervisor.tasks, lambda frozen, now: failures.append(frozen))
    watch.start(0.0)
    for now in (FREEZE_CHECK_S, 3600.0, 3600.0 + FREEZE_CHECK_S):  # each time just before the task continues, too
        supervisor.tasks.history.states["worker-1"] = ProcessState("T", time=now - 0.1)
        watch.check(now)
    assert failures == []


@pytest.mark.parametrize(
    "states",
    ["S" * 9, "t" * 9, "TTTTSTTTT", ["T", *[""] * 8]],
    ids=["runs", "debugger", "continued", "no answers"],
)
def test_others_have_not_failed(states):
    assert failed_after(states) == []


def test_a_job_without_a_cluster_is_left_alone():
    assert failed_after("T" * 9, ports=False) == []


TIME = 1_800_000_000.0


class Stalling:
    """A job whose stall watch is checked whenever it is due. Times are seconds from its start."""

    def __init__(self, timeout_s=300.0, reports_steps=False, led_elsewhere=False, took_steps=False, **counts):
        job = python_job("", counts or {"worker": 2})
        plans = (replace(plan, program=replace(plan.program, reports_steps=reports_steps)) for plan in job.plans)
        job = replace(job, plans=tuple(plans), led_elsewhere=led_elsewhere)
        self.channel, self.said = FakeChannel(), []
        policy = Policy(stall_timeout_s=timeout_s)
        self.tasks = running_tasks(job, self.channel, policy, lambda note: self.said.append(note.text))
        self.watch = StallWatch(self.tasks, lambda stall, now: self.said.append((stall, now)), took_steps, 0.0)
        self.watch.start(0.0)

    def note(self, message, at):
        said = self.until(at)
        self.tasks.history.add(message, TIME + at)
        self.watch.note(message, at)
        return [*said, *self.take()]

    def step(self, task, step, at):
        return self.note(Event(task, TIME + at, {"event": "step", "step": step}), at)

    def until(self, at):
        """What the checks up to this time say."""
        while self.tasks.deadlines.next() <= at:
            self.tasks.deadlines.run_due(self.tasks.deadlines.next())
        return self.take()

    def take(self):
        said, self.said = self.said, []
        return said

    def look(self, at, **cpu_s):
        """The processes, as an agent reports them."""
        for task, used in cpu_s.items():
            self.tasks.history.states[task.replace("_", "-")] = ProcessState("S", "", used, at)

    def dump(self, *tasks):
        """The stacks of these tasks have arrived."""
        request = next(message for message in self.channel.sent if isinstance(message, DumpStacks))
        reply = StacksDumped(dict.fromkeys(tasks, "py-spy"), request=request.request)
        self.tasks.requests.take(self.channel.host, reply)

    def inspections(self):
        return sum(isinstance(message, Inspect) for message in self.channel.sent)


def is_warning(said):
    return [type(each) for each in said] == [str]


def is_stall(said):
    return [type(each) for each in said] == [tuple]


def test_the_warning_has_each_tasks_last_step():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    job.step("worker-1", 40, 10.0)
    assert job.until(309.0) == []
    assert job.until(310.0) == [
        "no step for 300 s (worker-0 at step 45, worker-1 at step 40); "
        "the stacks of all tasks are saved in stacks.txt, beside their logs"
    ]


def test_the_job_has_stalled_when_the_evidence_is_complete():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    assert len(job.until(310.0)) == 1
    assert job.inspections() == 1
    job.look(310.1, worker_0=1.0, worker_1=1.0)
    assert job.until(312.0) == []
    assert job.inspections() == 2
    job.look(314.1, worker_0=1.0, worker_1=5.0)
    assert job.until(315.0) == []
    job.dump("worker-0", "worker-1")
    ((stall, now),) = job.until(316.0)
    assert now == pytest.approx(315.2, abs=0.3)
    assert stall == Stall(300.0, {"worker-0": 0.0, "worker-1": pytest.approx(1.0)})
    assert job.until(1000.0) == []


def test_tasks_that_were_restarted_after_a_stall_can_stall_again():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    job.until(310.0)
    assert is_stall(job.until(310.0 + EVIDENCE_S + 0.3))
    job.watch.restart(400.0)
    assert is_warning(job.until(701.0))
    assert is_stall(job.until(701.0 + EVIDENCE_S + 0.3))


def test_evidence_is_waited_for_only_a_while():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    job.until(310.0)
    assert job.until(310.0 + EVIDENCE_S - 1) == []
    ((stall, _),) = job.until(310.0 + EVIDENCE_S + 0.3)
    assert stall.cores_used == {}


def test_a_step_after_the_warning_ends_the_suspicion():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    assert len(job.until(310.0)) == 1
    assert job.step("worker-0", 46, 311.0) == ["the job continues after 301 s without a step"]
    assert job.until(610.0) == []
    assert is_warning(job.until(613.0))


def test_a_task_that_ends_after_the_warning_does_not_show_that_the_job_continues():
    job = Stalling()
    job.step("worker-0", 45, 10.0)
    assert len(job.until(310.0)) == 1
    assert job.note(Exited("worker-1", 1, 311.0, 1, 0.1), 311.0) == []
    assert job.until(610.0) == []


@pytest.mark.parametrize(
    ("message", "is_sign"),
    [
        (Event("worker-1", 1.0, {"event": "phase", "phase": "evaluating"}), True),
        (Started("worker-1", 1, 1.0), True),
        (Exited("worker-1", 0, 1.0, 1, 0.1), True),
        (Output("worker-1", "stdout", "still here\n"), False),
        (Output("worker-1", "stacks", "Thread 0x1\n"), False),
    ],
)
def test_what_is_a_sign_of_life_after_the_first_step(message, is_sign):
    job = Stalling()
    job.step("worker-0", 1, 10.0)
    job.note(message, 200.0)
    assert (job.until(450.0) == []) is is_sign


def test_events_of_servers_are_no_sign():
    job = Stalling(chief=1, worker=1, ps=1)
    job.step("chief-0", 1, 10.0)
    job.note(Event("worker-0", 1.0, {"event": "phase", "phase": "x"}), 200.0)
    assert is_warning(job.until(312.0))


def test_a_training_that_reports_steps_is_watched_before_its_first_step():
    job = Stalling(reports_steps=True)
    assert job.note(Output("worker-0", "stderr", "downloading\n"), 290.0) == []
    (warning,) = job.until(590.0)
    assert warning.startswith("no step for 300 s (worker-0 before its first step, worker-1 before its")
    assert is_stall(job.until(640.0))


def test_a_program_that_took_steps_in_an_earlier_attempt_is_watched_from_its_start():
    job = Stalling(took_steps=True)
    assert is_warning(job.until(300.0))
    assert is_stall(job.until(330.0))


def test_a_program_without_steps_gets_one_warning():
    job = Stalling()
    job.note(Output("worker-0", "stdout", "epoch 1\n"), 200.0)
    (warning,) = job.until(500.0)
    assert warning.startswith("no output or event for 300 s; the stacks of all tasks are saved")
    assert warning.endswith("the job is not stopped, because it reports no steps")
    job.note(Output("worker-0", "stdout", "epoch 2\n"), 1000.0)
    assert job.until(3000.0) == []
    job.step("worker-0", 1, 3001.0)
    assert is_warning(job.until(3303.0))


def test_a_task_that_is_led_elsewhere_is_watched_once_it_reports_steps():
    job = Stalling(led_elsewhere=True, worker=1)
    job.note(Output("worker-0", "stderr", "serving\n"), 10.0)
    assert job.until(5000.0) == []
    job.step("worker-0", 1, 5001.0)
    assert is_warning(job.until(5304.0))
    assert is_stall(job.until(5330.0))


def test_after_a_pause_of_the_launcher_the_time_starts_again():
    job = Stalling()
    job.step("worker-0", 1, 10.0)
    assert job.until(200.0) == []
    job.tasks.deadlines.run_due(5000.0)
    assert job.until(5299.0) == []
    assert is_warning(job.until(5301.0))


def test_tasks_that_wait_for_their_start_are_not_watched():
    job = Stalling(reports_steps=True)
    job.tasks.lose(job.tasks.running)
    assert job.until(1000.0) == []


def test_without_a_limit_nothing_is_watched():
    job = Stalling(timeout_s=None)
    job.step("worker-0", 1, 10.0)
    assert job.until(2000.0) == []


SETS = 'import os\n\nos.environ["TF_CONFIG"] = "{}"\n'


def notes_about(source, folder, *, listens=(), has_cluster=True):
    """What is said of a program that has run for LISTEN_S, and the hints of the outcome."""
    (folder / "train.py").write_text(source)
    program = Program(("-u", "train.py"), {}, str(folder), python=True)
    job = plan_job(Shape(roles(worker=2), has_cluster), program, local_machines())
    names = [plan.task.name for plan in job.plans]
    job = job.with_ports(dict.fromkeys(names, 5000)) if has_cluster else job
    notes = []
    group = running_tasks(job, FakeChannel(), Policy(), notes.append)
    supervisor = Supervisor(group, Inbox(), log_of(names), same_tasks)
    for name in names:
        supervisor.handle(Started(name, 7, 1.0), 100.0)
    for name in listens:
        supervisor.handle(Listening(name, 2.0), 102.0)
    assert supervisor.deadlines.get(supervisor.joining.check_config) == 100.0 + LISTEN_S
    supervisor.deadlines.run_due(100.0 + LISTEN_S)
    return [note.text for note in notes], diagnose(supervisor.history, supervisor.job).hints


def test_a_program_that_sets_tf_config_and_does_not_listen_is_named_with_the_line(tmp_path):
    (note,), (hint,) = notes_about(SETS, tmp_path)
    assert note == hint
    assert note.startswith("no task listens on its port, and train.py:3 sets TF_CONFIG itself: remove that line")
    inside = "def main(environ):\n    environ['TF_CONFIG'] = \"\"\n"
    assert notes_about(inside, tmp_path)[0][0].startswith("no task listens on its port, and train.py:2 sets")


@pytest.mark.parametrize(
    "source",
    [
        'import os\nif "TF_CONFIG" not in os.environ:\n    os.environ["TF_CONFIG"] = "{}"\n',
        'import json, os\nconfig = json.loads(os.environ["TF_CONFIG"])\n',
        'import os\nos.environ.setdefault("TF_CONFIG", "{}")\n',
        "not a program",
    ],
    ids=["if missing", "reads it", "default", "other"],
)
def test_programs_that_keep_tf_config_are_not_accused(source, tmp_path):
    assert notes_about(source, tmp_path) == ([], ())


def test_a_task_that_listens_or_a_job_without_a_cluster_is_no_sign_of_another_tf_config(tmp_path):
    assert notes_about(SETS, tmp_path, listens=("worker-1",)) == ([], ())
    assert notes_about(SETS, tmp_path, has_cluster=False) == ([], ())
