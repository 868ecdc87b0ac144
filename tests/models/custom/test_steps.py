"""`tfdist.measure.steps` with a launcher at the other end of the pipes, and without TensorFlow."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from itertools import islice, repeat

import pytest

import tfdist.measure
from tfdist.launch.errors import TfdistError
from tfdist.models.custom import steps as module
from tfdist.models.custom.devices import observe_schedule
from tfdist.models.training.windows import Reading, WindowLog

END = {"windows": 0, "steps": 0}


@pytest.fixture
def launched(monkeypatch):
    """Starts a launcher with these releases, None: not in turns; returns a function that reads the events."""

    def start(releases, **environment):
        read, write = os.pipe()
        barrier, release = os.pipe()
        monkeypatch.delenv("TF_CONFIG", raising=False)
        for name, value in {"TFDIST_EVENTS_FD": str(write), "TFDIST_BARRIER_FD": str(barrier), **environment}.items():
            monkeypatch.setenv(name, value)
        if releases is not None:
            monkeypatch.setenv("TFDIST_TURNS", "1")
        for line in releases or ():
            os.write(release, json.dumps(line).encode() + b"\n")
        os.close(release)
        module.shared_stepper.cache_clear()

        def events():
            os.close(write)
            with os.fdopen(read) as stream:
                return [json.loads(line) for line in stream]

        return events

    return start


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    clock = Clock()
    log = partial(WindowLog, clock=clock, read=lambda: Reading(0, 0, 0, 0))
    monkeypatch.setattr("tfdist.models.custom.stepper.WindowLog", log)
    return clock


def test_without_a_launcher_it_is_the_iterator_of_the_data(monkeypatch):
    monkeypatch.delenv("TFDIST_EVENTS_FD", raising=False)
    data = iter(range(3))
    assert tfdist.measure.steps(data, examples=1) is data
    assert tfdist.measure.epochs(3) == 3


def test_importing_it_loads_almost_nothing():
    code = (
        "import sys, tfdist.measure\n"
        "list(tfdist.measure.steps(range(3), examples=1))\n"
        "print([name for name in ('tensorflow', 'psutil', 'tfdist.models') if name in sys.modules])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TFDIST_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_a_program_that_continues_reports_the_steps_of_the_whole_training(launched):
    events = launched(None)
    for _ in range(2):  # the second loop continues the count
        assert len(list(tfdist.measure.steps(range(5), examples=8, first=100))) == 5
    steps = [event["step"] for event in events() if event["event"] == "step"]
    assert steps[0] == 101
    assert steps == sorted(set(steps))


def test_short_loops_share_a_window(launched, monkeypatch, clock):
    monkeypatch.setattr("tfdist.models.custom.stepper.Stepper._displayed", lambda self: repeat(4))
    events = launched(None)
    for _ in range(4):
        for _ in tfdist.measure.steps(range(3), examples=8):
            clock.now += 2.0
        clock.now += 60.0  # validation
    steps = [event for event in events() if event["event"] == "step"]
    assert [(event["step"], event["images_per_s"]) for event in steps] == [(4, 4.0), (8, 4.0), (12, 4.0)]


def test_waiting_for_the_batches_of_the_others_is_no_input(launched, monkeypatch):
    monkeypatch.setattr("tfdist.models.custom.stepper.REPORT_S", 0.0)
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}

    class Distributed:  # as an iterator of MultiWorkerMirroredStrategy over data that can end
        _enable_get_next_as_optional = True

        def __init__(self):
            self.left = iter(range(5))

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.left)

    events = launched(None, TF_CONFIG=json.dumps(config))
    assert len(list(tfdist.measure.steps(Distributed(), examples=16))) == 5
    steps = [event for event in events() if event["event"] == "step"]
    assert len(steps) == 5
    assert all("input_ms" not in event for event in steps)


def test_a_worker_reports_how_long_it_waited_for_its_batches(launched):
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    events = launched(None, TF_CONFIG=json.dumps(config))

    class Slow:
        def __iter__(self):
            for number in range(30):
                time.sleep(0.003)
                yield number

    assert len(list(tfdist.measure.steps(Slow(), examples=16))) == 30
    found = [event for event in events() if event["event"] == "step"]
    assert sum(len(event["input_ms"]) for event in found) > 0
    assert all(3 <= waited < 1000 for event in found for waited in event["input_ms"])
    assert all(event["step_ms"] >= 3 for event in found)


def test_a_single_worker_reports_no_waiting(launched):
    events = launched(None)
    list(tfdist.measure.steps(range(5), examples=8))
    assert all("input_ms" not in event for event in events())


def test_in_turns_the_data_is_repeated_until_the_end(launched):
    events = launched([{"windows": 1, "steps": 3}, {"windows": 2, "steps": 4}, END])
    assert tfdist.measure.epochs(3) > 10_000
    batches = []
    for _ in range(2):  # epochs of the program
        batches += tfdist.measure.steps(range(7), examples=8)
    assert batches == [*range(7), *range(7), *range(4), 0], "a loop after the last turn has one step"
    record, first, warmup, second, turn, last, final = (event for event in events() if event["event"] != "phase")
    assert [e["event"] for e in (first, warmup, second, turn, last)] == [
        "barrier",
        "turn",
        "barrier",
        "turn",
        "barrier",
    ]
    assert all(event["step_s"] > 0 for event in (first, second, last))
    assert [[(w["steps"], w["examples"]) for w in e["windows"]] for e in (warmup, turn)] == [[(3, 24)], [(4, 32)] * 2]
    assert [w["steps"] for w in record["record"]["warmup"]] == [1, 4]
    assert (record["record"]["updates_applied"], final["record"]["updates_applied"]) == (5, 18)
    assert final["record"]["examples_applied"] == 18 * 8
    assert set(final["record"]["phases_s"]) == {"trace", "first_step_end"}


def test_what_happens_between_epochs_is_in_no_window(launched, clock):
    events = launched([{"windows": 1, "steps": 3}, {"windows": 2, "steps": 8}, END])

    class Slow:  # an iterator takes a minute to be made
        def __iter__(self):
            clock.now += 60.0
            return iter(range(7))

    for _ in tfdist.measure.steps(Slow(), examples=8):
        clock.now += 2.0
    *_, turn = (event["windows"] for event in events() if event["event"] == "turn")
    assert [window["elapsed_s"] for window in turn] == [16.0, 16.0]
    assert [(window["epochs"], window["between_s"]) for window in turn] == [(1, 60.0), (1, 60.0)]


def test_a_loop_that_is_left_ends_an_epoch(launched, clock):
    events = launched([{"windows": 1, "steps": 3}, {"windows": 1, "steps": 8}, END])
    for _ in range(5):
        for number, _ in enumerate(tfdist.measure.steps(range(100), examples=8)):
            clock.now += 1.0
            if number == 4:
                break
        clock.now += 50.0  # validation
    *_, (window,) = (event["windows"] for event in events() if event["event"] == "turn")
    assert (window["steps"], window["epochs"], window["between_s"]) == (8, 2, 102.0), (
        "the last step of a loop is not counted"
    )
    assert window["elapsed_s"] == 8.0


def test_data_without_a_batch_is_named(launched):
    launched([{"windows": 1, "steps": 10}, END])
    with pytest.raises(TfdistError, match="the data has no batch"):
        list(tfdist.measure.steps([], examples=8))


def test_a_second_loop_continues_the_turn(launched):
    events = launched([{"windows": 1, "steps": 10}, END])
    batches = [*islice(tfdist.measure.steps(range(100), examples=1), 9), *tfdist.measure.steps(range(100), examples=1)]
    assert len(batches) >= 5 + 1 + 10
    assert [len(event["windows"]) for event in events() if event["event"] == "turn"] == [1]


def test_without_turns_steps_are_reported_and_nothing_waits(launched, monkeypatch):
    monkeypatch.setattr("tfdist.models.custom.stepper.REPORT_S", 0.0)
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    events = launched(None, TF_CONFIG=json.dumps(config))
    for _ in range(2):
        assert list(tfdist.measure.steps(range(3), examples=8)) == [0, 1, 2]
    reported = events()
    assert {event["event"] for event in reported} == {"phase", "step"}
    steps = [event for event in reported if event["event"] == "step"]
    assert [event["step"] for event in steps] == [1, 2, 3, 4, 5, 6]
    assert all(event["images_per_s"] > 0 for event in steps)


def test_data_that_cannot_be_iterated_over_again_is_an_error(launched):
    launched([{"windows": 1, "steps": 10}, END])
    with pytest.raises(TfdistError, match="the data ended after 3 steps"):
        list(tfdist.measure.steps(iter(range(3)), examples=8))


def test_wrong_arguments_are_a_sentence(launched):
    launched(None)
    with pytest.raises(TfdistError, match="examples=0: must be positive"):
        tfdist.measure.steps(range(3), examples=0)
    config = {"cluster": {"chief": ["c:1"], "worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    launched(None, TF_CONFIG=json.dumps(config))
    with pytest.raises(TfdistError, match=r"which ClusterCoordinator\? Pass coordinator="):
        tfdist.measure.steps(range(3), examples=8)


class Coordinator:
    def schedule(self, function, args=(), kwargs=None):
        return function(*args)


def test_the_result_of_a_scheduled_step_is_seen_and_returned():
    coordinator = Coordinator()
    last = observe_schedule(coordinator)
    assert coordinator.schedule(len, args=("abc",)) == 3
    assert last() == 3
    with pytest.raises(TfdistError, match=r"without a call of coordinator\.schedule"):
        last()
