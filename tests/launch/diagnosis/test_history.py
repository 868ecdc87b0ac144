"""The entries of a history, and what is found in them."""

from tests.launch.supervisors import exited
from tfdist.launch.agents.messages import Exited, Listening
from tfdist.launch.diagnosis.history import History, TimedOut


def test_entries_of_a_kind_are_found_while_others_are_added_and_forgotten():
    history = History()
    assert history.select(Exited) == []
    first, second = exited("worker-0", 1), exited("worker-1", 2)
    history.add(first, 0.0)
    found = history.select(Exited)
    history.entries.append(TimedOut(1.0))
    history.add(second, 0.0)
    assert (found, history.select(Exited), history.select(TimedOut)) == ([first], [first, second], [TimedOut(1.0)])
    history.forget(["worker-0"])
    assert (history.select(Exited), history.select(TimedOut)) == ([second], [TimedOut(1.0)])
    history.select(Exited).clear()  # a copy
    assert history.select(Exited) == [second]


def test_a_message_is_known_by_kind_task_and_attempt():
    history = History()
    history.add(Listening("worker-0", 1.0, attempt=1), 0.0)
    assert history.has(Listening, "worker-0", 1)
    known = (history.has(Listening, "worker-0", 0), history.has(Listening, "w", 1), history.has(Exited, "worker-0", 1))
    assert known == (False, False, False)
