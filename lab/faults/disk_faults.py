"""Faults of disks: full, read-only, damaged."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from lab.faults.live import Live
from lab.faults.sandbox import Sandbox
from lab.faults.scenario import Fault, Scenario

DISK = 256 << 10
"""Bytes of a small disk for the run's folder."""
CHECKPOINT_DISK = 4 << 20
"""Bytes of one for a few checkpoints of the tiny model."""
NOT_SAVED = "could not be saved"
WAIT_S = 60.0
DAMAGE = 64
"""Bytes that are overwritten."""


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def _small_runs(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.small_disk(box.runs, DISK)
    return ()


def _full_runs(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    _small_runs(box, scenario)
    _fill(box.runs)
    return ()


def _small_checkpoints(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.small_disk(box.checkpoints, CHECKPOINT_DISK)
    return ()


def _read_only_checkpoints(box: Sandbox, scenario: Scenario) -> tuple[str, ...]:
    box.mount(box.checkpoints, "-t", "tmpfs", "-o", "ro", "tmpfs")
    return ()


def _make_read_only(live: Live, scenario: Scenario) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(live.box.checkpoints)], check=True)


def _fill_for_a_while(live: Live, scenario: Scenario) -> None:
    """Fill the disk, and free it after the first save that has failed."""
    _fill(live.box.checkpoints)
    live.wait(lambda live: NOT_SAVED in live.text, WAIT_S, "a save that fails")
    (live.box.checkpoints / "filler").unlink()


def _manifests(box: Sandbox) -> list[Path]:
    return sorted(box.checkpoints.glob("step-*.json"))


def _step(manifest: Path) -> int:
    return int(manifest.stem.removeprefix("step-"))


def _damage_and_kill(live: Live, scenario: Scenario) -> None:
    """Overwrite bytes of the last checkpoint while all tasks stand still, and kill one."""
    pids = [live.pid(task) for task in {seen.task for seen in live.seen if seen.kind == "Started"}]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    *_, good, last = _manifests(live.box)
    live.good_step = _step(good)
    data = max(last.parent.glob(f"{last.stem}.data-*"), key=lambda path: path.stat().st_size)
    with data.open("r+b") as file:
        file.seek(data.stat().st_size // 2)
        file.write(os.urandom(DAMAGE))
    os.kill(live.pid(scenario.task), signal.SIGKILL)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _kill_in_save(live: Live, scenario: Scenario) -> None:
    live.good_step = _step(_manifests(live.box)[-1])
    os.kill(live.pid(scenario.task), signal.SIGKILL)


FULL_RUNS = Fault("full-run-folder", "The run's folder is full before the launch", prepare=_full_runs)
RUNS_FILL = Fault("run-folder-fills", "The run's folder gets full", lambda live, _: _fill(live.box.runs), _small_runs)
CHECKPOINTS_FILL = Fault(
    "full-disk-for-checkpoints",
    "The disk for checkpoints gets full and stays full",
    lambda live, _: _fill(live.box.checkpoints),
    _small_checkpoints,
)
CHECKPOINTS_FULL_FOR_A_WHILE = Fault(
    "full-disk-for-a-while",
    "The disk for checkpoints gets full, and has space again after a save has failed",
    _fill_for_a_while,
    _small_checkpoints,
)
READ_ONLY = Fault(
    "read-only-checkpoints", "The folder for checkpoints is mounted read-only", prepare=_read_only_checkpoints
)
BECOMES_READ_ONLY = Fault(
    "checkpoints-become-read-only", "The folder for checkpoints becomes read-only", _make_read_only, _small_checkpoints
)
CORRUPT = Fault(
    "corrupt-last-checkpoint", "The last checkpoint is damaged, and a task is killed by SIGKILL", _damage_and_kill
)
KILL_IN_SAVE = Fault(
    "kill-during-a-save", "A task is killed by SIGKILL between the data and the manifest of a checkpoint", _kill_in_save
)
