"""The length of turns, and what the hosts used meanwhile."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.turns import HostReading, Memory, Parked, plan_turn, plan_warmup
from tfdist.launch.agents.messages import Inspected
from tfdist.launch.events import Turn

GB = 10**9


def parked(record, available: int, *sizes: int, total: int = 20 * GB, gpu_free: int | None = None) -> Parked:
    resident = {f"worker-{index}": size for index, size in enumerate(sizes)}
    host = {"available_bytes": float(available)}
    host |= {} if gpu_free is None else {"gpu_free_bytes": float(gpu_free), "gpu_total_bytes": 80.0 * GB}
    reading = Inspected(dict.fromkeys(resident, "S"), {}, {}, resident, host, time=1.0)
    record = replace(record, hardware={"memory_bytes": total})
    return Parked("a", 0.1, {}, (HostReading(None, reading),), record)


def test_the_first_arm_always_starts():
    assert Memory().fits(1000, [])


def test_an_arm_fits_if_the_reserve_stays_free(make_record):
    memory = Memory()
    memory.update(parked(make_record(), 8 * GB, GB // 2))
    assert memory.fits(6, []), "6 GB of 8, with 2 GB in reserve"
    assert not memory.fits(7, [])
    assert not memory.fits(6, [1]), "one that is starting needs memory, too"
    assert memory.fits(12, [], hosts=2)


def test_processes_are_as_large_as_the_largest_so_far_with_headroom(make_record):
    memory = Memory()
    memory.update(parked(make_record(), 8 * GB, GB, 2 * GB))
    memory.update(parked(make_record(), 8 * GB, GB))
    assert memory.process_bytes == int(2.4 * GB)
    assert memory.fits(2, [])
    assert not memory.fits(3, [])


def test_arms_share_the_memory_of_gpus(make_record):
    memory = Memory()
    memory.update(parked(make_record(), 100 * GB, GB, gpu_free=60 * GB))
    assert memory.fits(1, []), "an arm took 20 of 80 GB, so the next one needs 24"
    memory.update(parked(make_record(), 100 * GB, GB, gpu_free=31 * GB))
    assert not memory.fits(1, []), "it took 29, so the next one would leave none"


@pytest.mark.parametrize(
    ("step_s", "turn"),
    [
        (0.1, Turn(5, 5)),
        (0.01, Turn(5, 50)),
        (0.3, Turn(3, 3)),
        (2.0, Turn(1, 3)),  # a window has 3 steps, however long they take
        (0.0, Turn(5, 500_000)),
    ],
)
def test_turns_of_two_and_a_half_seconds(step_s, turn):
    assert plan_turn(2.5, step_s, 0.5) == turn


@given(st.floats(0.1, 60), st.floats(1e-4, 10), st.floats(0.01, 5))
def test_windows_are_long_enough_and_the_turn_is_about_as_long_as_wanted(seconds, step_s, window_s):
    turn = plan_turn(seconds, step_s, window_s)
    window = turn.steps * step_s
    assert turn.steps >= 3
    assert window >= window_s * (1 - 1e-9)
    assert abs(turn.windows * window - seconds) <= max(window, seconds) / 2 + window / 2


def test_the_warm_up_is_one_window():
    assert plan_warmup(3.0, 0.4) == Turn(1, 8)
    assert plan_warmup(3.0, 9.0) == Turn(1, 1)


def inspected(time: float, cpu: dict[str, float], busy: float, steal: float) -> Inspected:
    host = {"busy_s": busy, "steal_s": steal, "cores": 2.0, "available_bytes": 4e9}
    return Inspected(dict.fromkeys(cpu, "S"), {}, cpu, dict.fromkeys(cpu, 10**9), host, time=time)


def test_what_others_used_is_the_rest_of_the_busy_time():
    before = inspected(100.0, {"worker-0": 5.0, "ps-0": 1.0}, 1000.0, 7.0)
    after = inspected(102.0, {"worker-0": 6.5, "ps-0": 1.5}, 1003.0, 7.2)
    usage = HostReading(before, after).usage
    assert usage is not None
    assert usage.cpu_s == {"worker-0": 1.5, "ps-0": 0.5}
    assert usage.others == pytest.approx(0.25)
    assert usage.steal == pytest.approx(0.05)


def test_the_first_parking_has_no_usage():
    assert HostReading(None, inspected(1.0, {"worker-0": 1.0}, 1.0, 0.0)).usage is None
