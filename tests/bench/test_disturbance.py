import pytest

from tfdist.bench.disturbance import disturbances, disturbed
from tfdist.models.record import HostUsage, TurnRecord, Window


def windows(*step_s: float) -> tuple[Window, ...]:
    return tuple(Window(4, 40, 4 * seconds, None) for seconds in step_s)


def host(others: float = 0.0, steal: float = 0.0) -> HostUsage:
    """Two cores for 10 s, half of them used by the arm."""
    return HostUsage(10.0, 2, {"worker-0": 10.0}, 10.0 + 20 * others, 20 * steal)


def reason(*step_s: float, usage: HostUsage | None = None) -> str:
    return disturbed(TurnRecord("a", 1, 1, 1, 1, "", {"worker-0": windows(*step_s)}, (usage or host(),)))


STEADY = (0.1, 0.1, 0.1, 0.1, 0.1)


def test_a_steady_turn_on_a_quiet_machine_is_not_disturbed() -> None:
    assert reason(*STEADY) == ""
    assert reason(*STEADY, usage=host(others=0.04, steal=0.04)) == ""


def test_each_disturbance_has_its_reason() -> None:
    assert reason(*STEADY, usage=host(others=0.12)) == "other programs used 12% of the cores"
    assert reason(*STEADY, usage=host(steal=0.07)) == "other virtual machines took 7% of the cores"
    assert reason(0.1, 0.1, 0.1, 0.11, 0.11) == "its second half was 10% slower than its first"
    assert reason(0.11, 0.11, 0.1, 0.1, 0.1, usage=host(others=0.5)).count(";") == 1


def test_a_drift_may_be_uneven() -> None:
    assert "12% slower" in reason(0.246, 0.246, 0.257, 0.263, 0.253, 0.274, 0.312)


def test_the_busiest_host_counts() -> None:
    assert disturbances({}, (host(), host(others=0.3)))[0].share == pytest.approx(0.3)


@pytest.mark.parametrize(
    "times",
    [
        (0.1, 0.104, 0.1, 0.1, 0.104),  # noise
        (0.1, 0.1, 0.1, 0.1, 0.5),  # one slow window
        (0.1, 0.2),  # too few to tell noise and drift apart
        (),
    ],
)
def test_noise_is_no_drift(times: tuple[float, ...]) -> None:
    assert reason(*times) == ""


def test_ranks_are_counted_together_and_empty_windows_skipped() -> None:
    one, other = windows(0.1, 0.1, 0.1, 0.1), windows(0.1, 0.1, 0.12, 0.12)
    (found,) = disturbances({"worker-0": one, "worker-1": other}, ())
    assert found.share == pytest.approx(0.1)
    empty = Window(0, 0, 0.5, None)
    assert disturbances({"chief-0": (empty, *one, empty)}, ()) == ()
