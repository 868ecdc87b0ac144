"""Channels to real agents behind stand-ins for ssh, and to programs that only look like agents."""

import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import count
from queue import Empty

import psutil
import pytest

from tests.launch.agent_program.test_optional import open_files
from tests.waiting import wait_until
from tfdist.launch.agents.channel import (
    MAX_LINE,
    MOST_REASON,
    Channel,
    SilenceDetector,
    shield,
    unshield,
    updated_offset,
)
from tfdist.launch.agents.inbox import AgentLost, Inbox
from tfdist.launch.agents.messages import (
    Alive,
    Event,
    Exited,
    Heartbeat,
    Hello,
    Output,
    Package,
    Started,
    Terminated,
    decode,
)
from tfdist.launch.agents.streams import STREAMS
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host

from .stand_ins import channel_to, host, python_task, wait_for_message

PROGRAM = (
    "import os, resource, sys\n"
    "hole = os.open('/dev/null', 0); last = os.open('/dev/null', 0); os.close(hole)\n"  # fork leaves no descriptor in between
    "print('ready', flush=True)\n"
    "for _ in sys.stdin:\n"
    "    try:\n"
    "        os.close(os.open('/dev/null', 0)); print('opened', flush=True)\n"
    "    except OSError as error:\n"
    "        print(error.strerror, os.fstat(last).st_nlink > 0, flush=True)\n"
)


@pytest.fixture
def process():
    argv = [sys.executable, "-S", "-c", PROGRAM]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def answer(process):
    print(file=process.stdin, flush=True)
    return process.stdout.readline().rstrip("\n")


def test_a_shielded_process_keeps_what_it_has_and_opens_nothing(process):
    assert answer(process) == "opened"
    limit = shield(process.pid)
    assert answer(process) == "Too many open files True"
    unshield(process.pid, limit)
    assert answer(process) == "opened"


def test_a_process_that_is_gone_needs_no_shield():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert shield(process.pid) is None
    unshield(process.pid, (1024, 4096))


H2 = Host("h2")


@dataclass
class FakeChannel:
    host: Host = H2
    last_received: float = 100.0
    silent: bool = False


def test_an_agent_is_lost_once_when_its_limit_passes_without_a_message():
    channel, silence = FakeChannel(), SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], now) for now in (104.0, 108.0, 109.9))
    ((source, message),) = silence.newly_silent([channel], 110.0)
    assert source is channel
    assert (message.host, message.reason) == ("h2", "no message for 10 s")
    assert silence.newly_silent([channel], 111.0) == []
    assert silence.deadline(channel) == math.inf


def test_after_a_pause_of_the_checks_the_limit_starts_again():
    channel, silence = FakeChannel(), SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], now) for now in (160.0, 164.0, 168.0, 169.9))
    assert silence.newly_silent([channel], 170.0)


@pytest.mark.parametrize("channel", [FakeChannel(LOCAL), FakeChannel(last_received=math.inf)])
def test_the_local_agent_and_an_unread_stream_never_count_as_silent(channel):
    silence = SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], 100.0 + 4 * step) for step in range(20))


ALIVE = '{"kind": "alive", "time": %s}'
HELLO = '{"kind": "hello", "description": {}}'
HEARTBEAT = '{"kind": "heartbeat", "time": 1}'
READ_STDIN = "cat >/dev/null 2>&1"


def fake_agent(*lines, then=READ_STDIN):
    """A host whose agent prints these lines; in a shell, with double quotes."""
    return host("fake", "\n".join([*(f"echo '{line}'" for line in lines), then]))


@pytest.mark.slow
def test_a_frozen_agent_blocks_neither_sending_nor_closing():
    inbox = Inbox()
    channel = Channel(host("frozen"), inbox)
    wait_for_message(inbox, Hello)
    os.kill(channel.process.pid, signal.SIGSTOP)
    sender = threading.Thread(target=lambda: channel.send(Package("x" * (8 << 20))), daemon=True)
    sender.start()
    sender.join(10)
    assert not sender.is_alive()
    started = time.monotonic()
    channel.close(1.0)
    assert time.monotonic() - started < 15
    assert not psutil.pid_exists(channel.process.pid)
    assert not {channel._stdin, channel._stdout, channel._stderr} & STREAMS._functions.keys()


@pytest.mark.slow
def test_a_silent_channel_is_closed_without_waiting(survivors):
    inbox = Inbox()
    channel = Channel(host("frozen"), inbox)
    wait_for_message(inbox, Hello)
    os.kill(channel.process.pid, signal.SIGSTOP)
    channel.silent = True
    started = time.monotonic()
    channel.close(300.0)
    assert time.monotonic() - started < 15
    assert survivors() == []


@pytest.mark.parametrize("ahead_s", [5, -5])
def test_times_are_those_of_this_machines_clock(ahead_s):
    inbox, now = Inbox(), time.time()
    lines = (
        ALIVE % (now + ahead_s),
        '{"kind": "started", "task": "worker-0", "pid": 7, "time": %s}' % (now + ahead_s + 1),
        '{"kind": "event", "task": "worker-0", "time": %s, "event": {}}' % (now + ahead_s + 2),
    )
    with channel_to(fake_agent(*lines), inbox) as channel:
        started, event = wait_for_message(inbox, Started).message, wait_for_message(inbox, Event).message
    assert now + 1 <= started.time < now + 11  # a late start of the shell counts as latency
    assert event.time - started.time == pytest.approx(1.0)
    assert -ahead_s <= channel.behind_s < -ahead_s + 10


def test_the_fastest_message_gives_the_offset_of_the_clock():
    inbox, now = Inbox(), time.time()
    late, fast = ALIVE % (now - 3600), '{"kind": "heartbeat", "time": %s}' % (now - 60)
    with channel_to(fake_agent(late, fast), inbox) as channel:
        wait_for_message(inbox, Heartbeat)
    assert 60 <= channel.behind_s < 70


@pytest.mark.parametrize(("behind_s", "added_s"), [(0.9, 0.0), (1000.0, 1000.0)])
def test_times_of_the_local_agent_are_changed_only_if_the_clock_was_set(behind_s, added_s):
    inbox = Inbox()
    with channel_to(LOCAL, inbox) as channel:
        wait_for_message(inbox, Hello)
        sent_at = time.time()
        channel.behind_s = behind_s
        channel.send(python_task("pass"))
        exited = wait_for_message(inbox, Exited).message
        assert sent_at - 0.1 <= exited.time - added_s <= time.time() + 0.1


@pytest.mark.slow
def test_a_clock_that_is_set_during_a_run_does_not_move_events(monkeypatch):
    inbox = Inbox()
    with channel_to(host("h1"), inbox) as channel:
        wait_for_message(inbox, Hello)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 1000.0)
        wait_for_message(inbox, Heartbeat)
        assert abs(channel.behind_s) < 60


def test_a_banner_is_not_the_reason_of_a_later_loss():
    inbox = Inbox()
    script = "echo '*** Authorized use only ***' >&2; exec \"$@\""
    with channel_to(host("h", script), inbox) as channel:
        wait_for_message(inbox, Hello)
        os.killpg(channel.process.pid, signal.SIGKILL)
        assert wait_for_message(inbox, AgentLost).message.reason == "its stream ended"


def test_the_last_words_after_the_banner_are_the_reason_of_a_loss():
    inbox, script = Inbox(), f"echo banner >&2; echo '{ALIVE % 1}'; {READ_STDIN}; echo 'client_loop: broken pipe' >&2"
    with channel_to(host("h", script), inbox) as channel:
        wait_for_message(inbox, Alive)
        channel.close_stdin()
        assert wait_for_message(inbox, AgentLost).message.reason == "client_loop: broken pipe"


def test_what_a_failed_login_printed_is_the_reason():
    inbox = Inbox()
    with channel_to(host("h", "echo 'Permission denied (publickey).' >&2; exit 255"), inbox):
        assert wait_for_message(inbox, AgentLost).message.reason == "Permission denied (publickey)."


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"kind": "output", "task": "worker-0", "stream": "../../x", "text": ""}', "not a message from an agent"),
        ("Broadcast message: the system will halt", "not a message from an agent"),
    ],
)
def test_an_agent_that_sends_no_messages_any_more_is_lost(line, reason):
    inbox = Inbox()
    with channel_to(fake_agent(ALIVE % 1, line, '{"kind": "heartbeat", "time": 5}'), inbox):
        assert reason in wait_for_message(inbox, AgentLost).message.reason
    with pytest.raises(Empty):  # nothing after the loss
        inbox.get(0.0)


def test_a_mistake_of_the_launcher_with_one_agent_does_not_concern_the_others(monkeypatch):
    def decode_badly(line):
        return {}["missing"] if b"terminated" in line else decode(line)

    monkeypatch.setattr("tfdist.launch.agents.channel.decode", decode_badly)
    inbox, other = Inbox(), Inbox()
    with (
        channel_to(fake_agent(ALIVE % 1, '{"kind": "terminated"}', HEARTBEAT), inbox) as channel,
        channel_to(LOCAL, other) as working,
    ):
        assert wait_for_message(inbox, AgentLost).message.reason == "KeyError('missing')"
        assert channel.ended.wait(60.0)
        wait_for_message(other, Hello)
        working.send(python_task("pass"))
        assert wait_for_message(other, Exited).message.code == 0


@pytest.mark.parametrize("before", ["", ALIVE % 1])
def test_a_line_without_end_does_not_eat_memory(before):
    inbox = Inbox()
    endless = f"exec head -c {3 * MAX_LINE} /dev/zero"
    with channel_to(fake_agent(before, then=endless), inbox):
        reason = wait_for_message(inbox, AgentLost, 60).message.reason
    assert len(reason) < 1100
    assert ("a line of more than 6 MiB" in reason) is bool(before)


def test_every_part_of_a_line_is_a_sign_of_life(tmp_path):
    inbox, go_on = Inbox(), tmp_path / "go on"
    part = f"until [ -e '{go_on}' ]; do sleep 0.05; done; printf '{{'; {READ_STDIN}; sleep 60"
    with channel_to(fake_agent(ALIVE % 1, then=part), inbox) as channel:
        wait_for_message(inbox, Alive)
        wait_until(lambda: channel.last_received < math.inf)
        before = channel.last_received
        go_on.touch()
        wait_until(lambda: channel.last_received > before)
        channel.silent = True  # do not wait for its end


def test_messages_that_nobody_reads_wait_in_their_host():
    inbox, last = Inbox(limit=1 << 20), '{"kind": "terminated"}'
    flood = f"yes '{HEARTBEAT}' | head -n 20000; echo '{last}'; {READ_STDIN}"
    with channel_to(fake_agent(ALIVE % 1, then=flood), inbox) as channel:
        wait_until(lambda: channel.last_received == math.inf and inbox.used > 100_000)
        assert inbox.used <= 1 << 20
        wait_for_message(inbox, Terminated)


def test_a_flood_on_stderr_does_not_fill_memory():
    inbox, memory = Inbox(), psutil.Process().memory_info().rss
    flood = f"head -c {64 << 20} /dev/zero | tr '\\0' x >&2; echo full >&2; exit 1"
    with channel_to(fake_agent(ALIVE % 1, then=flood), inbox):
        reason = wait_for_message(inbox, AgentLost, 60).message.reason
        assert reason.endswith("xfull")
        assert len(reason) <= MOST_REASON
        assert psutil.Process().memory_info().rss - memory < 32 << 20


def test_a_loss_has_the_time_of_the_last_message(tmp_path):
    inbox, go_on = Inbox(), tmp_path / "go on"
    wait = f"until [ -e '{go_on}' ]; do sleep 0.05; done"
    with channel_to(fake_agent(ALIVE % 1, then=wait), inbox) as channel:
        wait_for_message(inbox, Alive)
        heard_at = time.time()
        wait_until(lambda: time.time() > heard_at + 2.0)
        go_on.touch()
        assert wait_for_message(inbox, AgentLost).message.time < heard_at + 1.0
        assert channel.ended.wait(60.0)


def test_a_paused_agent_goes_on_when_the_inbox_is_emptied_in_between(monkeypatch):
    inbox = Inbox(limit=2000)
    lines = [HEARTBEAT] * 20

    def empty_first(act):
        while inbox.used:
            inbox.get(0.0)
        act()

    monkeypatch.setattr(inbox, "when_room", empty_first)
    with channel_to(fake_agent(ALIVE % 1, *lines, '{"kind": "terminated"}'), inbox) as channel:
        assert isinstance(wait_for_message(inbox, Terminated).message, Terminated)
        assert not channel.lost


def refuse(number):
    """STREAMS.call, which fails from the call of this number on."""
    real, calls = STREAMS.call, count(1)

    def call(*values, **named):
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, "No space left on device")  # as epoll says that a user watches too much
        real(*values, **named)

    return call


@pytest.mark.parametrize("number", [1, 2])
def test_an_agent_whose_pipes_cannot_be_watched_is_not_started(number, monkeypatch, survivors):
    STREAMS._running_epoll()  # else the first call opens it
    opened, watched = psutil.Process().num_fds(), dict(STREAMS._functions)
    monkeypatch.setattr(STREAMS, "call", refuse(number))
    with pytest.raises(TfdistError, match=r"^cannot run 'sh' \(No space left on device\)$"):
        Channel(fake_agent(ALIVE % 1), Inbox())
    assert (psutil.Process().num_fds(), STREAMS._functions) == (opened, watched)
    wait_until(lambda: survivors() == [])


def test_a_paused_agent_that_cannot_be_watched_again_is_lost(monkeypatch):
    inbox = Inbox(limit=1000)
    with channel_to(fake_agent(ALIVE % 1, HEARTBEAT, HEARTBEAT), inbox) as channel:
        wait_until(lambda: channel.last_received == math.inf)
        monkeypatch.setattr(STREAMS, "call", refuse(1))
        assert wait_for_message(inbox, AgentLost).message.reason == "No space left on device"


def test_a_paused_agent_sends_to_the_next_inbox(tmp_path):
    inbox, following = Inbox(limit=1000), Inbox()
    with channel_to(fake_agent(ALIVE % 1, HEARTBEAT, '{"kind": "terminated"}'), inbox) as channel:
        wait_until(lambda: channel.last_received == math.inf)
        channel.deliver_to(following)
        wait_for_message(following, Terminated)


@pytest.mark.slow
def test_a_message_larger_than_a_pipe_arrives_whole_and_in_order():
    inbox = Inbox()
    with channel_to(LOCAL, inbox) as channel:
        wait_for_message(inbox, Hello)
        for number in range(3):
            text = str(number) * (1 << 20)
            code = "import os, sys; sys.exit(len(set(os.environ['TEXT'])) * 10 + int(os.environ['TEXT'][0]))"
            texts = {f"TEXT{part}": text[: 1 << 16] for part in range(16)}
            channel.send(python_task(code, f"worker-{number}", {"TEXT": text[: 1 << 16], **texts}))
        codes = {}
        while len(codes) < 3:
            exited = wait_for_message(inbox, Exited).message
            codes[exited.task] = exited.code
    assert codes == {"worker-0": 10, "worker-1": 11, "worker-2": 12}


def test_a_loss_is_reported_once():
    inbox = Inbox()
    leaving = '{"kind": "leaving", "reason": "no space"}'
    with channel_to(fake_agent(ALIVE % 1, leaving, then="exit 1"), inbox) as channel:
        assert wait_for_message(inbox, AgentLost).message.reason == "no space"
        wait_until(channel.ended.is_set)
        with pytest.raises(Empty):
            inbox.get(0.0)


def test_all_output_arrives_although_the_consumer_is_slow():
    inbox = Inbox(limit=1 << 16)
    code = "for n in range(20000): print(f'{n:0100d}')"
    with channel_to(host("h"), inbox) as channel:
        wait_for_message(inbox, Alive)
        channel.send(python_task(code))
        text, arrival = "", None
        while arrival is None or not isinstance(arrival.message, Exited):
            arrival = inbox.get(20.0)
            text += arrival.message.text if isinstance(arrival.message, Output) else ""
            time.sleep(0.001)
    assert text == "".join(f"{n:0100d}\n" for n in range(20000))


def test_the_last_words_of_a_chatty_agent_are_its_last_ones():
    inbox = Inbox()
    words = f"{READ_STDIN}; yes chatter | head -c 200000 >&2; echo 'no space left' >&2; exit 1"
    with channel_to(fake_agent(ALIVE % 1.0, then=words), inbox) as channel:
        wait_for_message(inbox, Alive)  # what comes before it would count as a banner
        channel.close_stdin()
        lost = wait_for_message(inbox, AgentLost).message
    assert lost.reason.endswith("no space left")
    assert len(lost.reason) < 50_000


@pytest.mark.parametrize("drift", [-5e-5, 0.0, 5e-5])
def test_the_offset_of_a_clock_follows_its_drift_and_not_slow_messages(drift):
    offset_s = math.inf
    for second in range(0, 86400, 2):
        latency_s = 3.0 if 40000 < second < 40100 or second % 10 else 0.001  # 100 s of slow messages
        offset_s = updated_offset(offset_s, 2.0, 5.0 + drift * second + latency_s)
        assert 0.0 < offset_s - (5.0 + drift * second) < 0.05


@pytest.mark.parametrize("end", [lambda channel: channel.shield(False), Channel.close_stdin])
def test_the_process_that_carries_an_agent_is_shielded_until_its_end(end):
    inbox = Inbox()
    with channel_to(host("srun", needs_shield=True), inbox) as channel:
        wait_for_message(inbox, Hello)
        before = open_files(channel.process.pid)
        channel.shield(True)
        channel.shield(True)
        assert open_files(channel.process.pid)[0] < 64
        end(channel)
        assert open_files(channel.process.pid) == before


def test_only_what_kills_its_agent_is_shielded():
    inbox = Inbox()
    with channel_to(host("ssh"), inbox) as channel:
        wait_for_message(inbox, Hello)
        before = open_files(channel.process.pid)
        channel.shield(True)
        assert open_files(channel.process.pid) == before
