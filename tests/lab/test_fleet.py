"""The fleet of played hosts."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.fleet.__main__ import main
from lab.fleet.measure import Figures
from lab.fleet.page import load, merged, save, slope, verdict
from lab.fleet.played import START, PlayedHost, parsed
from tfdist.launch.agents.messages import Heartbeat, Start, encode

ROW = Figures(
    agents="played",
    hosts=1000,
    delay_s=0.2,
    started_s=9.0,
    cpu_start_s=12.0,
    fleet_cpu_s=1.0,
    cores_training=0.2,
    steps_per_s=1000.0,
    memory_mb=250.0,
    logs_s=1.0,
    runs_s=0.5,
    stacks_s=1.5,
    run_s=0.5,
    named_s=4.0,
    named="worker-500",
    named_right=True,
    problems="",
    load=0.5,
    commit="commit abc",
    files={"cluster.json": 1000, "outcome.json": 2000},
)


def test_a_played_host_reads_the_messages_after_the_agents_program():
    stream = b'12\n{"a":\n"b"}\n\n{"kind": "one"}\n{"kind": "two"}\n'
    for size in (1, 5, len(stream)):
        host = PlayedHost("h1", 0, 1)
        parts = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [line for part in parts for line in host.lines(part)] == [b'{"kind": "one"}', b'{"kind": "two"}']


def test_a_start_is_read_without_its_environment():
    start = Start("worker-7", ("python",), {"TF_CONFIG": '{"task": {"type": "worker"}}'}, "/", (), None, attempt=2)
    assert START.match(encode(start))
    assert parsed(encode(start)) == {"kind": "start", "task": "worker-7", "attempt": 2}
    assert parsed(encode(Heartbeat(1.0))) == {"kind": "heartbeat", "time": 1.0}


def test_slopes_are_exponents_of_the_number_of_hosts_from_100_on():
    assert slope([10, 100, 1000], [50.0, 2.0, 200.0]) == pytest.approx(2.0)
    assert slope([10, 100], [1.0, 10.0]) is None
    assert slope([100, 1000, 4000], [1.0, 10.0, None]) == pytest.approx(1.0)


def test_rows_survive_the_file_and_new_ones_replace_old_ones_of_the_same_launch(tmp_path):
    rows = [ROW, replace(ROW, hosts=10, agents="real", stacks_s=None, problems="tfdist stacks: exit code 1")]
    save(rows, tmp_path / "scale.csv")
    assert load(tmp_path / "scale.csv") == rows
    assert merged([ROW, replace(ROW, hosts=10)], [replace(ROW, started_s=1.0)]) == [
        replace(ROW, hosts=10),
        replace(ROW, started_s=1.0),
    ]


def test_a_missed_aim_is_named_with_its_value():
    assert verdict([ROW]) == "With 1,000 hosts all aims are met."
    assert verdict([replace(ROW, started_s=15.04)]) == (
        "With 1,000 hosts not met: all tasks started, s: 15.0 (aim: under 15)."
    )


@pytest.mark.slow
def test_five_hosts_are_played_to_the_failure_of_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scale", "5", "--training", "1", "--delay", "0.05", "--out", str(tmp_path)])
    assert main() == 0, capsys.readouterr().err
    (row,) = load(tmp_path / "scale.csv")
    assert (row.hosts, row.named, row.named_right, row.problems) == (5, "worker-2", True, "")
    assert row.steps_per_s == pytest.approx(5, rel=0.5)
    assert all(value > 0 for value in (row.started_s, row.cpu_start_s, row.memory_mb, row.named_s, row.stacks_s))
    names = {"cluster.json", "outcome.json", "stacks.txt of all tasks", "events.jsonl, a step of each task"}
    assert names <= row.files.keys()
    page = Path(tmp_path, "scale.md").read_text(encoding="utf-8")
    assert re.search(r"\| all tasks started, s \| [\d.]+ \| - \| under 15 \|", page)
    assert "It was named with each number of hosts." in page
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
