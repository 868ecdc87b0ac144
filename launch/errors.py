"""The one exception that users meet, and the exit codes; everything else that is raised is a bug."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process ends with. Anything else is the culprit task's own code, or 128+n for a signal n."""

    SUCCESS = 0
    FAILED = 1
    """An arm of a bench failed, a training ended without a record, or a file could not be written."""
    USAGE = 2
    HOST_LOST = 69
    TIMEOUT = 124
    NOT_STARTED = 127
    """A task's program could not be started."""
    INTERRUPTED = 130


class TfdistError(Exception):
    """One sentence for the user: what failed, with the value, and the way out; the command ends with `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = ExitCode.USAGE) -> None:
        super().__init__(sentence)
        self.exit_code = int(exit_code)
