"""`tfdist runs`."""

import json
import socket
import time
from pathlib import Path

import pytest

from tfdist.cli.main import run
from tfdist.cli.runs import ago
from tfdist.launch.runs.launcher import this_launcher


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)


def keep(name, **files):
    """A run's folder with these JSON files."""
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    for file, values in files.items():
        (folder / f"{file}.json").write_text(json.dumps(values))


def outcome(status, reason="", wall_s=3.21, exit_code=1):
    return {"format": 1, "status": status, "reason": reason, "wall_s": wall_s, "exit_code": exit_code}


def test_without_runs_one_line_says_how_to_start_one(capsys):
    assert run(["runs"]) == 0
    assert capsys.readouterr().out == "no runs in runs yet; 'tfdist launch' starts one\n"


def test_the_runs_are_listed_newest_first_with_state_duration_and_reason(capsys):
    keep("20260101T120000Z-a", outcome=outcome("failed", "worker-1 exited with code 1: ValueError: x"))
    keep("20260102T120000Z-b", outcome=outcome("ok", wall_s=125))
    keep("20260103T120000Z-c", launcher={**this_launcher().to_json(), "started": time.time() - 301})
    keep("20260104T120000Z-d")
    assert run(["runs"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "started", "state", "time", "why"]
    assert [row.split()[0] for row in rows] == [
        f"2026010{n}T120000Z-{c}" for n, c in ((3, "c"), (4, "d"), (2, "b"), (1, "a"))
    ]
    assert [row.partition(" ago)")[2].split(maxsplit=1) for row in rows] == [
        ["running", "5 min"],
        ["lost", "the launcher ended without an outcome"],
        ["ok", "2 min"],
        ["failed", "3 s    worker-1 exited with code 1: ValueError: x"],
    ]
    assert "(5 min ago)" in rows[0]


def test_a_launch_is_listed(capsys):
    assert run(["launch", "--strategy", "one-device", "--", "false"]) == 1
    assert run(["launch", "--strategy", "one-device", "--name", "fine", "--", "true"]) == 0
    capsys.readouterr()
    assert run(["runs", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    new, old = json.loads(line)["runs"]
    assert (new["state"], new["name"][-5:], old["state"], old["exit_code"]) == ("ok", "-fine", "failed", 1)
    assert old["culprit"] == "worker-0"


def test_a_launch_that_is_refused_after_its_folder_was_made_is_listed_as_refused(capsys):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(["launch", "--strategy", "multiworker", "--port", port, "--", "true"]) == 2
    capsys.readouterr()
    assert run(["runs"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert " refused " in row
    assert f"port {port} cannot be used" in row


def test_the_number_of_runs_can_be_limited(capsys):
    for day in range(1, 5):
        keep(f"2026010{day}T120000Z-a", outcome=outcome("ok"))
    assert run(["runs", "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert run(["runs", "--limit", "0"]) == 2
    assert "--limit 0: must be at least 1" in capsys.readouterr().err


def test_reasons_are_shortened_to_the_terminal(capsys, monkeypatch):
    keep("20260101T120000Z-a", outcome=outcome("failed", "x" * 300 + "\nsecond line"))
    monkeypatch.setattr("tfdist.cli.runs._width", lambda: 80)
    assert run(["runs"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) == 80
    assert out.count("\n") == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "just now"), (59, "just now"), (60, "1 min ago"), (7300, "2 h ago"), (2e5, "2 d ago")]
)
def test_ages(seconds, text):
    assert ago(seconds) == text
