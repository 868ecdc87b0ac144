from dataclasses import replace

import numpy as np
import pytest

from tests.bench.predict.sweeps import RING, sweep
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.predict.ring import Ring, RingFit, RingLink, fit_ring, ring_lines
from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import Communication


def fitted(made: Sweep, size: float, draws: int = 2) -> RingFit:
    return fit_ring(ring_lines(made, Communication.RING, gpus=False), RingLink.of(made.header.link), size, draws)


def test_a_ring_of_four_sends_three_halves_of_the_buffer_in_six_messages() -> None:
    ring = Ring(0.001, 0.0001, 1e-8)
    assert float(ring.seconds(4, 14.02e6)) == pytest.approx(0.001 + 6 * 0.0001 + 1.5 * 0.1402)
    assert float(ring.seconds(4, 14.02e6, operations=3)) == pytest.approx(3 * (0.001 + 6 * 0.0001) + 1.5 * 0.1402)
    assert ring.seconds(np.array([1, 2]), 1e8).tolist() == [0.0, pytest.approx(0.0012 + 1.0)]


def test_the_terms_of_a_measured_ring_are_found() -> None:
    fit = fitted(sweep(), 14e6, draws=50)
    assert fit.ring.latency_s == pytest.approx(300e-6, rel=0.05)
    assert fit.ring.seconds_per_byte == pytest.approx(1e-8, rel=0.05)
    assert (fit.ring.fixed_s, fit.ranks, fit.sizes) == (0.0, (2,), (1024, 2**26))
    assert fit.error < 0.03
    assert 0.001 < np.std([ring.seconds_per_byte for ring in fit.draws]) / 1e-8 < 0.05


def test_several_numbers_of_ranks_tell_latency_from_fixed_costs() -> None:
    true = Ring(fixed_s=0.002, latency_s=300e-6, seconds_per_byte=1e-8)
    fit = fitted(sweep(true, ranks=(2, 3, 4), noise=0.01), 1e5)
    assert fit.ring.fixed_s == pytest.approx(0.002, rel=0.1)
    assert fit.ring.latency_s == pytest.approx(300e-6, rel=0.1)


def test_another_link_replaces_only_what_the_link_took() -> None:
    measured, slow = RingLink(120e6, 100e-6), RingLink(12e6, 1e-3)
    ring = RING.over(measured, slow)
    own = 1e-8 - 1 / 120e6
    assert ring.seconds_per_byte == pytest.approx(own + 1 / 12e6)
    assert ring.latency_s == pytest.approx(200e-6 + 1e-3)
    back = ring.over(slow, measured)
    assert (back.latency_s, back.seconds_per_byte) == (pytest.approx(300e-6), pytest.approx(1e-8))


def test_of_a_single_host_all_of_it_is_the_processes_own_work() -> None:
    assert RING.over(RingLink(), RingLink(1e9, 1e-3)).seconds_per_byte == pytest.approx(1e-8 + 1e-9)
    assert RING.over(RingLink(1e6), RingLink()).seconds_per_byte == 0.0  # never less than nothing


def test_a_sweep_of_one_size_is_refused() -> None:
    made = sweep()
    with pytest.raises(
        TfdistError, match=r"the sweep has 4 correct all-reduces by ring .*--communication ring --sizes 1K:64M"
    ):
        fitted(replace(made, lines=tuple(line for line in made.lines if line.bytes == 1024)), 1e6)


def test_only_right_results_of_the_same_communication_are_fitted() -> None:
    made = sweep(noise=0.0)
    others = [replace(line, seconds=9.0, communication="nccl") for line in made.lines]
    others += [replace(line, seconds=9.0, wrong=1) for line in made.lines]
    auto = [replace(line, communication="auto") for line in made.lines]
    assert fitted(replace(made, lines=(*made.lines, *others)), 14e6).ring == fitted(made, 14e6).ring
    assert fitted(replace(made, lines=tuple(auto)), 14e6).ring == fitted(made, 14e6).ring
    assert len(ring_lines(replace(made, lines=(*auto, *others)), Communication.AUTO, gpus=True)) == 2 * len(auto)
