"""The speed of the network between two hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tfdist.launch.hosts.host import Host


@dataclass(frozen=True)
class Link:
    """The link from one host to another, measured with one TCP stream."""

    rtt_s: float
    bytes_per_s: float

    def __str__(self) -> str:
        """`941 Mbit/s, 0.21 ms`."""
        return f"{self.bytes_per_s * 8 / 1e6:,.0f} Mbit/s, {self.rtt_s * 1e3:.2f} ms"


Links = Mapping[tuple[Host, Host], Link]


def slowest(links: Links, hosts: Sequence[Host]) -> dict[str, float]:
    """Lowest bytes_per_s and highest rtt_s between neighbours in `hosts`; empty if none was measured."""
    measured = [links[pair] for pair in pairwise(hosts) if pair in links]
    if not measured:
        return {}
    return {
        "bytes_per_s": min(link.bytes_per_s for link in measured),
        "rtt_s": max(link.rtt_s for link in measured),
    }
