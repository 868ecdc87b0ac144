"""The gradients of all replicas arrive: their sum is right under every strategy, all-reduce and number of replicas."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough
PROGRAM = Path(__file__).with_name("sum_gradients.py")
COUNTS = (2, 5)
DEVICES = [
    ("mirrored", "auto", COUNTS),
    ("mirrored", "reduction-to-one", COUNTS),
    ("mirrored", "hierarchical-copy", (2, 4)),  # it drops a gradient of 3 or 5 devices, so those are refused
    ("central-storage", "", COUNTS),
]


def sums(folder: Path, *options: str, updates: int) -> list[str]:
    """The distinct values of the variables after the updates, as JSON, of each rank that ran the program."""
    command = ["launch", *options, "--", "python", str(PROGRAM), str(updates)]
    done = subprocess.run([sys.executable, "-m", "tfdist.cli", *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return re.findall(r"sums (.*)$", done.stdout, re.MULTILINE)


def total(count: int) -> str:
    """1 + 10 + 100 + ..., exact in float32 for up to 5 gradients."""
    return f"[{float('1' * count)}]"


@pytest.mark.parametrize(
    ("strategy", "cross_device", "devices"),
    [(strategy, cross_device, count) for strategy, cross_device, counts in DEVICES for count in counts],
)
def test_the_devices_of_one_process(strategy, cross_device, devices, tmp_path):
    options = ["--strategy", strategy, "--devices", str(devices)]
    options += ["--cross-device", cross_device] if cross_device else []
    assert sums(tmp_path, *options, updates=1) == [total(devices)]


@pytest.mark.parametrize(("communication", "workers"), [("auto", 2), *(("ring", count) for count in COUNTS)])
def test_workers(communication, workers, tmp_path):
    options = ["--strategy", "multiworker", "--workers", str(workers), "--communication", communication]
    assert sums(tmp_path, *options, updates=1) == [total(workers)] * workers


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_of_parameter_servers(workers, tmp_path):
    options = ["--strategy", "parameter-server", "--workers", str(workers), "--ps", "2"]
    assert sums(tmp_path, *options, updates=workers) == [total(workers)]
