"""A pynvml with two GPUs of another kind each: names and signatures are those of nvidia-ml-py."""

# ruff: noqa: N802

from types import SimpleNamespace

from pynvml import NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_NOT_SUPPORTED, NVMLError

UUIDS = ("GPU-aa11", "GPU-bb22")


class FakeNvml:
    """GPU 0 is new; GPU 1 has no energy counter. An `old` driver lacks the new name of the throttle reasons."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, *, broken="", old=False, reasons=0x4 | 0x40 | 0x1):
        self.broken, self.old, self.reasons, self.inits = broken, old, reasons, 0

    def nvmlInit(self):
        self.inits += 1
        if self.broken == "init":
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetCount(self):
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return UUIDS[handle]

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        if self.broken == f"gpu {handle}":
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=80 << 30, free=79 << 30, used=1 << 30)

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetPowerUsage(self, handle):
        return 250_500

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if handle == 1:
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        return 1_234_000

    def nvmlDeviceGetClockInfo(self, handle, type):
        return {self.NVML_CLOCK_SM: 1410}[type]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        if self.old:
            raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons
