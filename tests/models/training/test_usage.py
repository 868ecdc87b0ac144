from dataclasses import replace

from tfdist.models.record import GpuReading
from tfdist.models.training import usage
from tfdist.models.training.usage import Reading

GPU = GpuReading(0, 1 << 30, 0.9, 250.0, 1000.0, 1410, "")


def test_a_window_has_the_energy_that_its_gpus_used_in_it():
    start = Reading(1.0, 2.0, 0.0, 5, (GPU, replace(GPU, index=1, energy_j=None)))
    later = (replace(GPU, energy_j=1125.5, power_w=300.0), replace(GPU, index=1, energy_j=None), replace(GPU, index=2))
    found = usage.between(start, Reading(1.5, 4.0, 0.1, 7, later))
    assert (found.cpu_s, found.busy_s, found.steal_s, found.resident_bytes) == (0.5, 2.0, 0.1, 7)
    assert [(gpu.index, gpu.energy_j, gpu.power_w) for gpu in found.gpus] == [
        (0, 125.5, 300.0), (1, None, 250.0), (2, None, 250.0),
    ]  # fmt: skip


def test_a_reading_without_gpus_has_none():
    assert usage.read().gpus == ()
