"""A suite's arms on several hosts."""

from typing import Any

import pytest

from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import Arm, load_suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, Machines, local_machines

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "10.0.0.2")
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
    mirrored = resolve_arms([arm(2, strategy="mirrored")], TWO, "smoke")
    assert "is one process" in mirrored.refused["a"]


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
