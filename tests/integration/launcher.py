"""tfdist as a user starts it, on hosts in network namespaces, and Pythons for those hosts."""

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
"""Within this time nothing of a job that has ended, in whatever way, may be left on any host."""


def make_python(folder: Path, leave_out: Sequence[str]) -> Path:
    """An interpreter with the packages of the running one, except those whose file names match."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    own = folder / packages.relative_to(sys.prefix)
    for path in packages.iterdir():
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in leave_out):
            (own / path.name).symlink_to(path)
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    def lines_of(self, task: str, text: str) -> list[str]:
        """What of `text`, its `out` or `err`, is the task's; without the prefix."""
        return re.findall(rf"^\[{task}\] (.*)$", text, re.MULTILINE)


@dataclass
class Launcher:
    """Starts tfdist in the hub, in a folder of its own."""

    net: Network
    python: Path
    """On the hosts."""
    folder: Path
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, command: str = "launch"
    ) -> "subprocess.Popen[str]":
        """Begin a command with these arguments behind `--ssh ...`."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_"))}
        argv = [sys.executable, "-m", "tfdist.cli", command, "--ssh", str(self.net.ssh), *arguments]
        process = subprocess.Popen(
            self.net.in_hub(*argv),
            cwd=self.folder,
            env={**ours, "HOME": str(home), "PATH": SYSTEM_PATH, **(env or {})},
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
    ) -> Done:
        """A command from beginning to end, with the bare Python on the hosts unless the arguments name one."""
        named = () if "--python" in arguments else ("--python", str(self.python))
        began = time.monotonic()
        process = self.start(*named, *arguments, env=env, command=command)
        out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err, time.monotonic() - began)

    def script(self, text: str, name: str = "script.py") -> str:
        """The path of a program of the user's own; hosts see the same files."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    @property
    def run_dir(self) -> Path:
        """The folder of the one run there was."""
        (found,) = (self.folder / "runs").iterdir()
        return found

    def left_over(self) -> list[str]:
        """What still runs of any job, after the time that it has to go."""
        until = time.monotonic() + CLEAN_S
        while (found := self.net.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def kill_started(self) -> None:
        """End launches that a failed test left behind."""
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
