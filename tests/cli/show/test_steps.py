from io import StringIO
from types import SimpleNamespace

from tfdist.cli.show import steps
from tfdist.cli.show.steps import Steps, connecting
from tfdist.launch.hosts.host import Host

HOSTS = [Host(f"h{number}") for number in range(1, 65)]


class Terminal(StringIO):
    def isatty(self):
        return True


def visible(out):
    """Steps that print at once."""
    shown = Steps(out, patience_s=60.0)
    shown._visible = True
    return shown


def test_connecting_shows_how_many_hosts_are_ready():
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


def test_updates_print_few_lines_where_they_are_not_overwritten(monkeypatch):
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
