from itertools import pairwise

import pytest

from tests.launch.supervisors import supervisor_of
from tfdist.launch.agents.inbox import Note
from tfdist.launch.agents.messages import Event, Inspect, Inspected, Listening, Started
from tfdist.launch.supervision.straggler_watch import JUDGE_S, LINE_S, NO_EVIDENCE_S

QUIET = {"cores": 1.0, "clock_share": 1.0, "disk_free_share": 0.5}
LOADED = {"other_busy_s": 0.5}


class Training:
    """Two workers of which one may be slow, second after second."""

    def __init__(self):
        self.supervisor, self.channel = supervisor_of({"worker": 2})
        self.watch, self.lines, self.now = self.supervisor.stragglers, [], 0.0
        self.counted, self.asked = {}, 0
        self.supervisor.tasks.announce = lambda message: self.lines.append((self.now, message))
        self.supervisor.deadlines.clear()
        self.watch.start(0.0)

    def train(self, seconds, own_ms, load=(), answers=True, every_s=1.0, throttles=(), later_s=()):
        """`load`: what is counted each second of a task; `throttles`: why its GPU is slowed down; `later_s`: of clocks."""
        for _ in range(int(seconds / every_s)):
            self.now += every_s
            for task, counters in dict(load).items():
                own = self.counted.setdefault(task, dict.fromkeys(counters, 0.0))
                self.counted[task] = {name: own[name] + value * every_s for name, value in counters.items()}
            for task, ms in own_ms.items():
                event = {
                    "event": "step",
                    "step": round(self.now / every_s),
                    "every": 1,
                    "step_ms": 100.0,
                    "own_ms": [ms],
                    "gpus": [{"throttle": dict(throttles).get(task, "")}],
                }
                self.watch.note(Event(task, self.now, event), self.now)
            self.supervisor.deadlines.run_due(self.now)
            requests = [sent for sent in self.channel.sent if isinstance(sent, Inspect)]
            self.channel.sent.clear()
            self.asked += len(requests)
            for request in requests if answers else ():
                values = {
                    task: {
                        "time_s": self.now + dict(later_s).get(task, 0.0) * self.asked,
                        **QUIET,
                        **self.counted.get(task, {}),
                    }
                    for task in own_ms
                }
                self.supervisor.tasks.requests.take(
                    self.channel.host, Inspected({}, {}, counters=values, request=request.request)
                )

    def texts(self):
        return [message.text for _, message in self.lines if isinstance(message, Note)]


EQUAL, SLOW = {"worker-0": 50.0, "worker-1": 51.0}, {"worker-0": 50.0, "worker-1": 90.0}


def test_a_slow_worker_is_named_once_with_its_cause():
    training = Training()
    training.train(240, SLOW, {"worker-1": LOADED})
    sentence = "is last in 100% of the steps: the others wait 40% of their time"
    assert training.texts() == [f"worker-1 on localhost {sentence}; other programs take 50% of its core"]
    assert training.lines[0][0] <= 60
    (held,) = training.watch.reports
    assert (held.task, held.host) == ("worker-1", "localhost")
    assert held.figures["waits"] == pytest.approx(0.4)
    assert held.until - held.since > 150


def test_lines_are_a_minute_apart_and_tell_what_has_changed():
    training = Training()
    training.train(120, SLOW)
    training.train(120, SLOW, {"worker-1": LOADED})
    training.train(120, EQUAL)
    texts = training.texts()
    assert [text.rpartition("; ")[2] for text in texts] == [
        "it computes for 90 ms, the others for 50 ms",
        "other programs take 50% of its core",
        "worker-1 no longer holds the others up",
    ]
    at = [time for time, _ in training.lines]
    assert all(later - earlier >= LINE_S for earlier, later in pairwise(at))
    assert len(training.watch.reports) == 2


def test_a_healthy_job_is_not_asked_and_nothing_is_said():
    training = Training()
    training.train(600, EQUAL)
    assert (training.lines, training.asked) == ([], 0)
    training.train(60, SLOW)
    assert training.asked > 0


def test_what_all_workers_share_is_no_cause_while_their_readings_are_not_all_there():
    training, load = Training(), {task: {"steal_s": 0.3} for task in EQUAL}
    later_s = {"worker-0": -0.6}  # its second reading is less than 5 s after the first one
    training.train(60, SLOW, load, later_s=later_s)
    (text,) = training.texts()
    assert "stolen" not in text


def test_a_host_that_does_not_answer_is_named_all_the_same():
    training = Training()
    training.train(30 + NO_EVIDENCE_S + JUDGE_S, SLOW, answers=False)
    assert len(training.texts()) == 1
    assert training.texts()[0].endswith("it computes for 90 ms, the others for 50 ms")


def test_silence_and_a_restart_of_one_task_say_nothing():
    training = Training()
    training.train(60, SLOW)
    training.now += 120
    training.supervisor.deadlines.run_due(training.now)
    training.watch.note(Started("worker-0", 1, 0.0), training.now)
    training.train(10, SLOW)
    assert len(training.texts()) == 1
    assert training.watch.reports[0].until - training.watch.reports[0].since < 90


def test_the_attempt_after_a_restart_does_not_repeat_a_line():
    training = Training()
    training.train(60, SLOW)
    (before,) = training.watch.reports
    after = Training()
    after.now = training.now
    after.watch.follow(training.watch)
    after.train(120, SLOW)
    assert after.texts() == []
    (held,) = after.watch.reports
    assert held.task == "worker-1"
    assert held.until - held.since == pytest.approx(before.until - before.since + 118, abs=1.0)
    after.train(120, EQUAL)
    assert after.texts() == ["worker-1 no longer holds the others up"]


@pytest.mark.parametrize(
    ("other", "cause"),
    [("", "its GPU is slowed down: power cap"), ("power cap", "it computes for 90 ms, the others for 50 ms")],
)
def test_a_gpu_that_is_slowed_down_as_the_others_are_is_no_cause(other, cause):
    training = Training()
    training.train(60, SLOW, throttles={"worker-0": other, "worker-1": "power cap"})
    assert [text.rpartition("; ")[2] for text in training.texts()] == [cause]


def test_an_asynchronous_worker_that_starts_again_is_not_slow():
    supervisor, _ = supervisor_of({"chief": 1, "ps": 1, "worker": 3})
    watch, lines = supervisor.stragglers, []
    supervisor.tasks.announce = lines.append
    watch.start(0.0)
    for now in range(1, 121):
        if now == 65:
            watch.note(Listening("worker-1", 65.0), 65.0)
        updates = [10, 0 if 50 <= now < 65 else 10, 10]
        event = {"event": "step", "step": 30 * now, "updates": updates, "staleness": [2.0] * 3}
        watch.note(Event("chief-0", float(now), event), float(now))
        supervisor.deadlines.run_due(float(now))
    assert lines == []


def test_a_single_worker_is_not_watched():
    supervisor, _ = supervisor_of({"worker": 1})
    supervisor.deadlines.clear()
    supervisor.stragglers.start(0.0)
    assert not supervisor.deadlines
