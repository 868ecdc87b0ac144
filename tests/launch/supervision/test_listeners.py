import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import get_args, get_origin, get_type_hints

import pytest

from tests.launch.jobs import QUICK, python_job
from tests.launch.supervisors import supervisor_of
from tfdist.launch.agents.inbox import Inbox, Note, Stopped, readable
from tfdist.launch.agents.messages import Event, Exited, FromAgent, Inspected, Output, Reply, StacksDumped
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.listeners import Listeners
from tfdist.launch.supervision.run_tasks import launch
from tfdist.launch.supervision.straggler_watch import StragglerWatch
from tfdist.launch.supervision.supervise import supervise

MESSAGE = Note("h", "x")


def test_the_first_failure_of_each_is_one_line_that_is_kept_and_shown():
    shown, kept = [], []

    def broken(message):
        raise KeyError("a\nb \udc80 TOKEN=secret" + 1000 * "x")

    listeners = Listeners({"metrics": broken, "facts": broken, "console": shown.append}, kept.append)
    for _ in range(3):
        listeners(MESSAGE)
    assert [message for message in shown if message == MESSAGE] == 3 * [MESSAGE]
    lines = [message.text for message in shown if message != MESSAGE]
    assert [line.split(" failed ")[0] for line in sorted(lines)] == ["facts", "metrics"]
    assert sorted(note.text for note in kept) == sorted(lines)
    for line in lines:
        assert "KeyError" in line
        assert "test_listeners.py:" in line
        assert not any(text in line for text in ("secret", "\n", "\udc80"))
        assert len(line) < 400


def test_the_listener_that_shows_the_lines_may_fail_itself():
    kept = []

    def broken(message):
        raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")

    Listeners({"console": broken}, kept.append)(MESSAGE)
    assert len(kept) == 1


def test_what_the_launcher_quotes_of_a_task_can_be_shown():
    shown, kept = [], []
    Listeners({"console": shown.append}, kept.append).announce(Stopped(("worker-0",), reason="worker-0: caf\udce9"))
    assert shown == kept == [Stopped(("worker-0",), reason="worker-0: caf\ufffd")]


def test_a_refusal_that_is_meant_passes():
    def refuse(message):
        raise TfdistError("worker-0 sent an incomplete turn")

    with pytest.raises(TfdistError, match="incomplete turn"):
        Listeners({"arm": refuse}, pytest.fail)(MESSAGE)


def test_texts_are_readable_and_output_keeps_its_bytes():
    event = Event("t", 1.0, {"event": "step", "gpus": [{"\udc80": "\ud800x", "n": (1, "\udcff")}]}, attempt=2)
    assert readable(event) == Event(
        "t", 1.0, {"event": "step", "gpus": [{"\ufffd": "\ufffdx", "n": (1, "\ufffd")}]}, attempt=2
    )
    assert readable(StacksDumped({"t": "\udc80"}, request=3)) == StacksDumped({"t": "\ufffd"}, request=3)
    output = Output("t", "stdout", "caf\udce9\n")
    assert readable(output) is output


ODD = r"""
import os, time
send = lambda text: os.write(int(os.environ["TFDIST_EVENTS_FD"]), text + b"\n")
send(rb'{"event":"step","step":1,"gpus":[{"index":"\udc80"}],"\udc80":["\udcff"]}')
send(rb'{"event":"x"}')
"""


@pytest.mark.slow
@pytest.mark.core
def test_a_listener_that_fails_does_not_end_the_job(tmp_path):
    seen = []

    def broken(message):
        if isinstance(message, Event):
            raise RuntimeError("broken")

    with RunWriter(RunDir(tmp_path / "run")) as writer:
        outcome = launch(
            python_job(ODD, {"worker": 1}, cluster=False), writer, QUICK, {"broken": broken, "test": seen.append}
        )
    assert outcome.status is Status.OK, outcome.reason
    step, other = (message.event for message in seen if isinstance(message, Event))
    assert step == {"event": "step", "step": 1, "gpus": [{"index": "\ufffd"}], "\ufffd": ["\ufffd"]}
    assert other == {"event": "x"}
    (note,) = (message.text for message in seen if isinstance(message, Note))
    assert note.startswith("broken failed (RuntimeError: broken, test_listeners.py:")
    assert note in (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")


def test_a_failure_of_the_straggler_watch_is_a_line(monkeypatch):
    supervisor, _ = supervisor_of({"worker": 2})
    shown, tasks = [], supervisor.tasks
    listeners = Listeners({"console": shown.append}, lambda _: None)
    tasks.isolate, tasks.announce = listeners.isolate, listeners.announce
    monkeypatch.setattr(StragglerWatch, "_note", lambda *_: 1 / 0)
    monkeypatch.setattr(StragglerWatch, "_look", lambda *_: 1 / 0)
    supervisor.stragglers.start(0.0)
    supervisor.handle(Event("worker-0", 0.0, {"event": "step", "step": 1}))
    supervisor.deadlines.run_due(time.monotonic() + 3.0)
    (note,) = shown
    assert note.text.startswith("straggler watch failed (ZeroDivisionError: division by zero, ")


def test_a_host_reports_only_about_the_tasks_that_it_was_asked_about(tmp_path):
    """A host that has been taken over speaks of a task of another one."""
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.tasks.channels = {"worker-0": channel, "worker-1": type(channel)(Host("h2", "10.0.0.2"))}
    supervisor.inbox = Inbox()
    counted, dumped, seen = [], [], []
    supervisor.tasks.inspect()
    supervisor.tasks.count(counted.append)
    supervisor.tasks.dump_stacks(dumped.append)
    inspect, count, dump = (message.request for message in channel.sent)
    both = ("worker-0", "worker-1", "worker-9")
    texts, numbers = dict.fromkeys(both, "T"), dict.fromkeys(both, 7)
    lie = Inspected(texts, texts, numbers, numbers, {"cores": 4.0}, {task: {"time_s": 1.0} for task in both})

    for message in (replace(lie, request=inspect), replace(lie, request=count), StacksDumped(texts, request=dump)):
        supervisor.inbox.put(channel.host, message)
    for task, name in (("worker-0", "localhost"), ("worker-1", "h2")):
        source = next(each.host for each in supervisor.tasks.channels.values() if each.host.name == name)
        supervisor.inbox.put(source, Exited(task, 0, 1.0, 0, 0.0))
    with RunWriter(RunDir(tmp_path / "run")) as writer:
        supervise(supervisor, writer, seen.append)
    heard = [message for message in seen if isinstance(message, Inspected | StacksDumped)]
    assert len(heard) == 3
    for message in (*heard, *counted, *dumped):
        for name in message.by_task:
            assert set(getattr(message, name)) == {"worker-0"}, name
    assert heard[0].host == {"cores": 4.0}
    assert set(supervisor.tasks.history.states) == {"worker-0"}
    assert "worker-9" not in (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")


def test_every_map_by_task_of_a_reply_is_filtered():
    """A new field with a value for each task must be named in `by_task`."""
    others = {(Inspected, "host")}  # of the host
    for kind in get_args(FromAgent):
        if issubclass(kind, Reply):
            maps = {
                each.name
                for each in fields(kind)
                if get_origin(get_type_hints(kind)[each.name]) is Mapping and (kind, each.name) not in others
            }
            assert maps == set(kind.by_task), kind
