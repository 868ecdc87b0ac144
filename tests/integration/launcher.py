"""Runs the tfdist command on hosts in network namespaces, and creates Pythons for those hosts."""

import fnmatch
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .namespaces import Network
from .nethost import SYSTEM_PATH

CLEAN_S = 15.0
"""A job must have no process left on any host this many seconds after it ended, however it ended."""


def make_python(folder: Path, exclude: Sequence[str]) -> Path:
    """A virtual environment with links to the installed packages, except those whose file names match; its Python."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    target = folder / packages.relative_to(sys.prefix)
    for path in packages.iterdir():
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in exclude):
            (target / path.name).symlink_to(path)
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Finished:
    """A finished command."""

    code: int
    out: str
    err: str
    seconds: float

    def lines_of(self, task: str, text: str) -> list[str]:
        """The lines of a task in `text` (`out` or `err`), without their prefix."""
        return re.findall(rf"^\[{task}\] (.*)$", text, re.MULTILINE)


@dataclass
class Launcher:
    """Starts tfdist in the hub, in a temporary folder."""

    net: Network
    python: Path
    """The Python on the hosts."""
    folder: Path
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, command: str = "launch"
    ) -> "subprocess.Popen[str]":
        """Start a tfdist command with these arguments, and `--ssh` unless they have --transport."""
        ssh = () if "--transport" in arguments else ("--ssh", str(self.net.ssh))
        return self.start_program(sys.executable, "-m", "tfdist.cli", command, *ssh, *arguments, env=env)

    def start_program(self, *argv: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a program in the hub."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_"))}
        process = subprocess.Popen(
            self.net.in_hub(*argv),
            cwd=self.folder,
            env={**inherited, "HOME": str(home), "PATH": SYSTEM_PATH, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        command: str = "launch",
        timeout_s: float = 60.0,
    ) -> Finished:
        """Run a tfdist command to its end. The hosts use `self.python` unless the arguments have --python."""
        python = () if "--python" in arguments else ("--python", str(self.python))
        started_at = time.monotonic()
        process = self.start(*python, *arguments, env=env, command=command)
        out, err = process.communicate(timeout=timeout_s)
        return Finished(process.returncode, out, err, time.monotonic() - started_at)

    def run_python(self, text: str, timeout_s: float = 60.0) -> Finished:
        """Run a Python program to its end, in which `HOSTS` are the options that reach h1 and h2."""
        options = {"hosts": ["h1", "h2"], "ssh": str(self.net.ssh), "python": str(self.python)}
        path = self.script(f"HOSTS = {options!r}\n{text}", "calls.py")
        started_at = time.monotonic()
        process = self.start_program(sys.executable, path)
        out, err = process.communicate(timeout=timeout_s)
        return Finished(process.returncode, out, err, time.monotonic() - started_at)

    def script(self, text: str, name: str = "script.py") -> str:
        """Write a user's script; its path, which is the same on all hosts."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    @property
    def run_dir(self) -> Path:
        """The folder of the only run."""
        (run_dir,) = (self.folder / "runs").iterdir()
        return run_dir

    def left_over(self, seconds: float = CLEAN_S) -> list[str]:
        """Processes of any job that still run after `seconds`."""
        deadline = time.monotonic() + seconds
        while (processes := self.net.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return processes

    def kill_started(self) -> None:
        """Kill the commands that a failed test has left running."""
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
