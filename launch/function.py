"""A function that runs as every task: pickled by cloudpickle, it travels as files of a copy (`program_copy.py`).

What it returns comes back as `values.py` says: a host can never make the launcher run code.
"""

import inspect
import io
import json
import linecache
import os
import pickle
import site
import sys
import sysconfig
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from tfdist.launch.environment import COPY_DIR
from tfdist.launch.errors import TfdistError
from tfdist.launch.program_copy import NOTHING, ProgramCopy, decimal
from tfdist.launch.typed_json import from_json

Runnable = Callable[..., Any] | Sequence[str]
"""A function, or the words of a command."""
_FOLDER = ".tfdist-function"
"""The folder of the function in a copy."""
_UNNAMED = "<dynamic-code>"
_CALL, _SETUP = "call.pickle", "setup.json"
LARGE_BYTES = 16 << 20
"""Size of a call above which a warning says that every task gets it."""
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class _ModuleFolders:
    """Where a program finds modules that are no libraries: absolute, or relative to the working folder."""

    first: tuple[str, ...]
    """Folders that are searched before Python's own modules."""
    middle: tuple[str, ...]
    """Folders between these and the installed packages, as that of a notebook."""
    last: tuple[str, ...]
    """Folders after all others."""


@dataclass(frozen=True)
class _Setup:
    """What a task must know before it can read a function."""

    python: tuple[int, int]
    """Byte code is that of one version: https://github.com/cloudpipe/cloudpickle#readme."""
    folders: _ModuleFolders
    texts: Mapping[str, str]
    """The source of its code by file name, for tracebacks: no host has a notebook's cells."""


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def check_call(name: str, program: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Refuse what is neither a function nor a command, arguments that do not fit, and a call from within a task.

    Args:
        name: of what is called, for the messages.
        program: the function or the command.
        args: of the function.
        kwargs: of the function, too.

    Raises:
        TypeError: it is that.
        TfdistError: this process is a task.
    """
    task = os.environ.get("TFDIST_TASK")
    if task is not None:
        fix = "call it outside, and tfdist.strategies.current() in here"
        raise TfdistError(f"{name}: this is {task} of a job, which starts no other one; {fix}")
    if not isinstance(args, list | tuple):
        raise TypeError(f"{name}: args is {args!r}: give a tuple, as args=(3,)")
    if not isinstance(kwargs or {}, Mapping) or not all(isinstance(key, str) for key in kwargs or ()):
        raise TypeError(f"{name}: kwargs is {kwargs!r}: give a dictionary of names and values")
    if callable(program):
        with suppress(ValueError):  # of a function in C, which says nothing of its arguments
            wanted = inspect.signature(program)
            try:
                wanted.bind(*args, **(kwargs or {}))
            except TypeError as error:
                raise TypeError(f"{name}: {name_of(program)}: {error}") from None
        return
    if not isinstance(program, list | tuple) or not all(isinstance(word, str) for word in program):
        fix = 'give a function, or the words of a command, as ["python", "train.py"]'
        raise TypeError(f"{name}: the program is {program!r}: {fix}")
    if args or kwargs:
        raise TypeError(f"{name}: args and kwargs are those of a function: a command has them among its words")


def folder_of(copy: str | os.PathLike[str] | bool | None) -> str | None:
    """The folder that an argument `copy` names; True: the current one. None: none."""
    if isinstance(copy, bool) or copy is None:
        return "." if copy else None
    return os.fspath(copy)


def command_of(program: Runnable) -> tuple[str, ...]:
    """The command of every task, which may call a function."""
    if not callable(program):
        return tuple(program)
    return ("python", "-m", "tfdist.launch.function_task", name_of(program))


def with_function(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    copy: ProgramCopy | None = None,
) -> ProgramCopy:
    """A copy that brings a call of the function to the tasks, and the folder of `copy`.

    Raises:
        TfdistError: it cannot be pickled, or is too large.
    """
    import cloudpickle  # other launches need not import it, nor what packs

    from tfdist.launch.packing import with_files

    before = copy or NOTHING
    name = name_of(function)
    try:
        call, texts = _pickled((function, tuple(args), dict(kwargs or {})))
    except Exception as error:  # whatever the __reduce__ of some object raises
        reason = f"{type(error).__name__}: {error}"
        raise TfdistError(f"{name} cannot be sent to the tasks ({reason}); create in it what it uses") from error
    if len(call) > LARGE_BYTES:
        what = f"{name} holds {decimal(len(call))}, of which every task gets a copy"
        fix = "read large data in it, from a file"
        if len(call) > MOST_BYTES:
            raise TfdistError(f"{what}: at most {decimal(MOST_BYTES)}; {fix}")
        warnings.warn(f"{what}; {fix}", stacklevel=_calls_of_tfdist())
    setup = _Setup(sys.version_info[:2], _module_folders(before.folder or str(Path.cwd())), texts)
    package = Path(str(cloudpickle.__file__)).parent  # no host needs to have it
    files = {f"cloudpickle/{path.name}": path.read_bytes() for path in sorted(package.glob("*.py"))}
    files |= {_CALL: call, _SETUP: json.dumps(asdict(setup)).encode()}
    archive = with_files(before.archive, {f"{_FOLDER}/{file}": content for file, content in files.items()})
    return ProgramCopy(replace(before.origin, function=name), before.sizes, archive)


def _calls_of_tfdist() -> int:
    """The `stacklevel` with which a warning of the caller names the line of the user."""
    level, frame = 1, inspect.currentframe()
    while (frame := frame and frame.f_back) and frame.f_globals.get("__name__", "").startswith("tfdist."):
        level += 1
    return level


def _pickled(call: Any) -> tuple[bytes, dict[str, str]]:
    """A call pickled, and the text of each file and notebook's cell whose code is in it."""
    import cloudpickle  # other launches need not import it

    files: set[str] = set()
    reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]

    def with_file(code: CodeType) -> Any:
        """The code with its file name, in whose place cloudpickle 3.1 writes the same one for all."""
        files.add(code.co_filename)
        rebuild, values = reduce_code(code)
        return rebuild, tuple(code.co_filename if value == _UNNAMED else value for value in values)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
            {CodeType: with_file}, cloudpickle.Pickler.dispatch_table
        )

    buffer = io.BytesIO()
    Pickler(buffer).dump(call)
    return buffer.getvalue(), {file: text for file in files if (text := "".join(linecache.getlines(file)))}


def _module_folders(folder: str) -> _ModuleFolders:
    """Those of this process; those inside of `folder` are relative to it."""
    found: list[list[str]] = [[], [], []]
    place = 0
    for path in map(os.path.abspath, sys.path):
        place = max(place, _place(path))
        if not _place(path) and Path(path).is_dir():
            found[place].append(os.path.relpath(path, folder) if _is_in(path, [folder]) else path)
    return _ModuleFolders(*map(tuple, found))


def _place(path: str) -> int:
    """1 for a folder of Python's own modules, 2 for one of installed packages, 0 for any other."""
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    if _is_in(path, [*installed, *site.getsitepackages()]):
        return 2
    return int(_is_in(path, [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]))


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder}/") for folder in folders)


def read_call(copy: Path) -> Callable[[], Any]:
    """The call in a copy, for a task.

    Raises:
        TfdistError: this Python cannot read it.
    """
    folder = copy / _FOLDER
    setup = from_json(json.loads((folder / _SETUP).read_text(encoding="utf-8")), _Setup)
    python, here = (".".join(map(str, version)) for version in (setup.python, sys.version_info[:2]))
    if python != here:
        raise TfdistError(
            f"the function is of Python {python}, and this host has {here}: name a Python {python} with python="
        )
    for name, text in setup.texts.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    _find_modules(setup.folders)
    sys.path.insert(0, str(folder))
    import_module("cloudpickle")  # ours, whichever this host has
    del sys.path[0]
    try:
        function, args, kwargs = pickle.loads((folder / _CALL).read_bytes())
    except ModuleNotFoundError as error:
        fix = "install it there, or bring the modules of a folder with copy=True"
        raise TfdistError(f"this host has no module {error.name!r}, which the function needs; {fix}") from error
    return lambda: function(*args, **kwargs)


def _find_modules(folders: _ModuleFolders) -> None:
    """Let this process find modules as the one that has made the function did."""
    first, middle, last = (map(os.path.abspath, entries) for entries in (folders.first, folders.middle, folders.last))
    entries = [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]  # `python -m` adds that
    after = 1 + max((at for at, entry in enumerate(entries) if _place(entry) == 1), default=-1)
    sys.path[:] = [*first, *entries[:after], *middle, *entries[after:], *last]


def copy_folder() -> Path:
    """The folder of the copy, for a task.

    Raises:
        TfdistError: nothing has brought a function here.
    """
    if COPY_DIR not in os.environ:
        raise TfdistError("no function has come with this task: start it with tfdist.run")
    return Path(os.environ[COPY_DIR])
