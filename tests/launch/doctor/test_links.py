"""Measured links; two agents on this machine stand in for two hosts."""

import sys

import pytest

from tfdist.launch.agents.connect import connect
from tfdist.launch.doctor.links import Link, slowest
from tfdist.launch.doctor.preflight import measure_neighbours
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

H1, H2, H3 = (Host(name, "127.0.0.1", python=sys.executable) for name in ("h1", "h2", "h3"))


def test_a_link_is_measured_between_two_agents() -> None:
    with connect([H1, H2]) as fleet:
        links = measure_neighbours(fleet, [H1, H2])
    assert list(links) == [(H1, H2)]
    assert links[H1, H2].bytes_per_s > 1e6
    assert 0 < links[H1, H2].rtt_s < 1


def test_an_unreachable_neighbour_is_named() -> None:
    away = Host("away", "256.1.1.1", python=sys.executable)
    with connect([H1, away]) as fleet, pytest.raises(TfdistError, match=r"h1 cannot reach away at 256\.1\.1\.1"):
        measure_neighbours(fleet, [H1, away])


def test_the_slowest_link_among_neighbours_counts() -> None:
    links = {(H1, H2): Link(0.001, 100.0), (H2, H3): Link(0.002, 50.0)}
    assert slowest(links, [H1, H2]) == {"bytes_per_s": 100.0, "rtt_s": 0.001}
    assert slowest(links, [H1, H2, H3]) == {"bytes_per_s": 50.0, "rtt_s": 0.002}
    assert slowest(links, [H1]) == slowest(links, [H1, H3]) == {}


def test_a_link_as_text() -> None:
    assert str(Link(0.00021, 117.6e6)) == "941 Mbit/s, 0.21 ms"
