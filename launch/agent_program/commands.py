"""Commands that the agent runs itself and that may hang. Part of the agent."""

import os
import selectors
import time

COMMAND_TIMEOUT_S = 8.0
"""Time limit of nvidia-smi."""
ABANDONED: set[int] = set()
"""Commands that did not end in time. The agent kills them, but never waits for them."""


def find_program(name: str) -> str | None:
    """The path of a program on PATH."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def output_of(command: list[str]) -> str:
    """The stdout of a command; empty if it cannot be run, or after a timeout (nvidia-smi hangs if the driver does).

    After a timeout the command is abandoned: in uninterruptible sleep it would not even end when killed.
    """
    reader, writer = os.pipe()
    opened = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 2)]
    actions = [*opened, (os.POSIX_SPAWN_DUP2, writer, 1)]
    try:  # in its own process group, so that its children are killed with it
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions, setpgroup=0)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
    with open(reader, "rb", buffering=0) as stream, selectors.PollSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        deadline, output = time.monotonic() + COMMAND_TIMEOUT_S, b""
        while (left_s := deadline - time.monotonic()) > 0 and selector.select(left_s):
            chunk = stream.read(1 << 16) or b""
            if not chunk:
                return output.decode(errors="replace")
            output += chunk
    ABANDONED.add(pid)
    return ""
