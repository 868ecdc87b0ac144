"""How good the way between two hosts is: a short measured transfer between their agents."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.messages import CloseProbe, LinkSpeed, MeasureLink, NotReserved, Prepare, Reserve, Reserved
from tfdist.launch.agents.package import package_text
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host

SECONDS = 1.0
"""Of sending: long enough for TCP to find its pace on a local network."""


@dataclass(frozen=True)
class Link:
    """From one host to another, with one TCP stream."""

    rtt_s: float
    bytes_per_s: float

    def in_words(self) -> str:
        """`941 Mbit/s, 0.21 ms`."""
        return f"{self.bytes_per_s * 8 / 1e6:,.0f} Mbit/s, {self.rtt_s * 1e3:.2f} ms"


Links = Mapping[tuple[Host, Host], Link]


def neighbours(fleet: Fleet, hosts: Sequence[Host]) -> Links:
    """From each of these hosts to the next, one after the other.

    Raises:
        TfdistError: one cannot reach the next.
    """
    elsewhere = [host for host in hosts if host.needs_package]
    fleet.ask({host: Prepare(package_text(), "/", True) for host in elsewhere}, "unpack tfdist", fleet.policy.hello_s)
    return {(one, other): measure(fleet, one, other) for one, other in pairwise(hosts)}


def measure(fleet: Fleet, one: Host, other: Host, seconds: float = SECONDS) -> Link:
    """From `one` to `other`, both of which have our package.

    Raises:
        TfdistError: it could not be measured.
    """
    token = os.urandom(16).hex()
    listening = fleet.ask({other: Reserve((0,), token)}, "reserve a port", fleet.policy.hello_s)[other]
    if isinstance(listening, NotReserved):
        raise TfdistError(f"{other.name} has no free port ({listening.reason})", ExitCode.HOST_LOST)
    assert isinstance(listening, Reserved)
    question = MeasureLink(other.address, listening.ports[0], token, seconds)
    measured = fleet.ask({one: question}, "measure the way to a peer", seconds * 2 + fleet.policy.hello_s)[one]
    fleet.channels[other].send(CloseProbe())
    assert isinstance(measured, LinkSpeed)
    if measured.reason:
        raise TfdistError(
            f"{one.name} cannot reach {other.endpoint(listening.ports[0])} on {other.name}: {measured.reason}",
            ExitCode.HOST_LOST,
        )
    return Link(measured.rtt_s, measured.bytes_per_s)


def slowest(links: Links, hosts: Sequence[Host]) -> dict[str, float]:
    """The fewest bytes a second and the longest round trip between neighbours among `hosts`; empty if not measured."""
    own = [asdict(links[pair]) for pair in pairwise(hosts) if pair in links]
    if not own:
        return {}
    return {"bytes_per_s": min(link["bytes_per_s"] for link in own), "rtt_s": max(link["rtt_s"] for link in own)}
