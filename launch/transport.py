"""How a host's agent is reached: an argv prefix, then the same few lines of Python everywhere."""

import sys
from pathlib import Path

from tfdist.launch import agent
from tfdist.launch.hosts import Host

_BOOTSTRAP = """\
import os, sys
sys.path[:] = filter(None, sys.path)  # modules of the working directory must not shadow Python's
size = b""
while not size.endswith(b"\\n"):
    size += os.read(0, 1) or sys.exit("the launcher went away")
source = b""
while len(source) < int(size):
    source += os.read(0, int(size) - len(source)) or sys.exit("the launcher went away")
exec(compile(source, "tfdist-agent", "exec"), {"__name__": "__main__"})
"""


def agent_argv(host: Host) -> tuple[str, ...]:
    """The command whose stdin and stdout are an agent on `host`, once it has been sent `agent_source()`."""
    prefix: tuple[str, ...] = ()  # the local host; other ways to reach one put their command here
    return (*prefix, sys.executable, "-u", "-c", _BOOTSTRAP)


def agent_source() -> bytes:
    """What the bootstrap reads first: the length of the agent's text, and the text. Nothing need be installed there."""
    text = Path(agent.__file__).read_bytes()
    return b"%d\n%s" % (len(text), text)
