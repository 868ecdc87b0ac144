"""What a run does, or how it ended."""

from tfdist.launch.str_enum import StrEnum


class RunState(StrEnum):
    """The state of a run. All but starting, running and lost are also statuses of an outcome."""

    STARTING = "starting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    """No task was started."""
    LOST = "lost"
    """The launcher ended without an outcome: it was killed, or the machine restarted."""
