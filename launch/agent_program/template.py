"""Programs that are modules of ours: executed, or run where a template has imported them. Part of the agent.

A template is a process that has imported TensorFlow, and forks an agent for each request (`template_server.py`). Such
an agent forks its tasks without executing Python again, so they find TensorFlow imported and share its memory. A task
whose environment would have changed the import is executed as usual (`is_imported`).
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from tfdist.launch.agent_program.optional import memory_at, memory_file, overwrite
from tfdist.launch.agent_program.system import read_text

_IMPORT = "import sys; sys.path[:] = filter(None, sys.path); from tfdist.launch.agent_program."
"""Modules in the working folder must not shadow Python's or ours, as with `-m`; Python 3.10 has no PYTHONSAFEPATH."""
RUN = f"{_IMPORT}template import run; run()"
"""The program of a Python that runs one of our modules, whose name is its first argument."""
SERVE = f"{_IMPORT}template_server import main; main()"
"""The program of a template."""
AGENT_VARIABLE = "TFDIST_AGENT"
"""Variable of tasks and of what they start: the name of their agent's temporary folder, which is random."""
ANY_AGENT = f"tfdist-{'0' * 12}"
"""Value of AGENT_VARIABLE in a template: as long as that of its tasks, which write theirs over it."""
MOST_STDERR = 1 << 15
"""Bytes that are kept of what the import writes to stderr: fewer than a pipe holds."""
_PER_TASK = frozenset([
    "TF_CONFIG", "TF_GRPC_REUSE_PORT", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS",
    "GRPC_FAIL_FAST", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TMPDIR", "PYTHONUNBUFFERED", "TF_XLA_FLAGS",
])  # fmt: skip
"""Variables that TensorFlow reads when it first computes, not on import. OMP_NUM_THREADS is also read by numpy's matrix
products, of which the training has none: in a forked task they use one thread."""
_imported: Mapping[str, str] | None = None
"""The variables that the import of this process may have read; None: it has imported nothing."""
_set_by_import: Mapping[str, str] = {}
_import_stderr = b""
"""What the import has written to stderr, for the logs of the tasks."""
_package = ""
"""The prefix of the names of modules that tasks may run without being executed."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """What a Python gets to run `main` of a module of ours; its environment is to be `without_working_folder`."""
    return ("-c", RUN, module, *arguments)


def runs_module(argv: Sequence[str]) -> bool:
    """Whether a command is a Python with a `module_command`."""
    return tuple(argv[1:3]) == ("-c", RUN)


def without_working_folder(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without the entries of PYTHONPATH that name the working folder: an empty one, as a colon at its
    end leaves, and `.`."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(entry for entry in entries if os.path.normpath(entry) != ".")
    others = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return {**others, "PYTHONPATH": kept} if kept else others


def run() -> NoReturn:
    """Run `main` of the module that the first argument names; the process ends with it, without Python's clean-up.

    That of TensorFlow takes seconds of every run, and sometimes a minute.
    """
    module = import_module(sys.argv[1])
    sys.argv = [str(module.__file__), *sys.argv[2:]]
    os._exit(_exit_code(module.main))


def read_on_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that may change what an import does: all but some that are known not to."""
    return {
        name: value for name, value in environment.items() if name not in _PER_TASK and not name.startswith("TFDIST_")
    }


def preload(module: str, after: Mapping[str, str | None]) -> None:
    """Import what the `preload` of a module imports, for the tasks that are forked from this process.

    Args:
        module: its package is that of the modules that such tasks may run.
        after: variables that get other values after the import; None: they are removed.
    """
    global _imported, _set_by_import, _import_stderr, _package
    before = dict(os.environ)
    _package = f"{module.partition('.')[0]}."
    log = memory_file()
    stderr = os.dup(2)
    os.dup2(log, 2)
    import_module(module).preload()
    os.dup2(stderr, 2)
    _import_stderr = os.pread(log, MOST_STDERR, 0)
    gc.freeze()
    _imported = read_on_import(before)
    _set_by_import = {name: value for name, value in os.environ.items() if before.get(name) != value}
    os.environ.clear()
    os.environ.update({name: value for name, value in {**before, **after}.items() if value is not None})


def is_imported(argv: list[str], environment: Mapping[str, str]) -> bool:
    """Whether this process has imported what a task with this command and environment would import."""
    ours = argv[0] == sys.executable and runs_module(argv) and len(argv) == 4 and argv[3].startswith(_package)
    return ours and read_on_import(environment) == _imported


def run_module(argv: list[str], environment: Mapping[str, str], keep: set[int], failure: int) -> None:
    """Become `python -c RUN MODULE`, in a forked child that is otherwise prepared; the process ends with its main.

    Args:
        argv: of the task.
        environment: of the task.
        keep: descriptors that stay open, besides the standard streams.
        failure: closed once nothing can fail any more before the module runs.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in (*keep, failure):
            with suppress(OSError):  # that of the listing
                os.close(descriptor)
    os.environ.clear()
    os.environ.update({**environment, **_set_by_import})
    signal.signal(signal.SIGINT, signal.default_int_handler)  # these three as Python does when it starts
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if "tempfile" in sys.modules:  # the import has asked it for the folder
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]
    _show_as(argv, environment[AGENT_VARIABLE])
    module = import_module(argv[3])
    sys.argv = [str(module.__file__)]
    os.close(failure)
    os.write(2, _import_stderr)
    os._exit(_exit_code(module.main))


def _exit_code(run: Callable[[], object]) -> int:
    """Call a program's main function; returns the exit code that Python would end with, and prints what it would."""
    code: object = 1
    try:
        code = run()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    with suppress(OSError, ValueError):  # closed
        sys.stdout.flush()
        sys.stderr.flush()
    return (code or 0) & 0xFF


def _show_as(argv: list[str], agent: str) -> None:
    """Show in /proc the command of the task, and its agent, by which the guard finds it (man 5 proc: stat 48 to 51)."""
    fields = read_text("/proc/self/stat").rpartition(")")[2].split()
    command, command_end, variables, variables_end = map(int, fields[45:49])
    words = os.fsencode("\0".join(argv))[: command_end - command - 1]
    overwrite(command, words.ljust(command_end - command, b"\0"))
    at = memory_at(variables, variables_end - variables).find(ANY_AGENT.encode())
    if at >= 0 and len(agent) == len(ANY_AGENT):
        overwrite(variables + at, agent.encode())
