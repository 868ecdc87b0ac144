"""`--burn` with three real hosts, of which one or its link is slow."""

import os
import subprocess
import sys

import pytest

from lab.burn_cases import CASES, warnings_of

from .conftest import hosts_fixture
from .nethost import SYSTEM_PATH

pytestmark = pytest.mark.thorough
net = hosts_fixture(3, "module")


@pytest.mark.parametrize("case", CASES)
def test_what_is_slow_is_named_and_nothing_else(case, net):
    plant, expected = CASES[case]
    with plant(net):
        slow, texts = warnings_of(net)
    assert slow == expected, texts


def test_a_launch_that_asks_for_it_does_not_start_on_a_slow_link(net, tmp_path):
    hosts = ["--hosts", "h1,h2,h3", "--ssh", str(net.ssh), "--python", sys.executable]
    words = [*hosts, "--burn", "3s", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]
    environ = {**os.environ, "HOME": str(net.folder), "PATH": SYSTEM_PATH}
    with net.hosts[2].limit_mbit(100):
        done = subprocess.run(
            net.in_hub(sys.executable, "-m", "tfdist", "launch", *words),
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 69, done.stderr
    assert "h1 - h3, h2 - h3 slow" in done.stderr
    assert not (tmp_path / "runs").exists()
