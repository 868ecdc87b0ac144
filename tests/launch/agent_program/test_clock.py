import time

from tfdist.launch.agent_program.clock import event_time


def test_the_clock_of_events_is_not_set(monkeypatch):
    before = event_time()
    assert abs(before - time.time()) < 60
    monkeypatch.setattr(time, "time", lambda: before - 1000.0)
    assert before <= event_time() < before + 60
