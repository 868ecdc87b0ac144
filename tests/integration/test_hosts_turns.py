"""Benches in turns on two real hosts, with a program without TensorFlow."""

import json
import re
from pathlib import Path

import pytest

SUITE = """
name = "two"
incarnations = 1
rounds = 30
turn = 0.1
warmup = 0.1
window = 0.05
arms = [
  { name = "one", strategy = "one-device" },
  { name = "two hosts", strategy = "multiworker", workers = 2, hosts = 2 },
  { name = "server", strategy = "parameter-server", workers = 2, ps = 1, hosts = 2 },
]
"""
PROGRAM = Path(__file__).with_name("turns_program.py")


@pytest.mark.thorough
def test_the_arms_of_a_lost_host_are_rows_and_the_others_finish(launcher, net):
    suite = launcher.script(SUITE, "two.toml")
    arguments = ("--hosts", "h1,h2", "--suite", suite, "--out", "bench", "--python", str(launcher.python))
    process = launcher.start(*arguments, "--", "python", launcher.script(PROGRAM.read_text()), command="bench")
    assert next((line for line in process.stdout if line.startswith("round 2 ")), None)
    with net.hosts[1].down():
        out, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    assert re.search(r"two hosts: failed: .*h2", out)
    assert re.search(r"server: failed: .*h2", out)
    turns = [json.loads(line) for line in (launcher.folder / "bench" / "turns.jsonl").read_text().splitlines()]
    assert {turn["round"] for turn in turns if turn["arm"] == "one"} == set(range(1, 31))
    assert {len(turn["hosts"]) for turn in turns if turn["arm"] == "two hosts"} == {2}
