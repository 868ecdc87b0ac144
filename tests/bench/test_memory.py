"""Which arms fit into memory together."""

from dataclasses import replace

from tfdist.bench.memory import Memory
from tfdist.bench.turns import HostReading, Parked
from tfdist.launch.agents.messages import Inspected

GB = 10**9


def parked(record, available: int, *sizes: int, total: int = 20 * GB) -> Parked:
    resident = {f"worker-{index}": size for index, size in enumerate(sizes)}
    reading = Inspected(dict.fromkeys(resident, "S"), {}, {}, resident, {"available_bytes": float(available)}, 1.0)
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
