"""`--burn` with three real hosts, of which one or its link is slow."""

import json
from contextlib import nullcontext

import pytest

from lab.cpu_share import limited

from .conftest import hosts_fixture
from .sshd import pid_file

pytestmark = pytest.mark.thorough
net = hosts_fixture(3, "module")


def throttled(host):
    return limited(int(pid_file(host).read_text()), cores=0.25)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda net: nullcontext(), set()),
        (lambda net: throttled(net.hosts[2]), {"compute h3"}),
        (lambda net: net.hosts[2].limit_mbit(100), {"exchange h1 - h3", "exchange h2 - h3"}),
    ],
    ids=["equal", "throttled host", "slow link"],
)
def test_what_is_slow_is_named_and_nothing_else(plant, expected, launcher, net):
    with plant(net):
        named = slow(launcher)
        if named != expected:  # other tests run at the same time, and what they slow down differs
            named &= slow(launcher)
    assert named == expected


def slow(launcher):
    """What `doctor --burn` names."""
    done = launcher.run("--hosts", "h1,h2,h3", "--burn", "6s", "--json", command="doctor", timeout_s=600)
    rows = [row for row in json.loads(done.out)["rows"] if row["check"] in ("compute", "exchange", "burn")]
    return {f"{row['check']} {row['host']}" for row in rows if row["verdict"] != "ok"}


def test_a_launch_that_asks_for_it_does_not_start_on_a_slow_link(launcher, net):
    with net.hosts[2].limit_mbit(100):
        done = launcher.run("--hosts", "h1,h2,h3", "--burn", "3s", "--preset", "smoke", timeout_s=600)
    assert done.code == 69, done.err
    assert "h1 - h3, h2 - h3 slow" in done.err
    assert not (launcher.folder / "runs").exists()
