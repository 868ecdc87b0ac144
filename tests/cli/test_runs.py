"""`tfdist runs`."""

import io
import json
import os
import re
import socket
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.cli.screens import ARMS, HOSTS, broken
from tests.users import OTHER, needs_root
from tfdist.bench.folder import BenchFile, BenchPaths
from tfdist.bench.plan import interleave
from tfdist.bench.suites.suite import parse_suite
from tfdist.cli.command import run
from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.diagnosis.straggler import StragglerReport
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import this_launcher
from tfdist.launch.runs.state import delete
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice


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
    assert header.split() == ["run", "started", "state", "time", "hosts", "size", "what", "why"]
    assert [row.split()[0] for row in rows] == [
        f"2026010{n}T120000Z-{c}" for n, c in ((3, "c"), (4, "d"), (2, "b"), (1, "a"))
    ]
    assert [" ".join(re.sub(r"\d+ bytes", "", row.partition(" ago)")[2]).split()) for row in rows] == [
        "running 5 min",
        "lost the launcher ended without an outcome",
        "ok 2 min",
        "failed 3 s worker-1 exited with code 1: ValueError: x",
    ]
    assert "(5 min ago)" in rows[0]


def test_a_bench_is_listed_with_its_turns(tmp_path, capsys):
    paths = BenchPaths(tmp_path / "bench_results" / "mine")
    suite = parse_suite({"arms": [{"name": name, "strategy": "one-device"} for name in "ab"], "rounds": 3}, "s")
    paths.path.mkdir(parents=True)
    save_json(paths.bench, BenchFile(suite, "tfdist bench --suite s", "", interleave(["a", "b"], 3, 0)).to_json())
    paths.turns.write_text('{"turn": 1}\n')
    paths.records.write_text('{"arm": "b", "status": "refused"}\n')  # it has no turns
    assert run(["runs"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.startswith("bench_results/mine ")
    assert re.search(r" bench +\d+ s +1 +[\d.]+ (bytes|kB) +tfdist bench --suite s +1 of 3 turns$", row)


def test_a_launch_is_listed(capsys):
    assert run(["launch", "--strategy", "one-device", "--", "false"]) == 1
    assert run(["launch", "--strategy", "one-device", "--name", "fine", "--", "true"]) == 0
    capsys.readouterr()
    assert run(["runs", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    new, old = json.loads(line)["runs"]
    assert (new["state"], new["name"][-5:], old["state"], old["exit_code"]) == ("ok", "-fine", "failed", 1)
    assert old["culprit"] == "worker-0"
    assert (old["what"], new["what"]) == ("one-device false", "one-device true")
    assert old["bytes"] > 100


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


def test_one_run_says_how_it_ended_and_which_workers_held_the_others_up(capsys):
    figures = {"last": 0.9, "waits": 0.2}
    text = "worker-1 on h2 is last in 90% of the steps: the others wait 20% of their time; its input takes 31 of 48 ms"
    held = StragglerReport("worker-1", "h2", 0.0, 65.0, text, figures)
    ended = Outcome(Status.OK, 0, "", wall_s=90.0, stragglers=(held,))
    keep("20260101T120000Z-a", outcome=ended.to_json())
    assert run(["runs", "last"]) == 0
    assert f"  for 65 s {text}\n" in capsys.readouterr().out.replace("1 min 5 s", "65 s")
    assert run(["runs", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["stragglers"] == [asdict(held)]
    assert run(["runs", "nothing"]) == 2


def test_one_run_that_still_runs_is_shown_with_the_way_to_follow_it(capsys):
    keep("20260103T120000Z-c", launcher=this_launcher().to_json())
    assert run(["runs", "last"]) == 0
    assert "'tfdist logs 20260103T120000Z-c --follow'" in capsys.readouterr().out
    assert run(["runs", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "running"


@pytest.mark.parametrize("options", [["--prune", "30d"], ["--limit", "3"]])
def test_options_of_the_list_are_refused_for_one_run(options, capsys):
    assert run(["runs", "last", *options]) == 2
    assert "have no effect with it" in capsys.readouterr().err


LONG = ("20260101T120000Z-parameter-server-on-four-hosts", "20260101T120000Z-parameter-server-on-five-hosts")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_whole_names_and_commands(width, capsys, monkeypatch):
    reason = f"{HOSTS[0]} is lost: no answer for 60 s; {HOSTS[1]} was stopped after it"
    programs = [["python", "/home/someone/experiments/train.py", "--learning-rate", rate] for rate in ("0.1", "0.2")]
    for name, program in zip(LONG, programs, strict=True):
        saved = SavedSpec(StrategyChoice(), tuple(program)).to_json()
        keep(name, outcome=outcome("failed", reason), spec=saved)
    keep_bench("bench_results/20261124T124638Z-cpu-explain", "tfdist bench --suite cpu --arm " + " --arm ".join(ARMS))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["runs"]) == 0
    out = capsys.readouterr().out
    names = [
        *LONG,
        "bench_results/20261124T124638Z-cpu-explain",
        *HOSTS,
        "/home/someone/experiments/train.py",
        "0.1",
        "0.2",
    ]
    assert broken([*names, *(arm for arm in ARMS if len(arm) < width)], out, width) == []
    assert reason.split() == out.split()[out.split().index(HOSTS[0]) :][: len(reason.split())]
    assert "…" not in out


def test_a_file_gets_a_line_for_each_run_with_its_whole_command(capsys):
    program = ("python", "train.py", "--comment", "x" * 300)
    keep(
        LONG[0],
        outcome=outcome("failed", "first line\nsecond line"),
        spec=SavedSpec(StrategyChoice(), program).to_json(),
    )
    assert run(["runs"]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert f"one-device {' '.join(program)}" in row
    assert row.endswith("first line second line")


def test_files_that_a_job_removes_meanwhile_are_not_counted(capsys, monkeypatch):
    keep("20260101T120000Z-a", other={})
    monkeypatch.setattr(os, "walk", lambda folder: [(folder, [], ["other.json", "removed"])])
    assert run(["runs", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["runs"]
    assert entry["bytes"] == len("{}")


class Answer(io.StringIO):
    """The standard input of a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def _old_runs():
    """Two runs that ended in January 2026, one of them with a checkpoint, and one that has just ended."""
    for name in ("20260101T120000Z-a", "20260102T120000Z-b", "20260103T120000Z-c"):
        keep(name, outcome=outcome("ok"))
    checkpoints = Path("runs/20260102T120000Z-b/checkpoints")
    checkpoints.mkdir()
    (checkpoints / "ckpt-1").write_bytes(bytes(12_000_000))
    for folder in ("20260101T120000Z-a", "20260102T120000Z-b"):
        for path in (*Path("runs", folder).rglob("*"), Path("runs", folder)):
            os.utime(path, (1767355200, 1767355200))


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_old_runs(width, capsys, monkeypatch):
    for name in LONG:
        keep(name, outcome=outcome("ok"))
        for path in (*Path("runs", name).rglob("*"), Path("runs", name)):
            os.utime(path, (1767355200, 1767355200))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", Answer("n\n"))
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["runs", "--prune", "30d"]) == 0
    assert broken(LONG, capsys.readouterr().out, width) == []


@pytest.mark.usefixtures("_old_runs")
@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("yes\n", 1), ("n\n", 3), ("\n", 3), ("", 3)])
def test_old_runs_are_listed_and_deleted_after_a_question(answer, left, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Answer(answer))
    assert run(["runs", "--prune", "30d"]) == 0
    header, first, second, question = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "ended", "size", "holds"]
    assert re.fullmatch(r"20260101T120000Z-a  2026-01-02 \d\d:\d\d \(\d+ d ago\)  \d+ bytes", first)
    assert re.fullmatch(r"20260102T120000Z-b  2026-01-02 \d\d:\d\d \(\d+ d ago\)  12.0 MB +checkpoints", second)
    result = "deleted 2 runs, freed 12.0 MB" if left == 1 else "nothing was deleted"
    assert question == f"delete 2 runs (12.0 MB), 1 of them with checkpoints? [y/N] {result}"
    assert len(list(Path("runs").iterdir())) == left


@pytest.mark.usefixtures("_old_runs")
def test_without_a_terminal_runs_are_deleted_only_with_yes(capsys):
    assert run(["runs", "--prune", "30d"]) == 2
    out, err = capsys.readouterr()
    assert "20260101T120000Z-a" in out
    assert err == "tfdist: --prune 30d: there is no terminal to ask on; add --yes to delete these runs\n"
    assert len(list(Path("runs").iterdir())) == 3
    assert run(["runs", "--prune", "30d", "--yes", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["deleted"] == ["20260101T120000Z-a", "20260102T120000Z-b"]
    assert 12_000_000 < result["freed_bytes"] < 12_001_000
    assert run(["runs", "--prune", "30d"]) == 0
    assert capsys.readouterr().out == "no runs of yours in runs ended more than 30d ago\n"


@pytest.mark.usefixtures("_old_runs")
def test_a_run_that_changed_after_the_question_is_kept(monkeypatch, capsys):
    class Late(Answer):
        def readline(self):
            Path("runs/20260101T120000Z-a/new").write_text("")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Late())
    assert run(["runs", "--prune", "30d"]) == 0
    assert capsys.readouterr().out.endswith("deleted 1 run, freed 12.0 MB\n")
    assert Path("runs/20260101T120000Z-a/outcome.json").exists()


@pytest.mark.usefixtures("_old_runs")
def test_a_run_whose_checkpoints_a_running_one_uses_is_kept(capsys):
    folder = Path("runs/20260102T120000Z-b/checkpoints").absolute()
    spec = SavedSpec(TrainingSpec(), checkpointing=Checkpointing(str(folder))).to_json()
    keep("20260104T120000Z-d", launcher=this_launcher().to_json(), spec=spec)
    assert run(["runs", "--prune", "30d", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("deleted 1 run,")
    assert folder.exists()


@pytest.mark.usefixtures("_old_runs")
def test_a_run_that_cannot_be_deleted_is_named_and_the_others_are_deleted(monkeypatch, capsys):
    def refuse(old):
        if old.run_dir.path.name.endswith("a"):
            raise PermissionError(13, "Permission denied", "ckpt-1")
        delete(old)

    monkeypatch.setattr("tfdist.cli.runs.delete", refuse)
    assert run(["runs", "--prune", "30d", "--yes"]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("deleted 1 run, freed 12.0 MB\n")
    assert err == "tfdist: runs/20260101T120000Z-a: Permission denied (ckpt-1); delete the rest yourself\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prune", "soon"], "--prune soon: give a duration, as 5s, 10m, 1h or 30d"),
        (["--prune", "30"], "--prune 30: has no unit; did you mean 30d?"),
        (["--prune", "0d"], "--prune 0d: must be positive"),
        (["--yes"], "--yes: has no effect without --prune; omit it"),
        (["--prune", "30d", "-n", "5"], "--limit 5: has no effect with --prune; omit it"),
    ],
)
def test_wrong_options_about_old_runs_are_refused(options, message, capsys):
    assert run(["runs", *options]) == 2
    assert capsys.readouterr().err.startswith(f"tfdist: {message}")


@pytest.fixture
def others_run(tmp_path):
    """The name of another user's run, which ended well and claims a start in the future, beside one of ours."""
    keep("20260101T120000Z-a", outcome=outcome("failed", "ours"))
    name = "20990101T120000Z-b"
    spec = SavedSpec(TrainingSpec(), checkpointing=Checkpointing(str(tmp_path / "c"))).to_json()
    keep(name, outcome=outcome("ok", exit_code=0), spec=spec)
    os.chown(Path("runs", name), OTHER, OTHER)
    return name


@needs_root
def test_last_is_our_own_newest_run(others_run, capsys):
    assert run(["stop", "last"]) == 0
    assert capsys.readouterr().out.startswith("20260101T120000Z-a has already ended: failed")
    assert run(["runs", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "ours"


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        ["stop", "RUN"],
        ["stacks", "RUN"],
        ["export", "RUN", "model"],
        ["launch", "--preset", "smoke", "--resume", "RUN"],
        ["doctor", "--yes", "--bundle", "RUN"],
    ],
    ids=lambda words: words[0],
)
def test_what_acts_on_a_run_takes_that_of_another_user_only_by_its_path(words, others_run, capsys):
    assert run([others_run if word == "RUN" else word for word in words]) == 2
    assert f"not a run of yours; give the path of another user's, runs/{others_run}" in capsys.readouterr().err
    assert run(["logs", others_run]) == 0
    assert run(["runs", others_run]) == 0
    assert run(["stop", f"runs/{others_run}"]) == 0


def keep_bench(root, command="tfdist bench --suite s"):
    paths = BenchPaths(Path(root))
    suite = parse_suite({"arms": [{"name": "a", "strategy": "one-device"}], "rounds": 3}, "s")
    paths.path.mkdir(parents=True)
    save_json(paths.bench, BenchFile(suite, command, "", interleave(["a"], 3, 0)).to_json())
    return paths


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("records.jsonl", '{"arm": ["a"], "status": "refused"}\n'),
        ("records.jsonl", '{"status": "refused"}\n'),
        ("turns.jsonl", None),
        ("bench.json", None),
    ],
)
def test_a_bench_with_wrong_files_hides_no_other_run(file, text, capsys):
    keep("20260101T120000Z-a", outcome=outcome("ok"))
    path = keep_bench("bench_results/mine").path / file
    if text is None:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    else:
        path.write_text(text)
    assert run(["runs"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert {row.split()[0] for row in rows} == {"20260101T120000Z-a", "bench_results/mine"}
    assert text or "not a regular file" in "".join(rows)


@pytest.mark.parametrize("spec", [{"command": [1]}, {"command": 5}, {"checkpointing": {"folder": 5}}, [], "x"])
def test_a_spec_of_wrong_types_hides_no_other_run(spec, capsys):
    keep("20260101T120000Z-a", outcome=outcome("ok"))
    kind = StrategyChoice if "command" in spec else TrainingSpec  # as SavedSpec reads it
    values = {**kind().to_json(), **spec} if isinstance(spec, dict) else spec
    keep("20260102T120000Z-b", outcome=outcome("ok"), spec=values)
    for options in ([], ["--json"]):
        assert run(["runs", *options]) == 0
        out = capsys.readouterr().out
        assert "20260101T120000Z-a" in out
        assert "20260102T120000Z-b" in out
