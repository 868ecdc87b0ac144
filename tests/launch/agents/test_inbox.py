import os
import signal
import threading
import time
from contextlib import suppress
from queue import Empty

import pytest

from tfdist.launch.agents.inbox import Inbox, Interrupted, interruptions
from tfdist.launch.agents.messages import Heartbeat, Output
from tfdist.launch.hosts.host import Host

HOSTS = [Host(f"h{number}") for number in range(16)]
LINE = Output("worker-0", "stdout", "x\n")


def senders(inbox, count, each, size):
    """Threads, each of which puts `each` messages of this size for its host."""
    threads = [
        threading.Thread(target=lambda host=host: [inbox.put(host, LINE, size) for _ in range(each)], daemon=True)
        for host in HOSTS[:count]
    ]
    for thread in threads:
        thread.start()
    return threads


def test_messages_come_out_in_order_and_stamped():
    inbox = Inbox()
    inbox.put(HOSTS[0], Heartbeat(1.0))
    inbox.put(HOSTS[1], Heartbeat(2.0))
    first, second = inbox.get(1.0), inbox.get(1.0)
    assert (first.host, first.message) == (HOSTS[0], Heartbeat(1.0))
    assert (second.host, second.message) == (HOSTS[1], Heartbeat(2.0))
    assert first.at <= second.at
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_signals_overtake_output_and_come_only_once():
    inbox = Inbox()
    inbox.put(HOSTS[0], LINE, 2)
    inbox.put(None, Interrupted(2))
    inbox.put(None, Interrupted(15))
    inbox.put(HOSTS[0], Heartbeat(1.0))
    received = []
    while len(received) < 4:
        with suppress(Empty):
            received.append(inbox.get(1.0).message)
    assert received == [Interrupted(2), Interrupted(15), LINE, Heartbeat(1.0)]
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_the_output_of_all_hosts_together_stays_below_the_limit():
    inbox, limit, seen = Inbox(1000), 1000, 0
    threads = senders(inbox, 16, each=50, size=90)
    for _ in range(16 * 50):
        waiting = inbox.used
        seen = max(seen, waiting)
        assert waiting <= limit
        assert inbox.get(10.0).message == LINE
    for thread in threads:
        thread.join(10)
    assert inbox.used == 0
    assert seen > 90  # more than one message did wait


def test_a_message_larger_than_the_limit_passes_alone():
    inbox = Inbox(10)
    inbox.put(HOSTS[0], LINE, 100)
    assert inbox.get(1.0).size == 100


def test_a_slow_consumer_blocks_senders_of_output_only():
    inbox = Inbox(100)
    (sender,) = senders(inbox, 1, each=2, size=60)
    inbox.put(HOSTS[1], Heartbeat(1.0))
    inbox.put(None, Interrupted(2))
    assert sender.is_alive()  # the last one does not fit
    assert [inbox.get(10.0).message for _ in range(4)].count(LINE) == 2
    sender.join(10)
    assert not sender.is_alive()


def test_closing_frees_all_senders_and_drops_their_output():
    inbox = Inbox(100)
    threads = senders(inbox, 16, each=3, size=60)
    inbox.close()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    inbox.put(HOSTS[0], LINE, 60)
    kept = 0
    while True:
        try:
            kept += inbox.get(0.0).size > 0
        except Empty:
            break
    assert kept <= 1
    inbox.put(HOSTS[0], LINE)
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_a_signal_never_waits_for_a_full_inbox():
    inbox = Inbox(100)
    inbox.put(HOSTS[0], LINE, 100)
    with interruptions(lambda message: inbox.put(None, message)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert [inbox.get(1.0).message for _ in range(3)] == [Interrupted(signal.SIGTERM), Interrupted(signal.SIGINT), LINE]


def test_a_signal_that_the_kernel_gives_to_another_thread_wakes_the_main_one():
    reader, writer = os.pipe()
    other = threading.Thread(target=os.read, args=(reader, 1), daemon=True)
    other.start()
    inbox = Inbox()
    with interruptions(lambda message: inbox.put(None, message)):
        started = time.monotonic()
        threading.Timer(0.2, lambda: signal.pthread_kill(other.ident, signal.SIGINT)).start()
        assert inbox.get(60.0).message == Interrupted(signal.SIGINT)
        assert time.monotonic() - started < 30
    os.write(writer, b"x")
    other.join()
    os.close(reader)
    os.close(writer)


def test_the_same_signal_twice_at_once_counts_once():
    inbox = Inbox()
    with interruptions(lambda message: inbox.put(None, message)):
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert [inbox.get(1.0).message for _ in range(2)] == [Interrupted(signal.SIGINT), Interrupted(signal.SIGTERM)]
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_handlers_and_wakeup_descriptor_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with interruptions(lambda _: None):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


class CountingCondition(threading.Condition):
    """Counts how often a thread waits."""

    waits = 0

    def wait(self, timeout=None):
        self.waits += 1
        return super().wait(timeout)


def test_a_message_that_leaves_a_full_inbox_wakes_one_of_the_hosts_that_wait():
    inbox, hosts = Inbox(limit=10), 40
    inbox._changed = condition = CountingCondition()
    inbox.put(Host("first"), Heartbeat(1.0), 10)
    names = [f"h{number}" for number in range(hosts)]
    threads = [threading.Thread(target=inbox.put, args=(Host(name), Heartbeat(1.0), 10)) for name in names]
    for thread in threads:
        thread.start()
    while condition.waits < hosts:  # all of them wait
        time.sleep(0.001)
    arrived = {inbox.get(20.0).host.name for _ in range(hosts + 1)}
    for thread in threads:
        thread.join()
    assert arrived == {"first", *names}
    assert condition.waits <= 3 * hosts
