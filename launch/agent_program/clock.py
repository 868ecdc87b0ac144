"""The clock of events. Part of the agent."""

import time

_EPOCH = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def event_time() -> float:
    """Seconds since 1970, by a clock that nobody sets while this process runs.

    NTP may set the system's clock, but events must not change their order.
    """
    return _EPOCH + time.clock_gettime(time.CLOCK_BOOTTIME)
