import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdist.strategies.use import report, report_first_step, trained


class Extended:
    def call_for_each_replica(self, step, value):
        return step(value)


class Strategy:
    num_replicas_in_sync = 2

    def __init__(self):
        self.extended = Extended()

    def run(self, step, value):
        return self.extended.call_for_each_replica(step, value)


@pytest.fixture
def events(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(writer))
    os.set_blocking(reader, False)

    lines = []

    def read():
        try:
            sent = [json.loads(line) for line in os.read(reader, 4096).splitlines()]
            lines.extend(event.pop("line") for event in sent)
            return sent
        except BlockingIOError:
            return []

    before = list(trained)
    yield read
    trained[:] = before  # tests after this one find no strategy of ours
    assert all(Path(line.rpartition(":")[0]).name == Path(__file__).name for line in lines)
    os.close(reader)
    os.close(writer)


def test_a_strategy_is_reported_with_its_class_and_replicas(events):
    report(Strategy(), trains=False)
    assert events() == [{"event": "strategy", "name": "Strategy", "replicas": 2, "trains": False}]
    report(None, trains=True)
    assert events() == []


def test_the_first_step_is_reported_once_and_gets_what_the_strategy_gets(events):
    strategy = Strategy()
    report_first_step(strategy)
    assert events() == []
    assert strategy.run(lambda value: value + 1, 1) == 2
    assert events() == [{"event": "strategy", "name": "Strategy", "replicas": 2, "trains": True}]
    assert strategy.run(lambda value: value + 1, 2) == 3
    assert events() == []
    report_first_step(None)


def test_a_step_that_fails_was_a_step(events):
    strategy = SimpleNamespace(extended=SimpleNamespace(tpu_run=lambda: 1 / 0), num_replicas_in_sync=8)
    report_first_step(strategy)
    with pytest.raises(ZeroDivisionError):
        strategy.extended.tpu_run()
    assert [event["trains"] for event in events()] == [True]
