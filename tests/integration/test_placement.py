"""--set log_device_placement=true: the table of operations by device, and a console without its log."""

import csv
import subprocess
import sys
from collections import Counter

import pytest

pytestmark = pytest.mark.thorough
TINY = ("--model", "tiny", "--preset", "smoke", "--steps", "8", "--set", "warmup_steps=2")


def placed(folder, *options) -> dict[tuple[str, str], Counter[str]]:
    """Number of nodes by device, of each task's operations."""
    command = [sys.executable, "-m", "tfdist.cli", "launch", *TINY, "--set", "log_device_placement=true", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "[tfdist] operations by device: " in done.stderr
    assert "/job:" not in done.stdout + done.stderr
    (table,) = folder.glob("runs/*/placement.csv")
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in csv.DictReader(table.read_text().splitlines()):
        found.setdefault((row["task"], row["operation"]), Counter())[row["device"]] += int(row["nodes"])
    return found


def test_each_replica_computes_on_its_device(tmp_path):
    found = placed(tmp_path, "--strategy", "mirrored", "--devices", "2", "--set", "soft_placement=false")
    convolutions = found["worker-0", "Conv2DBackpropFilter"]
    assert convolutions["CPU:0"] == convolutions["CPU:1"] > 0


def test_parameter_servers_apply_updates(tmp_path):
    found = placed(tmp_path, "--strategy", "parameter-server", "--workers", "1", "--ps", "2")
    updates = sum((devices for (_, operation), devices in found.items() if operation == "ResourceApplyAdam"), Counter())
    assert {"ps-0 CPU:0", "ps-1 CPU:0"} == set(updates)
    computed = sum((devices for (_, operation), devices in found.items() if operation == "Conv2D"), Counter())
    assert set(computed) == {"worker-0 CPU:0"}
