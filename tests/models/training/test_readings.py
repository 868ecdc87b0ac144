import inspect
import sys
import time

import pytest

from tfdist.launch.agent_program import gpus as agent
from tfdist.models.record import GpuReading
from tfdist.models.training import readings

from .fake_nvml import FakeNvml


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A function that sets up two GPUs with this NVML and CUDA_VISIBLE_DEVICES."""

    def set_up(nvml, visible=None, order="PCI_BUS_ID"):
        for index in range(2):
            (tmp_path / f"nvidia{index}").touch()
        monkeypatch.setattr(agent, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
            monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
        readings.open_gpus.cache_clear()

    yield set_up
    readings.open_gpus.cache_clear()


def indices():
    return [reading.index for reading in readings.gpu_readings()]


def test_the_fake_has_the_names_and_signatures_of_nvidia_ml_py():
    import pynvml

    functions = [name for name in vars(FakeNvml) if name.startswith("nvml")]
    for name in functions:
        real = list(inspect.signature(getattr(pynvml, name)).parameters)
        fake = list(inspect.signature(getattr(FakeNvml(), name)).parameters)
        assert real in (fake, ["args", "kwargs"]), name
    assert pynvml.NVML_CLOCK_SM == FakeNvml.NVML_CLOCK_SM
    bits = {value for name, value in vars(pynvml).items() if name.startswith("nvmlClocksEventReason") and value}
    assert bits >= set(readings.THROTTLE_REASONS)
    assert bits - set(readings.THROTTLE_REASONS) == {pynvml.nvmlClocksEventReasonAll, 0x1}


def test_a_reading_has_si_units(machine):
    machine(FakeNvml())
    assert readings.gpu_readings() == (
        GpuReading(0, 1 << 30, 0.97, 250.5, 1234.0, 1410, "power cap, heat (hardware)"),
        GpuReading(1, 1 << 30, 0.97, 250.5, None, 1410, "power cap, heat (hardware)"),
    )


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("bits", "text"), [(0x0, ""), (0x1, ""), (0x20, "heat (software)")])
def test_idleness_is_no_reason_and_old_drivers_have_reasons(old, bits, text, machine):
    machine(FakeNvml(old=old, reasons=bits))
    assert {reading.throttle for reading in readings.gpu_readings()} == {text}


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-bb", [1]), ("", []), ("-1", []), ("0,0", [0])],
)
def test_only_the_gpus_of_this_process_are_read(visible, expected, machine):
    machine(FakeNvml(), visible)
    assert indices() == expected
    assert readings.open_gpus().note == ""


@pytest.mark.parametrize(
    ("nvml", "visible", "order", "note"),
    [
        (None, None, "PCI_BUS_ID", "nvidia-ml-py is not installed"),
        (FakeNvml(broken="init"), None, "PCI_BUS_ID", "NVML failed: Not Supported"),
        (FakeNvml(), "0", None, "without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA and NVML number GPUs differently"),
        (FakeNvml(), "MIG-1", "PCI_BUS_ID", "NVML reads whole GPUs, not MIG instances"),
    ],
)
def test_why_there_are_no_readings_is_a_note(nvml, visible, order, note, machine):
    machine(nvml, visible, order)
    assert readings.gpu_readings() == ()
    assert readings.open_gpus().note == note


def test_a_gpu_that_cannot_be_read_is_left_out(machine):
    machine(FakeNvml(broken="gpu 0"))
    assert indices() == [1]


def test_the_handles_are_opened_once_and_a_reading_is_quick(machine):
    nvml = FakeNvml()
    machine(nvml)
    readings.gpu_readings()
    started = time.thread_time()
    for _ in range(100):
        readings.gpu_readings()
    assert (time.thread_time() - started) / 100 < 1e-3  # without the time that the driver takes
    assert nvml.inits == 1


def test_without_a_gpu_nvml_is_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(agent, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    readings.open_gpus.cache_clear()
    assert readings.gpu_readings() == ()
    assert readings.open_gpus().note == ""
