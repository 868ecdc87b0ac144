"""`tfdist collectives` with real processes: right results, and the bandwidth of a known link."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfdist.bench.collectives.results import read_collectives

TFDIST = [sys.executable, "-m", "tfdist.cli", "collectives"]
GRADIENTS = ["--model-gradients", "--model", "tiny", "--set", "classes=10", "--bytes-per-pack", "4K"]


def measure(folder: Path, *arguments: str) -> dict[str, Any]:
    """Its JSON, if it exits with code 0."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [*TFDIST, "--out", "out", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Two workers, and two devices of one process, with two sizes and the gradients of a model."""
    folder = tmp_path_factory.mktemp("it's; new")
    arms = ["--workers", "2", "--communication", "ring", "--devices", "2", "--cross-device", "auto,hierarchical-copy"]
    return folder, measure(folder, *arms, "--sizes", "4,64K", *GRADIENTS, "--rounds", "3", "--turn", "0.2s")


@pytest.mark.thorough
def test_every_size_of_every_arm_is_measured_in_every_round_and_right(measured):
    folder, found = measured
    sweep = read_collectives(folder / "out")
    names = {"multiworker/ring": 4, "mirrored/auto": 4, "mirrored/hierarchical-copy": 3}
    assert {arm: sum(line.arm == arm for line in sweep.lines) for arm in names} == {a: 3 * n for a, n in names.items()}
    assert {line.wrong for line in sweep.lines} == {0}
    assert {line.ranks for line in sweep.lines} == {2}
    assert found["not_measured"] == {}
    assert "tensorflow" in sweep.header.environment


@pytest.mark.thorough
def test_the_gradients_are_those_of_the_model_in_packs(measured):
    _, found = measured
    rows = [row for row in found["rows"] if row["arm"] == "multiworker/ring" and row["tensors"] > 1]
    assert [row["pack_bytes"] for row in rows] == [None, 4096]
    assert {(row["tensors"], row["size_bytes"]) for row in rows} == {(6, 4 * 5418)}


@pytest.mark.thorough
def test_times_and_bandwidths_belong_together_and_a_small_operation_is_faster(measured):
    _, found = measured
    for row in found["rows"]:
        assert row["busbw_gb_per_s"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)
        assert row["time_us_low"] <= row["time_us"] <= row["time_us_high"]
    assert (measured[0] / "out" / "report.html").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("op", "arms"),
    [
        (
            "all-gather",
            ["--devices", "2", "--workers", "2", "--communication", "ring", "--cross-device", "reduction-to-one"],
        ),
        ("broadcast", ["--workers", "2", "--communication", "ring"]),
        ("reduce-to-one", ["--devices", "2", "--cross-device", "reduction-to-one"]),
    ],
)
def test_every_operation_has_the_right_results(tmp_path, op, arms):
    found = measure(tmp_path, "--op", op, *arms, "--sizes", "8,48K", "--rounds", "1", "--turn", "0.1s")
    assert {row["op"] for row in found["rows"]} == {op}
    assert [row["wrong"] for row in found["rows"]] == [0] * len(found["rows"])
    assert {row["size_bytes"] for row in found["rows"]} == {8, 48 << 10}


@pytest.mark.thorough
def test_between_two_hosts_the_bus_bandwidth_is_at_most_that_of_their_link(launcher, net):
    options = (
        "--sizes",
        "1K,2M",
        "--communication",
        "ring",
        "--rounds",
        "3",
        "--turn",
        "0.5s",
        "--out",
        "out",
        "--json",
    )
    with net.hosts[1].limit_mbit(100):
        done = launcher.run("--hosts", "h1,h2", *options, command="collectives", timeout_s=600)
    assert done.code == 0, done.err[-4000:]
    small, large, *_ = json.loads(done.out.splitlines()[-1])["rows"]
    assert (large["hosts"], large["ranks"], large["wrong"], small["wrong"]) == (2, 2, 0, 0)
    assert 0.5 * 0.0125 < large["busbw_gb_per_s"] < 1.1 * 0.0125
    link = read_collectives(launcher.folder / "out").header.link
    assert 0.3 * 12.5e6 < link["bytes_per_s"] < 1.1 * 12.5e6
