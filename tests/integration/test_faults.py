"""A short part of the table of faults (`make faults` runs all of it), and launchers that are killed."""

import signal

import pytest

from lab.faults.kill_launchers import kill_many
from lab.faults.measure import deviations
from lab.faults.run import run
from lab.faults.table import SCENARIOS

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
QUICK = ("launcher-killed/plain/middle", "agent-killed/plain/worker-1/middle", "port-taken/plain/before")
SLOW = (
    "sigkill/multiworker/worker-1/middle",
    "exception/mirrored/worker-0/start",
    "early-exit-0/parameter-server/ps-0/middle",
    "sigstop/multiworker/worker-1/middle",
    "sigkill/copied/worker-1/middle/restarts",
    "sigkill/function/worker-1/middle/restarts",
    "template-killed/multiworker/middle",
)
KILLED_LAUNCHERS = 8


def test_scenarios_have_different_names():
    assert len(BY_NAME) == len(SCENARIOS)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.thorough) for name in SLOW)])
def test_a_fault_ends_as_expected(name, tmp_path):
    scenario = BY_NAME[name]
    assert deviations(scenario, run(scenario, tmp_path / "box", None)) == []


@pytest.mark.thorough  # a lost agent has 10 s
def test_a_fault_of_a_host_ends_as_expected(net, tmp_path):
    scenario = BY_NAME["agent-killed-below-a-shell/plain-hosts/worker-1/middle"]
    assert deviations(scenario, run(scenario, tmp_path / "box", net)) == []


def test_killed_launchers_leave_nothing_behind():
    results = kill_many(KILLED_LAUNCHERS, None)
    assert [result.left for result in results if result.left] == []
    assert -signal.SIGKILL in {result.code for result in results}
