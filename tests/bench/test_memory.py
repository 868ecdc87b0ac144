"""Which arms fit into memory together."""

from dataclasses import replace

from tfdist.bench.memory import Memory
from tfdist.bench.turns import HostReading, Parked
from tfdist.launch.agents.messages import Inspected

GB = 10**9


def parked(record, available: int, *sizes: int, total: int = 20 * GB, gpu_free: int | None = None) -> Parked:
    resident = {f"worker-{index}": size for index, size in enumerate(sizes)}
    host = {"available_bytes": float(available)}
    host |= {} if gpu_free is None else {"gpu_free_bytes": float(gpu_free), "gpu_total_bytes": 80.0 * GB}
    reading = Inspected(dict.fromkeys(resident, "S"), {}, {}, resident, host, 1.0)
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
