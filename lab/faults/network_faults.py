"""Faults of links between hosts."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from lab.faults.live import Live
from lab.faults.scenario import Fault, Scenario
from tests.integration.nethost import NetHost, environment

PAUSE_S = 5.0
SLOW_MBIT = 1.0


def _host(live: Live, name: str) -> NetHost:
    return next(host for host in live.box.network.hosts if host.name == name)


def _cut(*names: str) -> Callable[[Live, Scenario], None]:
    def inject(live: Live, scenario: Scenario) -> None:
        for name in names:
            live.box.undo.enter_context(_host(live, name).down())

    return inject


def _interrupt(live: Live, scenario: Scenario) -> None:
    """Cut the link of h2, and restore it after PAUSE_S."""
    cut = ExitStack()
    cut.enter_context(_host(live, "h2").down())
    restore = threading.Timer(PAUSE_S, cut.close)
    restore.start()
    live.box.undo.callback(restore.join)


def _slow(live: Live, scenario: Scenario) -> None:
    live.box.undo.enter_context(_host(live, "h2").limit_mbit(SLOW_MBIT))


@contextmanager
def _isolated_from_hub(host: NetHost) -> Iterator[None]:
    """Drop what the launcher's namespace sends to a host and receives from it; other hosts still reach it."""
    rules = [("input", f"ip saddr {host.address} drop"), ("output", f"ip daddr {host.address} drop")]
    nft = ("ip", "netns", "exec", host.hub, "nft")
    lines = ["add table inet cut"]
    for chain, rule in rules:
        lines += [
            f"add chain inet cut {chain} {{ type filter hook {chain} priority 0; }}",
            f"add rule inet cut {chain} {rule}",
        ]
    subprocess.run([*nft, "-f", "-"], input="\n".join(lines), text=True, check=True, env=environment())
    try:
        yield
    finally:
        subprocess.run([*nft, "delete", "table", "inet", "cut"], check=True, env=environment())


def _cut_off_launcher(live: Live, scenario: Scenario) -> None:
    live.box.undo.enter_context(_isolated_from_hub(_host(live, "h2")))


LINK_CUT = Fault("link-cut", "The link of h2 is cut: packets are lost, no connection is closed", _cut("h2"))
LINK_PAUSE = Fault("link-down-5-s", f"The link of h2 is down for {PAUSE_S:g} s and comes back", _interrupt)
LINK_SLOW = Fault("link-at-1-mbit", f"The link of h2 is limited to {SLOW_MBIT:g} Mbit/s (tc tbf)", _slow)
TWO_HOSTS_CUT = Fault("several-hosts", "The links of h2 and h3 are cut at once", _cut("h2", "h3"))
LAUNCHER_CUT_OFF = Fault(
    "launcher-cut-off", "The launcher no longer reaches h2; the other hosts still do", _cut_off_launcher
)
