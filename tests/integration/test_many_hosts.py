"""Agents on many hosts, as an ordinary user with little memory for pipes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("many_hosts.py")
READY_S = 40.0
"""Time limit for 128 hosts; measured here: 5 s on two busy cores."""


def connect_many(number, frozen, start_timeout_s):
    """What the script reports. Root's pipes are never small, unless it lacks these capabilities."""
    without = ["setpriv", "--bounding-set=-sys_resource,-sys_admin"] if os.geteuid() == 0 else []
    if without and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (util-linux)")
    command = [*without, sys.executable, str(SCRIPT), str(number), frozen, str(start_timeout_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    if not result["small_pipes"]:
        pytest.skip("pipes of this user do not become small (fs.pipe-user-pages-soft)")
    return result


@pytest.mark.thorough
def test_many_agents_are_ready_in_time(survivors):
    result = connect_many(128, "none", 60.0)
    assert result["error"] == ""
    assert result["connected_s"] < READY_S, result
    assert survivors() == []


@pytest.mark.thorough  # an agent has 10 s to answer
@pytest.mark.parametrize("number", [16, 128])
@pytest.mark.parametrize("frozen", ["alive", "hello"])
def test_a_frozen_agent_is_named_and_the_others_end(number, frozen, survivors):
    result = connect_many(number, frozen, 60.0)
    assert result["error"].startswith(f"h{number // 2}: ")
    assert "no message for 10 s" in result["error"]
    assert result["error"].count("\n") == 0  # no other host
    assert result["ended_s"] < 60
    assert survivors() == []
