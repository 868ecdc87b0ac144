"""The command that starts an agent on a host, and the program text that it is sent."""

import shlex
import sys
from pathlib import Path

from tfdist.launch.agents import agent
from tfdist.launch.hosts.host import Host

_BOOTSTRAP = (
    "import io,sys;"
    'sys.version_info>=(3,10) or sys.exit("Python %d.%d is too old: tfdist needs 3.10"%sys.version_info[:2]);'
    "sys.path[:]=filter(None,sys.path);"  # modules of the working directory must not shadow Python's
    'f=io.BufferedReader(io.FileIO(0,"rb",False),1);'  # reads not one byte more than it is asked for
    'exec(compile(f.read(int(f.readline() or sys.exit("the launcher went away"))),"tfdist-agent","exec"))'
)
"""One line without single quotes, for a login shell there may be of any kind."""

_FIND_PYTHON = 'command -v "$1" >/dev/null 2>&1 && p=$1 || p=$2; exec "$p" -u -c "$3"'


def agent_argv(host: Host) -> tuple[str, ...]:
    """The command whose stdin and stdout are an agent on `host`, once it has been sent `agent_source()`.

    On another host: the Python that was asked for, else the one that runs us if it is there too, else python3.
    """
    if host.local:
        return (host.python or sys.executable, "-u", "-c", _BOOTSTRAP)
    wanted = (host.python, host.python) if host.python else (sys.executable, "python3")
    command = ("sh", "-c", _FIND_PYTHON, "tfdist", *wanted, _BOOTSTRAP)
    return (*host.reach, shlex.join(command)) if host.quoted else (*host.reach, *command)


def agent_source() -> bytes:
    """What the bootstrap reads first: the length of the agent's text, and the text. Nothing need be installed there."""
    text = Path(agent.__file__).read_bytes()
    return b"%d\n%s" % (len(text), text)
