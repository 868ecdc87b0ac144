"""A function that runs as every task: pickled by cloudpickle, it travels as files of a copy (`program_copy.py`).

What it returns comes back as `values.py` says: a host can never make the launcher run code.
"""

import io
import json
import linecache
import os
import pickle
import sys
import sysconfig
import warnings
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from tfdist.launch.environment import COPY_DIR
from tfdist.launch.errors import TfdistError
from tfdist.launch.program_copy import Origin, ProgramCopy, decimal

Program = Callable[..., Any] | Sequence[str]
"""A function, or the words of a command."""
_FOLDER = ".tfdist-function"
"""The folder of the function in a copy."""
_UNNAMED = "<dynamic-code>"
_CALL, _HEADER = "call.pickle", "call.json"
LARGE_BYTES = 16 << 20
"""Every task gets what a function holds; above it a warning says so."""
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class _Header:
    """What a task must know before it can read a function."""

    python: tuple[int, int]
    """Byte code is that of one version: https://github.com/cloudpipe/cloudpickle#readme."""
    first: tuple[str, ...]
    """Folders of modules, to be searched before the libraries: absolute, or relative to the working folder."""
    last: tuple[str, ...]
    """And after them."""
    texts: Mapping[str, str]
    """The source of its code by file name, for tracebacks: no host has a notebook's cells."""


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def check_program(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Refuse what is neither a function nor a command, and arguments of a command.

    Raises:
        TypeError: it is that.
    """
    if callable(program):
        return
    if isinstance(program, str) or not all(isinstance(word, str) for word in program):
        fix = 'give a function, or the words of a command, as ["python", "train.py"]'
        raise TypeError(f"the program is {program!r}: {fix}")
    if args or kwargs:
        raise TypeError("args and kwargs are those of a function: a command has them among its words")


def command_of(program: Program) -> tuple[str, ...]:
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
        warnings.warn(f"{what}; {fix}", stacklevel=2)
    folder = (copy.folder if copy is not None else "") or str(Path.cwd())
    header = _Header(sys.version_info[:2], *_module_folders(folder), texts)
    package = Path(str(cloudpickle.__file__)).parent  # no host needs to have it
    files = {f"cloudpickle/{path.name}": path.read_bytes() for path in sorted(package.glob("*.py"))}
    files |= {_CALL: call, _HEADER: json.dumps(asdict(header)).encode()}
    before = ProgramCopy(Origin(), {}, b"") if copy is None else copy
    archive = with_files(before.archive, {f"{_FOLDER}/{file}": content for file, content in files.items()})
    return ProgramCopy(replace(before.origin, function=name), before.sizes, archive)


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


def _module_folders(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where this process finds modules that are no libraries: before these, and after them."""
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    first: list[str] = []
    last: list[str] = []
    found = first
    for entry in sys.path:
        path = os.path.abspath(entry)  # noqa: PTH100 - keeps links
        if os.path.commonpath([path, libraries[2]]) == libraries[2]:
            found = last
        if Path(path).is_dir() and not any(f"{path}/".startswith(f"{each}/") for each in libraries):
            inside = f"{path}/".startswith(f"{folder}/")
            found.append(os.path.relpath(path, folder) if inside else path)
    return tuple(first), tuple(last)


def read_call(folder: Path) -> Callable[[], Any]:
    """In a task: the call in a copy.

    Raises:
        TfdistError: this Python cannot read it.
    """
    header = json.loads((folder / _FOLDER / _HEADER).read_text(encoding="utf-8"))
    made_by, here = (".".join(map(str, version)) for version in (header["python"], sys.version_info[:2]))
    if made_by != here:
        raise TfdistError(
            f"the function is of Python {made_by}, and this host has {here}: name a Python {made_by} with python="
        )
    linecache.cache |= {
        name: (len(text), None, text.splitlines(keepends=True), name) for name, text in header["texts"].items()
    }
    first, last = ([os.path.abspath(entry) for entry in header[name]] for name in ("first", "last"))  # noqa: PTH100
    sys.path[:] = [str(folder / _FOLDER), *first, *sys.path, *last]
    import_module("cloudpickle")  # ours, whichever this host has
    del sys.path[0]
    try:
        function, args, kwargs = pickle.loads((folder / _FOLDER / _CALL).read_bytes())
    except ModuleNotFoundError as error:
        fix = "install it there, or bring the modules of a folder with copy=True"
        raise TfdistError(f"this host has no module {error.name!r}, which the function needs; {fix}") from error
    return lambda: function(*args, **kwargs)


def copy_folder() -> Path:
    """In a task: the folder of the copy."""
    return Path(os.environ[COPY_DIR])
