"""NCCL between two workers on one GPU: with an NCCL_HOSTID each they are two hosts to NCCL, which accepts both there.

Every test runs with ring on CPUs, too, so that only NCCL's own answers need a GPU. `make test-gpu` runs the others.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.faults import faults as f
from lab.faults.jobs import TINY
from lab.faults.measure import deviations
from lab.faults.restart_rows import RESTARTS, WORKERS
from lab.faults.run import run
from lab.faults.scenario import ENDLESS, Expected, Job, Scenario
from lab.faults.task_rows import KILLED, STALL, STALL_S, STALLED, W1
from tfdist.launch.agent_program.gpus import describe_gpus

TFDIST = (sys.executable, "-m", "tfdist.cli")
NAMES = ("gpu-a", "gpu-b")
TRANSPORT = ("--transport", "exec:env NCCL_HOSTID={host}")
REFERENCE = {"nccl": "ring", "ring": "auto"}
TOLERANCE = 1e-3
STEPS = ("--steps", "8", "--set", "steps_per_window=1", "--set", "warmup_steps=1", "--set", "learning_rate=0.01")
WAS_KILLED = f"{W1} was killed by SIGKILL"


def why_no_nccl() -> str:
    """Why NCCL cannot be tried on this machine; empty if it can."""
    gpus = describe_gpus()
    if not gpus["gpus"]:
        return "no GPU"
    if " MIG " in gpus["gpus"][0]:
        return "NCCL does not connect MIG instances"
    return f"CUDA libraries are missing: {', '.join(gpus['cuda_missing'])}" if gpus["cuda_missing"] else ""


@dataclass(frozen=True)
class TwoHosts:
    """Two hosts that are this machine, and what is exchanged between them."""

    communication: str
    folder: Path

    def options(self, address: str = "addr=127.0.0.1") -> tuple[str, ...]:
        """Those that reach the hosts, whose lines in the hostfile end with `address`."""
        hostfile = self.folder / "hosts.txt"
        hostfile.write_text("".join(f"{name} {address}\n" for name in NAMES))
        return "--hostfile", str(hostfile), *TRANSPORT

    def tfdist(self, *arguments: str) -> dict[str, Any]:
        """The JSON of a command that exits with code 0."""
        command = [*TFDIST, *arguments, "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def loss(self, communication: str, *options: str) -> float:
        """The last loss of a training on both hosts, equal on both."""
        losses = self.tfdist("launch", "--strategy", "multiworker", "--communication", communication, *options, *TINY, *STEPS)["loss"]  # fmt: skip
        assert list(losses) == list(WORKERS)
        assert len({*losses.values()}) == 1
        return float(losses[W1])

    def check_nccl(self) -> None:
        """Assert that two ranks have talked through NCCL's sockets on the loopback interface, or nobody through NCCL."""
        logs = [path.read_text(errors="replace") for path in self.folder.glob("nccl-*.log")]
        if self.communication != "nccl":
            assert logs == []
            return
        for pattern in (r"nranks 2 .*Init COMPLETE", r"NET/Socket : Using \[0\]lo:127\.0\.0\.1", r"via NET/Socket"):
            assert sum(bool(re.search(pattern, log)) for log in logs) >= 2, (pattern, logs)


@pytest.fixture(params=["ring", pytest.param("nccl", marks=pytest.mark.gpu)])
def two_hosts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoHosts:
    """Hosts with ring on CPUs, or NCCL on the first GPU."""
    visible = "-1"
    if request.param == "nccl":
        if why := why_no_nccl():
            (pytest.fail if "GPU_REQUIRED" in os.environ else pytest.skip)(f"NCCL cannot be tried: {why}")
        visible = describe_gpus()["gpu_ids"][0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # its rounding errors would hide small differences
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl-%p.log"))
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    return TwoHosts(request.param, tmp_path)


def test_each_worker_gets_a_host_id_of_its_own_and_its_interface(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # one worker on each
    hosts = TwoHosts("ring", tmp_path).options("")
    program = "import os; print(*(os.environ[f'NCCL_{name}'] for name in ('HOSTID', 'SOCKET_IFNAME')))"
    command = [*TFDIST, "launch", "--strategy", "multiworker", *hosts, "--interface", "lo", "--", "python", "-c", program]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("[worker-")]
    assert sorted(lines) == [f"[worker-{index}] {name} =lo" for index, name in enumerate(NAMES)]


@pytest.mark.thorough
@pytest.mark.core
def test_every_result_between_two_hosts_is_right(two_hosts: TwoHosts) -> None:
    sizes = ("--sizes", "4,64K,1M", "--rounds", "1", "--incarnations", "1", "--turn", "0.3s")
    found = two_hosts.tfdist(
        "collectives", *two_hosts.options(), "--communication", two_hosts.communication, *sizes, "--out", "out"
    )
    rows = {(row["size_bytes"], row["hosts"], row["ranks"], row["wrong"]) for row in found["rows"]}
    assert rows == {(size, 2, 2, 0) for size in (4, 64 << 10, 1 << 20)}
    two_hosts.check_nccl()


@pytest.mark.thorough
@pytest.mark.parametrize("op", ["all-gather", "broadcast"])
def test_every_result_of_other_operations_is_right(op: str, two_hosts: TwoHosts) -> None:
    sizes = ("--op", op, "--sizes", "8,48K", "--rounds", "1", "--incarnations", "1", "--turn", "0.3s")
    found = two_hosts.tfdist(
        "collectives", *two_hosts.options(), "--communication", two_hosts.communication, *sizes, "--out", "out"
    )
    rows = {(row["op"], row["size_bytes"], row["ranks"], row["wrong"]) for row in found["rows"]}
    assert rows == {(op, size, 2, 0) for size in (8, 48 << 10)}
    two_hosts.check_nccl()


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_losses_are_those_of_another_exchange(dtype: str, two_hosts: TwoHosts) -> None:
    options = (*two_hosts.options(), "--gradient-dtype", dtype)
    loss = two_hosts.loss(two_hosts.communication, *options)
    two_hosts.check_nccl()
    assert loss == pytest.approx(two_hosts.loss(REFERENCE[two_hosts.communication], *options), rel=TOLERANCE)
    alone = two_hosts.tfdist("launch", "--strategy", "one-device", *TINY, *STEPS)["loss"]
    assert loss != pytest.approx(alone["worker-0"], rel=TOLERANCE)  # the tolerance above is tight enough


@pytest.mark.thorough
def test_nccl_uses_the_interface_of_the_hosts(two_hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    two_hosts.loss(two_hosts.communication, *two_hosts.options(""), "--interface", "lo")
    two_hosts.check_nccl()


FAULTS = {
    "killed": (f.SIGKILL, Expected(KILLED, W1, WAS_KILLED, detected_s=3.0), {"steps": ENDLESS}),
    "restarted": (f.SIGKILL, Expected(0, W1, WAS_KILLED, restarts=1, restarted=WORKERS), {"restarts": RESTARTS}),
    "stalled": (f.SLEEP, Expected(STALLED, W1, f"no step for {STALL_S} s"), {"steps": ENDLESS, "options": STALL}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAULTS)
def test_a_worker_that_fails_is_named_and_the_job_continues_with_restarts(name: str, two_hosts: TwoHosts) -> None:
    fault, expected, how = FAULTS[name]
    options = ("--strategy", "multiworker", "--communication", two_hosts.communication, *two_hosts.options(), *TINY)
    scenario = Scenario(fault, Job("two-hosts", options), expected, W1, **how)
    measured = run(scenario, two_hosts.folder / "box", None)
    print(f"{name}: detected after {measured.detected_s:.1f} s, ended after {measured.ended_s:.1f} s")
    assert deviations(scenario, measured) == []
    two_hosts.check_nccl()
