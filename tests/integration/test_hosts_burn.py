"""`--burn` with three real hosts, of which one or its link is slow."""

import pytest

from lab.burn_cases import CASES, warnings_of

from .conftest import hosts_fixture

pytestmark = pytest.mark.thorough
net = hosts_fixture(3, "module")


@pytest.mark.parametrize("case", CASES)
def test_what_is_slow_is_named_and_nothing_else(case, net):
    plant, expected = CASES[case]
    with plant(net):
        slow, texts = warnings_of(net)
    assert slow == expected, texts


def test_a_launch_that_asks_for_it_does_not_start_on_a_slow_link(launcher, net):
    with net.hosts[2].limit_mbit(100):
        done = launcher.run("--hosts", "h1,h2,h3", "--burn", "3s", "--preset", "smoke", timeout_s=600)
    assert done.code == 69, done.err
    assert "h1 - h3, h2 - h3 slow" in done.err
    assert not (launcher.folder / "runs").exists()
