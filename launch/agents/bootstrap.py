"""How an agent is started on a host: the command, and the program text that it reads from its stdin."""

import base64
import io
import marshal
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType

from tfdist.launch import agent_program
from tfdist.launch.agent_program import loader
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import command_on

_PACKAGES = ("tfdist", *(f"tfdist.{name}" for name in ("cli", "launch", "strategies", "models", "jobs", "bench")))


@cache
def package_text() -> str:
    """All installed files of tfdist, data files included: a compressed tar in base64, for `Prepare`.

    Works for wheels and for editable installs.
    """
    import tarfile  # only jobs on other hosts need these
    from importlib.resources import files

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", dereference=True) as archive:
        for package in _PACKAGES:
            folder = Path(str(files(package)))
            for path in sorted(folder.glob("*") if package == "tfdist" else folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.add(path, f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}")
    return base64.b64encode(buffer.getvalue()).decode()


_BOOTSTRAP = (
    "import io,os,sys;"
    'sys.version_info>=(3,10) or sys.exit("Python %d.%d is too old: tfdist needs 3.10"%sys.version_info[:2]);'
    # modules in the working folder must not shadow Python's: "" and the entries of PYTHONPATH that are relative to it
    'p=(os.environ.get("PYTHONPATH")or"/").split(":");r={os.path.abspath(e)for e in p if not e.startswith("/")}-{*p};'
    "sys.path[:]=[e for e in sys.path if e and e not in r];"
    'f=io.BufferedReader(io.FileIO(0,"rb",False),1);'  # a buffer of one byte leaves the messages unread
    's=f.read(int(f.readline() or sys.exit("the launcher went away")));'
    f'import marshal;m=marshal.loads(s);exec(m["{loader.__name__}"]);start(m)'
)
"""One line without single quotes, so that any login shell passes it on unchanged."""
_LOGGED_IN = """printf '\\n{"kind": "logged_in"}\\n';"""
"""Reports the login at once: with a cold file system, Python itself may take long to start."""
_FIND_PYTHON = f'{_LOGGED_IN} command -v "$1" >/dev/null 2>&1 && p=$1 || p=$2; exec "$p" -u -c "$3"'


def agent_argv(host: Host, mark: str = "") -> tuple[str, ...]:
    """The command that starts an agent on `host`. Write `agent_source(host)` to its stdin first.

    The command line of the agent ends with `mark`, by which a later agent on the host finds it.

    On another host it runs `host.python`, or else the path of the running Python if that exists there, or else python3.
    """
    if host.local:
        return (host.python or sys.executable, "-u", "-c", _BOOTSTRAP + mark)
    pythons = (host.python, host.python) if host.python else (sys.executable, "python3")
    command = ("sh", "-c", _FIND_PYTHON, "tfdist", *pythons, _BOOTSTRAP + mark)
    if host.remote_prefix:  # it may take a while
        host = replace(host, remote_prefix=f"{_LOGGED_IN} {host.remote_prefix}")
    return command_on(host, command)


def agent_source(host: Host) -> bytes:
    """The length in bytes of the agent's program, a newline, and the program: modules by name, written by marshal.

    Text, which every version of Python reads; for the Python that runs the launcher code, compiled while it starts.
    """
    return _source(compiled=host.local and not host.python)


@cache
def _source(compiled: bool) -> bytes:
    modules: dict[str, str | CodeType] = {"tfdist": "", "tfdist.launch": ""}
    for file in Path(agent_program.__path__[0]).glob("*.py"):
        name = f"{agent_program.__name__}.{file.stem}".removesuffix(".__init__")
        text = file.read_text(encoding="utf-8")
        modules[name] = compile(text, name, "exec") if compiled else text
    program = marshal.dumps(modules)
    return b"%d\n%s" % (len(program), program)
