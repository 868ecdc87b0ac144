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


class Sender:
    """Adds messages of this size for its host as the channel of one does, until there is no room."""

    def __init__(self, inbox, host, number, size):
        self.inbox, self.host, self.left, self.size = inbox, host, number, size
        self.calls = 0

    def send(self):
        self.calls += 1
        while self.left:
            if not self.inbox.has_room(self.size):
                self.inbox.when_room(self.send)
                return
            self.inbox.put(self.host, LINE, self.size)
            self.left -= 1


def test_the_output_of_all_hosts_together_stays_below_the_limit():
    inbox, limit, seen = Inbox(1000), 1000, 0
    senders = [Sender(inbox, host, 50, 90) for host in HOSTS]
    for sender in senders:
        sender.send()
    for _ in range(16 * 50):
        seen = max(seen, inbox.used)
        assert inbox.used <= limit
        assert inbox.get(0.0).message == LINE
    assert inbox.used == 0
    assert seen > 90  # more than one message did wait
    assert not any(sender.left for sender in senders)


def test_hosts_do_not_stop_and_go_on_for_each_message():
    inbox, hosts, size = Inbox(1000), 40, 10
    senders = [Sender(inbox, Host(f"h{number}"), 100, size) for number in range(hosts)]
    for sender in senders:
        sender.send()
    for _ in range(100 * hosts):
        inbox.get(0.0)
    refills = 100 * hosts * size // 500
    assert sum(sender.calls for sender in senders) < 1.5 * hosts * refills  # once for each half of the limit


def test_a_message_larger_than_the_limit_passes_alone():
    inbox = Inbox(10)
    assert inbox.has_room(100)
    inbox.put(HOSTS[0], LINE, 100)
    assert not inbox.has_room(1)
    assert inbox.get(1.0).size == 100


@pytest.mark.parametrize("size", [60, 100, 1000])  # more than a half, and more than all
def test_each_message_passes_at_last(size):
    inbox = Inbox(100)
    senders = [Sender(inbox, host, 3, each) for host, each in zip(HOSTS[:3], (size, 40, 10), strict=True)]
    for sender in senders:
        sender.send()
    assert [inbox.get(0.0).size for _ in range(9)].count(size) == 3


def test_a_full_inbox_takes_messages_of_the_launcher():
    inbox = Inbox(100)
    sender = Sender(inbox, HOSTS[0], 2, 60)
    sender.send()
    inbox.put(HOSTS[1], Heartbeat(1.0))
    inbox.put(None, Interrupted(2))
    assert sender.left == 1  # the last one does not fit
    assert [inbox.get(0.0).message for _ in range(4)].count(LINE) == 2
    assert not sender.left


def test_closing_lets_all_go_on_and_drops_their_output():
    inbox = Inbox(100)
    senders = [Sender(inbox, host, 3, 60) for host in HOSTS]
    for sender in senders:
        sender.send()
    inbox.close()
    assert not any(sender.left for sender in senders)
    inbox.put(HOSTS[0], LINE, 60)
    inbox.put(HOSTS[0], LINE)
    assert inbox.get(0.0).size == 60  # from before
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
