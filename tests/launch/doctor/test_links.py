"""LinkSpeed ways between hosts; two agents of this machine stand in for two hosts."""

import sys

import pytest

from tfdist.launch.agents.fleet import connect
from tfdist.launch.doctor.links import Link, neighbours, slowest
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

H1, H2, H3 = (Host(name, "127.0.0.1", python=sys.executable) for name in ("h1", "h2", "h3"))


def test_a_link_is_measured_between_two_agents() -> None:
    with connect([H1, H2]) as fleet:
        links = neighbours(fleet, [H1, H2])
    assert list(links) == [(H1, H2)]
    assert links[H1, H2].bytes_per_s > 1e6
    assert 0 < links[H1, H2].rtt_s < 1


def test_a_peer_that_cannot_be_reached_is_named() -> None:
    away = Host("away", "256.1.1.1", python=sys.executable)
    with connect([H1, away]) as fleet, pytest.raises(TfdistError, match=r"h1 cannot reach 256\.1\.1\.1"):
        neighbours(fleet, [H1, away])


def test_the_slowest_link_among_neighbours_counts() -> None:
    links = {(H1, H2): Link(0.001, 100.0), (H2, H3): Link(0.002, 50.0)}
    assert slowest(links, [H1, H2]) == {"bytes_per_s": 100.0, "rtt_s": 0.001}
    assert slowest(links, [H1, H2, H3]) == {"bytes_per_s": 50.0, "rtt_s": 0.002}
    assert slowest(links, [H1]) == slowest(links, [H1, H3]) == {}


def test_a_link_in_words() -> None:
    assert Link(0.00021, 117.6e6).in_words() == "941 Mbit/s, 0.21 ms"
