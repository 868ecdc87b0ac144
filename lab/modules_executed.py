"""Which modules of tfdist a two-host launch of print("hi") executes: those whose functions run in the launcher.

    .venv/bin/python -m lab.modules_executed [-v]

The hosts are played: ssh is a program that runs the command here. -v lists the modules.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

SSH = """#!/bin/sh
for last; do :; done
case " $* " in *" -G "*) echo "hostname 127.0.0.1"; exit ;; esac
exec sh -c "$last"
"""


def executed(call: Callable[[], object]) -> set[str]:
    """The modules of tfdist whose functions `call` executes, in all threads of this process."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED and not _importing(frame):  # no body of a class
            modules.add(frame.f_globals.get("__name__", ""))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {name for name in modules if name.startswith("tfdist.")}


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").startswith("tfdist."):
            return True
        frame = frame.f_back
    return False


def launch() -> int:
    """A launch of two workers on two played hosts; returns its exit code."""
    from tfdist.cli.command import run

    Path("ssh").write_text(SSH, encoding="utf-8")
    Path("ssh").chmod(0o755)
    hosts = ["--hosts", "h1,h2", "--ssh", str(Path("ssh").absolute()), "--python", sys.executable]
    return run(["launch", "--strategy", "multiworker", *hosts, "--", sys.executable, "-S", "-c", "print('hi')"])


def main() -> None:
    """Print the number of modules."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        codes: list[int] = []
        modules = executed(lambda: codes.append(launch()))
        os.chdir("/")
    if codes != [0]:
        sys.exit(f"the launch ended with {codes}")
    if "-v" in sys.argv:
        print(*sorted(modules), sep="\n")
    print(f"{len(modules)} modules")


if __name__ == "__main__":
    main()
