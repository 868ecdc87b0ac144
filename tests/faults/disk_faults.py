"""Faults of disks: full, read-only, damaged."""

import subprocess
from pathlib import Path

from tests.faults.live import Live
from tests.faults.sandbox import Sandbox
from tests.faults.scenario import Fault, Scenario

DISK = 256 << 10
"""Bytes of a small disk for the run's folder."""
CHECKPOINT_DISK = 64 << 10
"""Too small for a checkpoint of the tiny model."""


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def _small_runs(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.small_disk(box.runs, DISK)
    return ()


def _full_runs(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    _small_runs(box, scenario)
    _fill(box.runs)
    return ()


def _small_checkpoints(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.small_disk(box.checkpoints, 8 << 20)
    return ()


def _read_only_checkpoints(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.mount(box.checkpoints, "-t", "tmpfs", "-o", "ro", "tmpfs")
    return ()


def _make_read_only(live: Live, scenario: Scenario) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(live.box.checkpoints)], check=True)


FULL_RUNS = Fault("full-run-folder", "The run's folder is full before the launch", prepare=_full_runs)
RUNS_FILL = Fault("run-folder-fills", "The run's folder gets full", lambda live, _: _fill(live.box.runs), _small_runs)
READ_ONLY = Fault("read-only-checkpoints", "The checkpoint folder is mounted read-only", prepare=_read_only_checkpoints)
