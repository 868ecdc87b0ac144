"""`--burn` with three real hosts, of which one or its link is slow."""

import os
import subprocess
import sys

import pytest

from lab.burn_cases import CASES, warnings_of

from .namespaces import missing, network
from .nethost import SYSTEM_PATH

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    why = missing()
    if why:
        pytest.skip(f"no hosts in network namespaces: {why}")
    with network(tmp_path_factory.mktemp("net"), 3) as hosts:
        yield hosts


@pytest.mark.parametrize("case", CASES)
def test_what_is_slow_is_named_and_nothing_else(case, three):
    plant, expected = CASES[case]
    with plant(three):
        slow, texts = warnings_of(three)
    assert slow == expected, texts


def test_a_launch_that_asks_for_it_does_not_start_on_a_slow_link(three, tmp_path):
    hosts = ["--hosts", "h1,h2,h3", "--ssh", str(three.ssh), "--python", sys.executable]
    words = [*hosts, "--burn", "3s", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]
    environ = {**os.environ, "HOME": str(three.folder), "PATH": SYSTEM_PATH}
    with three.hosts[2].limit_mbit(100):
        done = subprocess.run(
            three.in_hub(sys.executable, "-m", "tfdist", "launch", *words),
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 69, done.stderr
    assert "h1 - h3, h2 - h3 slow" in done.stderr
    assert not (tmp_path / "runs").exists()
