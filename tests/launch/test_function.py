"""How a function gets into a copy, and out of it in another process."""

import io
import json
import linecache
import os
import subprocess
import sys
import sysconfig
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfdist.launch import function
from tfdist.launch.environment import COPY_DIR
from tfdist.launch.errors import TfdistError
from tfdist.launch.function import check_call, command_of, with_function
from tfdist.launch.packing import pack
from tfdist.launch.program_copy import ProgramCopy


def unpacked(copy: ProgramCopy, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(copy.archive)) as archive:
        has_filter = hasattr(tarfile, "data_filter")  # Python 3.11.2 has none
        archive.extractall(folder, **({"filter": "data"} if has_filter else {}))
    return folder


def called(copy: ProgramCopy, folder: Path, *, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the task as an agent does: in a process that has its own sys.path."""
    env = {**os.environ, COPY_DIR: str(unpacked(copy, folder))}
    words = [sys.executable, *command_of(print)[1:]]
    return subprocess.run(words, cwd=cwd or folder, env=env, capture_output=True, text=True, check=False)


def local(code: str, **names: Any) -> Any:
    """A function of the main module, as a script or a notebook has them: `f` of the code."""
    space = {"__name__": "__main__", **names}
    exec(compile(code, "/no/such/cell.py", "exec"), space)
    return space["f"]


def test_a_closure_and_its_arguments_are_called_in_another_process(tmp_path: Path) -> None:
    array = np.arange(3)
    f = local("def f(x, *, y):\n    print(ARRAY.sum() + x + y, g(2))\ndef g(x):\n    return x * 2", ARRAY=array)
    done = called(with_function(f, (10,), {"y": 100}), tmp_path)
    assert (done.returncode, done.stdout) == (0, "113 4\n"), done.stderr


def test_a_host_needs_no_cloudpickle_and_another_one_does_not_matter(tmp_path: Path) -> None:
    other = tmp_path / "cloudpickle"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('not this one')")
    done = called(with_function(local("f = lambda: print('called')")), tmp_path / "copy", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "called\n"), done.stderr


def test_a_traceback_begins_in_the_function_and_shows_its_lines(tmp_path: Path) -> None:
    code = "def f():\n    import threading\n    g()\n\ndef g():\n    raise ValueError('no')\n"
    linecache.cache["/no/such/cell.py"] = (len(code), None, code.splitlines(keepends=True), "/no/such/cell.py")
    done = called(with_function(local(code)), tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "Traceback (most recent call last):\n"
        '  File "/no/such/cell.py", line 3, in f\n    g()\n'
        "  File \"/no/such/cell.py\", line 6, in g\n    raise ValueError('no')\n"
        "ValueError: no\n"
    )


def test_threads_and_atexit_functions_end_as_in_any_program(tmp_path: Path) -> None:
    f = local(
        "def f():\n"
        "    import atexit, threading, time\n"
        "    ended = threading.Event()\n"
        "    threading.Thread(target=lambda: (ended.wait(), print('thread'))).start()\n"
        "    atexit.register(print, 'atexit')\n"
        "    ended.set()\n"
    )
    done = called(with_function(f), tmp_path)
    assert (done.returncode, done.stdout) == (0, "thread\natexit\n"), done.stderr


def test_modules_beside_the_program_are_found_and_libraries_are_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, late = tmp_path / "here", tmp_path / "late"
    for folder in (here, late):
        folder.mkdir()
        (folder / "beside.py").write_text(f"def f(): print('beside {folder.name}')")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [str(here), *sys.path, str(late)])
    import beside  # type: ignore[import-not-found]

    copy = with_function(beside.f, copy=pack("."))
    folders = json.loads((unpacked(copy, tmp_path / "copy") / function._FOLDER / function._SETUP).read_text())[
        "folders"
    ]
    assert folders["first"][0] == "."
    assert folders["last"][-1] == str(late)
    assert not [entry for entries in folders.values() for entry in entries if "site-packages" in entry]
    (here / "beside.py").unlink()
    done = called(copy, tmp_path / "other")
    assert (done.returncode, done.stdout) == (0, "beside here\n"), done.stderr
    assert copy.folder == str(here)
    assert copy.origin.function == "f"


def test_the_folder_of_a_notebook_comes_after_pythons_own_modules_and_before_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cmd", "pluggy"):  # of Python, and of an installed package
        (tmp_path / f"{name}.py").write_text("HERE = True")
    stdlib = sysconfig.get_path("stdlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [stdlib, "", sysconfig.get_path("purelib")])
    f = local("def f():\n    import cmd, pluggy\n    print(hasattr(cmd, 'HERE'), hasattr(pluggy, 'HERE'))")
    copy = with_function(f)
    monkeypatch.undo()
    done = called(copy, tmp_path / "copy", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "False True\n"), done.stderr


def test_a_module_that_a_host_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "missing_there.py").write_text("def f(): pass")
    monkeypatch.syspath_prepend(tmp_path)
    import missing_there  # type: ignore[import-not-found]

    copy = with_function(missing_there.f)
    (tmp_path / "missing_there.py").unlink()
    done = called(copy, tmp_path / "copy")
    assert done.returncode == 1
    assert (
        "this host has no module 'missing_there', which the function needs; install it there, or bring" in done.stderr
    )


def test_another_python_is_refused_before_it_reads_byte_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9))
    copy = with_function(local("f = lambda: 1"))
    monkeypatch.undo()
    done = called(copy, tmp_path)
    here = ".".join(map(str, sys.version_info[:2]))
    assert f"the function is of Python 3.9, and this host has {here}: name a Python 3.9 with python=" in done.stderr


def test_what_cannot_be_pickled_is_a_sentence() -> None:
    with pytest.raises(
        TfdistError, match=r"^f cannot be sent to the tasks \(TypeError: cannot pickle .*; create in it"
    ):
        with_function(local("def f(): return LOCK", LOCK=threading.Lock()))


def test_a_large_closure_is_a_warning_and_a_huge_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    f = local("def f(): return ARRAY", ARRAY=np.zeros(100_000))
    monkeypatch.setattr(function, "LARGE_BYTES", 1000)
    with pytest.warns(
        UserWarning, match=r"^f holds 80\d\.\d kB, of which every task gets a copy; read large data in it"
    ):
        with_function(f)
    monkeypatch.setattr(function, "MOST_BYTES", 1000)
    with pytest.raises(TfdistError, match=r"^f holds 80\d\.\d kB, of which every task gets a copy: at most 1\.0 kB; "):
        with_function(f)


def test_a_second_function_replaces_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    copy = with_function(
        local("f = lambda: print(2)"), copy=with_function(local("f = lambda: 1"), copy=pack(str(tmp_path)))
    )
    with tarfile.open(fileobj=io.BytesIO(copy.archive)) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))
    assert "a.txt" in names
    assert called(copy, tmp_path / "copy").stdout == "2\n"


@pytest.mark.parametrize(
    ("program", "args", "kwargs", "message"),
    [
        ("python train.py", (), None, "the program is 'python train.py': give a function, or the words of a command"),
        ([1], (), None, "the program is [1]: give a function"),
        (None, (), None, "the program is None: give a function"),
        (iter(["train.py"]), (), None, "the program is <list_iterator"),
        (["train.py"], (1,), None, "args and kwargs are those of a function"),
        (print, 3, None, "args is 3: give a tuple, as args=(3,)"),
        (print, "abc", None, "args is 'abc': give a tuple"),
        (print, (), [1], "kwargs is [1]: give a dictionary"),
        (print, (), {1: 2}, "kwargs is {1: 2}: give a dictionary"),
        (local("def f(epochs): pass"), (), None, "f: missing a required argument: 'epochs'"),
        (local("def f(epochs): pass"), (3,), {"rate": 1}, "f: got an unexpected keyword argument 'rate'"),
    ],
)
def test_what_is_no_call_is_a_type_error(program: Any, args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        check_call("tfdist.run", program, args, kwargs)
    assert str(error.value).startswith(f"tfdist.run: {message}")
