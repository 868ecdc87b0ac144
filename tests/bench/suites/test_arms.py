"""A suite's arms on several hosts."""

from typing import Any

import pytest

from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import load_suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, Machines, local_machines
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "10.0.0.2")
CPUS, GPUS = Machine((0, 1), ()), Machine((0, 1), ("A", "B", "C"))
TWO: Machines = {H1: Machine((0, 1), ()), H2: Machine((0, 1), ())}


def arm(hosts: int, **choices: Any) -> Arm:
    return parse_suite({"arms": [{"name": "a", **choices, "hosts": hosts}]}, "s").arms[0]


def slots(machines: Machines) -> dict[str, int | None]:
    return {host.name: machine.slots for host, machine in machines.items()}


def test_an_arm_for_one_host_runs_on_the_first_with_its_workers() -> None:
    arms = resolve_arms([arm(1, strategy="multiworker", workers=2)], TWO, "smoke")
    assert slots(arms.machines["a"]) == {"h1": None}
    assert arms.specs["a"].workers == 2


@pytest.mark.parametrize(("workers", "each"), [(2, 1), (3, 2), (4, 2)])
def test_workers_are_spread_evenly_over_an_arms_hosts(workers: int, each: int) -> None:
    arms = resolve_arms([arm(2, strategy="multiworker", workers=workers)], TWO, "smoke")
    assert slots(arms.machines["a"]) == {"h1": each, "h2": each}


def test_without_a_number_every_host_has_one_worker() -> None:
    arms = resolve_arms([arm(2, strategy="independent")], TWO, "smoke")
    assert arms.specs["a"].workers == 2


def test_an_arm_that_does_not_fit_is_refused_with_its_reason() -> None:
    arms = resolve_arms(load_suite("hosts").arms, local_machines(Machine((0, 1), ())), "smoke")
    assert set(arms.specs) == {"one-device", "independent/1-host", "multiworker/1-host"}
    assert all("needs 2 hosts, 1 host is available:" in reason for reason in arms.refused.values())
    three = resolve_arms([arm(3, strategy="multiworker")], TWO, "smoke")
    assert "needs 3 hosts, 2 hosts are available:" in three.refused["a"]


NO_MACHINE: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "mirrored", "hosts": 2}, "is one process"),
    ({"strategy": "multiworker", "workers": 1, "hosts": 2}, "hosts = 2 with 1 worker: give each host a worker"),
    ({"strategy": "one-device", "dataset": "folder:/nowhere"}, "/nowhere"),
    ({"strategy": "one-device", "workers": 2, "cross_device": "nccl"}, "no effect"),
    ({"strategy": "mirrored", "devices": 3, "cross_device": "hierarchical-copy"}, "drops the gradients"),
    ({"strategy": "one-device", "keras": "3", "command": ["no-such-program"]}, "'no-such-program' is not found"),
    ({"strategy": "one-device", "command": ["python", "none.py"]}, "'none.py' is not in"),
]


@pytest.mark.parametrize(("choices", "reason"), NO_MACHINE, ids=lambda value: str(value))
def test_an_arm_that_no_machine_could_run_is_an_error_that_names_it(choices: dict[str, Any], reason: str) -> None:
    arms = parse_suite({"arms": [{"name": "the arm", **choices}]}, "s").arms
    machines = TWO if "hosts" in choices else local_machines(CPUS)
    with pytest.raises(TfdistError, match="arm 'the arm': ") as raised:
        resolve_arms(arms, machines, "smoke")
    assert reason in str(raised.value)


LACKING: list[tuple[dict[str, Any], Machine, str]] = [
    ({"strategy": "mirrored", "cross_device": "nccl"}, CPUS, "needs GPUs"),
    ({"strategy": "multiworker", "communication": "nccl"}, CPUS, "needs GPUs"),
    ({"strategy": "multiworker", "devices": 2}, CPUS, "without GPUs"),
    ({"strategy": "one-device", "gpus": True}, CPUS, "needs GPUs"),
    ({"strategy": "one-device", "gpus": False}, GPUS, "for CPUs"),
    ({"strategy": "mirrored", "devices": 4}, GPUS, "only 3 GPUs"),
    ({"strategy": "mirrored", "cross_device": "hierarchical-copy"}, GPUS, "drops the gradients"),
    ({"strategy": "tpu"}, CPUS, "needs a TPU"),
    ({"strategy": "one-device", "gpus": True, "command": ["true"]}, CPUS, "needs GPUs"),
]


@pytest.mark.parametrize(("choices", "machine", "reason"), LACKING, ids=lambda value: str(value))
def test_missing_hardware_refuses_an_arm_and_nothing_else(
    choices: dict[str, Any], machine: Machine, reason: str
) -> None:
    other = {"name": "b", "strategy": "one-device"}
    arms = parse_suite({"arms": [{"name": "a", **choices}, other]}, "s").arms
    resolved = resolve_arms(arms, local_machines(machine), "smoke")
    assert reason in resolved.refused["a"]
    assert list(resolved.specs) == ["b"]


def test_an_arm_with_a_command_has_a_strategy_but_no_training() -> None:
    arms = parse_suite({"command": ["true", "--x"], "arms": [{"name": "a", "strategy": "mirrored", "devices": 2}]}, "s")
    resolved = resolve_arms(arms.arms, local_machines(CPUS), None)
    assert resolved.specs["a"] == StrategyChoice(StrategyName.MIRRORED, devices=2, cores_per_device=1)
    assert resolved.commands == {"a": ("true", "--x")}


def test_a_command_on_gpus_is_not_pinned() -> None:
    arms = parse_suite({"command": ["true"], "arms": [{"name": "a", "strategy": "one-device"}]}, "s").arms
    assert resolve_arms(arms, local_machines(GPUS), None).specs["a"].cores_per_device is None


def test_the_hosts_suite_runs_completely_on_two() -> None:
    arms = resolve_arms(load_suite("hosts").arms, TWO, None)
    assert not arms.refused


@pytest.mark.parametrize("hosts", [0, -1, "2", True, 1.5])
def test_an_invalid_number_of_hosts_is_refused(hosts: object) -> None:
    with pytest.raises(TfdistError, match="hosts = "):
        parse_suite({"arms": [{"name": "a", "strategy": "one-device", "hosts": hosts}]}, "s")


def test_a_suite_with_hosts_survives_its_json() -> None:
    suite = load_suite("hosts")
    assert parse_suite(suite.to_json(), "again") == suite
