import pytest
import tensorflow as tf

from tfdist.strategies import reconnect


def unavailable(times):
    """A call that fails N times, and the list of its calls."""
    calls = []

    def call():
        calls.append(1)
        if len(calls) <= times:
            raise tf.errors.UnavailableError(None, None, "Connection refused")

    return call, calls


def test_a_worker_that_does_not_reach_a_server_yet_is_tried_again(monkeypatch):
    monkeypatch.setattr(reconnect, "RETRY_S", 0.0)
    call, calls = unavailable(3)
    reconnect._retry(call, float("inf"))
    assert len(calls) == 4


def test_after_the_deadline_the_error_is_raised(monkeypatch):
    monkeypatch.setattr(reconnect, "RETRY_S", 0.0)
    call, calls = unavailable(3)
    with pytest.raises(tf.errors.UnavailableError):
        reconnect._retry(call, 0.0)
    assert len(calls) == 1


@pytest.mark.parametrize(("attempt", "reads"), [("0", 0), ("1", 6)])
def test_only_a_restarted_chief_waits(attempt, reads, monkeypatch):
    monkeypatch.setenv("TFDIST_ATTEMPT", attempt)
    monkeypatch.setattr(reconnect, "_run_on", lambda worker, read: seen.append(worker))
    monkeypatch.setattr(tf, "device", lambda name: tf.name_scope("x"))
    seen = []
    reconnect.wait_for_servers(workers=3, servers=2)
    assert len(seen) == reads
