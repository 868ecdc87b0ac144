"""The environment of one scenario: folders of its own, hosts in network namespaces, mounts. All is undone at the end."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.namespaces import Network
from tests.integration.nethost import SYSTEM_PATH
from tests.processes import MARK

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Sandbox:
    """Where the launch of one scenario runs."""

    folder: Path
    net: Network | None
    """None: no namespaces; the launch runs on this machine as it is."""
    mark: str
    """Value of MARK in the environment of all its processes."""
    undo: ExitStack
    """Closed at the end."""
    others: ExitStack
    """Other programs, closed once the launch has ended."""
    env: dict[str, str] = field(default_factory=dict)
    """More variables of the launcher."""
    cgroup: Path | None = None
    """The launcher and all its processes are put there."""

    @property
    def runs(self) -> Path:
        """The folder of the run."""
        return self.folder / "runs"

    @property
    def checkpoints(self) -> Path:
        """The value of --checkpoint-dir."""
        return self.folder / "checkpoints"

    @property
    def temporary(self) -> Path:
        """TMPDIR of the launcher and of all agents."""
        return self.folder / "tmp"

    @property
    def orders(self) -> Path:
        """Faults that tasks inflict on themselves, see `programs/sitecustomize.py`."""
        return self.folder / "orders"

    @property
    def network(self) -> Network:
        """The hosts of a scenario that needs some."""
        assert self.net is not None, "this scenario needs network namespaces"
        return self.net

    def argv(self, *arguments: str) -> list[str]:
        """A tfdist command, in the hub if there are namespaces."""
        return self.python("-m", "tfdist.cli", *arguments)

    def python(self, *arguments: str) -> list[str]:
        """Python with these arguments, in the hub if there are namespaces."""
        command = [sys.executable, *arguments]
        return command if self.net is None else self.net.in_hub(*command)

    def environment(self) -> dict[str, str]:
        """The launcher's variables."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_"))}
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "HOME": str(self.folder), "PATH": SYSTEM_PATH}
        return {**inherited, **own, **self.env}

    def mount(self, folder: Path, *options: str) -> None:
        """Mount a file system on `folder`: `mount OPTIONS folder`."""
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
        self.undo.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)

    def small_disk(self, folder: Path, size: int) -> None:
        """Give `folder` a file system of `size` bytes."""
        self.mount(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def order(self, task: str, moment: str, fault: str) -> None:
        """Make a task fail by itself; see `programs/sitecustomize.py`."""
        draft = self.orders / f".{task}"
        draft.write_text(f"{moment} {fault}")
        draft.rename(self.orders / task)

    def script(self, name: str, lines: Sequence[str]) -> Path:
        """An executable shell script."""
        path = self.folder / name
        path.write_text("\n".join(("#!/bin/sh", *lines, "")))
        path.chmod(0o755)
        return path


@contextmanager
def sandbox(folder: Path, net: Network | None, mark: str) -> Iterator[Sandbox]:
    """An empty sandbox in `folder`."""
    with ExitStack() as undo, ExitStack() as others:
        box = Sandbox(folder, net, mark, undo, others)
        for path in (box.runs, box.temporary, box.orders):
            path.mkdir(parents=True)
        yield box
