from io import StringIO
from types import SimpleNamespace

import pytest

from tfdist.cli.show import steps
from tfdist.cli.show.steps import Steps, connecting
from tfdist.launch.hosts.host import Host

HOSTS = [Host(f"h{number}") for number in range(1, 65)]


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.fixture
def visible(monkeypatch):
    """Makes steps that print at once."""
    monkeypatch.setattr("threading.Timer", lambda delay, function: SimpleNamespace(start=function, daemon=True))
    return lambda out: Steps(out).__enter__()


def test_connecting_shows_how_many_hosts_are_ready(visible):
    out = Terminal()
    update = connecting(HOSTS, visible(out))
    update(HOSTS)
    update(HOSTS[60:])
    update([])
    lines = out.getvalue().split("\r\x1b[K")[1:]
    assert lines == [
        "connecting to h1, h2, h3, h4 and 60 more ...",
        "connecting to h61, h62, h63, h64; 60 of 64 are ready ...",
    ]


def test_a_narrow_terminal_gets_whole_names_of_hosts(visible, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    connecting([Host(f"gpu-node-012{number}.cluster.example.com") for number in range(4)], visible(out))
    assert out.getvalue() == "\r\x1b[Kconnecting to gpu-node-0120.cluster.example.com, ..."


def test_updates_print_few_lines_where_they_are_not_overwritten(monkeypatch, visible):
    out, now = StringIO(), [0.0]
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: now[0]))
    update = connecting(HOSTS, visible(out))
    for ready in range(64):
        now[0] += 0.125
        update(HOSTS[ready:])
    assert out.getvalue().splitlines() == [
        "connecting to h1, h2, h3, h4 and 60 more ...",
        "connecting to h40, h41, h42, h43 and 21 more; 39 of 64 are ready ...",
    ]
