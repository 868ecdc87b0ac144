"""`tfdist report` as it is typed."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from tests.bench.compare.benches import save_bench
from tests.bench.conftest import save_record
from tests.cli.screens import ARMS, Screen, broken
from tfdist.bench.report.build import make_report
from tfdist.cli.command import run
from tfdist.cli.result_folders import list_skipped
from tfdist.cli.show.report import show
from tfdist.launch.json_files import append_line
from tfdist.launch.text import has_controls
from tfdist.models.record import RankRecord, Record, Window
from tfdist.models.spec import TrainingSpec

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    root = tmp_path / 'a "bench"; it\'s'
    rank = RankRecord("worker-0", "box", 1, (), (Window(10, 640, 2.0, 0.5),), {}, 640, 10)
    record = Record("one-device", 1, TrainingSpec().to_json(), "ok", "", 0, ranks=(rank,), command="tfdist bench")
    save_record(root, record)
    return root


@pytest.mark.slow
def test_the_report_is_written_into_the_first_folder(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(bench)]) == 0
    printed = capsys.readouterr()
    assert f"report: {bench / 'report.html'}" in printed.out
    assert "one-device: 320 images/s on 1 device" in printed.out
    assert printed.err == ""
    assert {"report.md", "report.csv", "report.json", "images_per_s.png"} <= {path.name for path in bench.iterdir()}


def test_out_is_where_it_goes(bench: Path, tmp_path: Path) -> None:
    assert run(["report", str(bench), "--out", str(tmp_path / "else")]) == 0
    assert (tmp_path / "else" / "report.md").exists()
    assert [path.name for path in bench.iterdir()] == ["records.jsonl"]


@pytest.mark.slow
def test_a_joint_report_replaces_none(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    copytree(bench, other)
    assert run(["report", str(bench), str(other)]) == 2
    assert run(["report", str(bench), str(other), "--out", str(other)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == printed.err.count("tfdist: ") == 2
    assert not (bench / "report.md").exists()
    assert not (other / "report.md").exists()
    assert run(["report", str(bench), str(other), "--out", str(tmp_path / "both")]) == 0
    assert (tmp_path / "both" / "report.md").exists()


@pytest.mark.slow
def test_any_measured_arm_can_be_the_baseline(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = RankRecord("worker-0", "box", 1, (), (Window(10, 640, 4.0, 0.5),), {}, 640, 10)
    save_record(bench, Record("slow", 1, TrainingSpec(xla=True).to_json(), "ok", "", 0, ranks=(rank,), order=2))
    for words, baseline, speed_up in (((), "one-device", 0.5), (("--baseline", "slow"), "slow", 1.0)):
        assert run(["report", str(bench), "--json", *words]) == 0
        (row,) = (row for row in json.loads(capsys.readouterr().out)["rows"] if row["arm"] == "slow")
        assert (row["baseline"], row["speed_up"]) == (baseline, pytest.approx(speed_up))


def test_a_baseline_that_was_not_measured_is_one_sentence(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(bench), "--baseline", "one-devic"]) == 2
    printed = capsys.readouterr()
    expected = "--baseline one-devic: no measured arm; did you mean one-device? Choose from one-device"
    assert printed.err == f"tfdist: {expected}\n"
    assert printed.out == ""
    assert not (bench / "report.md").exists()


def test_refused_arms_are_named_and_the_last_line_is_the_page(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = Record("gpus", 1, {"strategy": "mirrored"}, "refused", "no GPUs", 2)
    save_record(bench, record)
    assert run(["report", str(bench)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "refused: no GPUs (gpus)" in lines
    assert lines[-1] == f"report: {bench / 'report.html'}"


@pytest.mark.slow
def test_open_shows_the_page_in_the_browser(bench: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    argv = [sys.executable, "-m", "tfdist", "report", str(bench), "--open"]
    done = subprocess.run(
        argv, env=with_browser(tmp_path, f'printf "%s" "$1" > "{opened}"'), capture_output=True, text=True
    )
    assert opened.read_text() == (bench / "report.html").as_uri()
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == f"report: {bench / 'report.html'}"


def test_a_machine_without_a_browser_is_a_sentence(tmp_path: Path) -> None:
    code = "from pathlib import Path; from tfdist.cli.report import open_page; open_page(Path('report.html'))"
    environment = with_browser(tmp_path, "exit 1")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "tfdist: no browser on this machine: copy report.html to one with a browser, or set BROWSER\n"


def with_browser(folder: Path, script: str) -> dict[str, str]:
    """The environment in which this shell script is the only browser."""
    browser = folder / "browser"
    browser.write_text(f"#!/bin/sh\n{script}\n")
    browser.chmod(0o700)
    return {**os.environ, "BROWSER": f"{browser} %s", "PATH": "", "DISPLAY": ""}


def test_json_is_the_last_line_of_stdout(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(bench), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert json.loads(printed.out)["rows"][0]["images_per_s"] == pytest.approx(320.0)


def test_a_broken_record_is_listed_on_stderr_and_the_rest_is_reported(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_line(bench / "records.jsonl", '{"format": 7}')
    assert run(["report", str(bench)]) == 0
    assert "records.jsonl, line 2: a record of format 7" in capsys.readouterr().err


def test_nothing_to_report_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "no folder")]) == 2
    assert run(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("tfdist: ") == printed.err.count("\n") == 2


def test_folders_without_records_are_skipped(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "0-program"
    program.mkdir()
    assert run(["report", str(program), str(bench)]) == 0
    assert f"skipped {program}: no records" in capsys.readouterr().err
    assert (bench / "report.md").exists()
    assert list(program.iterdir()) == []
    assert run(["report", str(tmp_path / "typo"), str(bench)]) == 2


@pytest.mark.parametrize("columns", [35, 40, 59, 60, 80])
def test_words_stay_whole_in_a_narrow_terminal(bench: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    show(make_report([bench]), screen)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    table = printed.split("\n\n")[1]
    for word in ("one-device", "images/s", "320.0", "status"):
        assert word in table
    assert ("speed-up" in table) == (columns >= 59)
    assert max(map(len, printed.splitlines())) <= columns


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_arms(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    arms = [arm for arm in ARMS if len(arm) < width]
    root = save_bench(tmp_path / "bench", arms={"one-device": 0.1, **dict.fromkeys(arms, 0.08)})
    screen = Screen()
    show(make_report([root]), screen)
    table = screen.getvalue().partition("─\n")[2].partition("\n\n")[0]
    assert broken(arms, table, width) == []


def test_figures_of_a_program_of_ones_own_are_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = RankRecord("worker-0", "box", 1, (), (Window(10, 640, 2.0, None),), {}, 640, 10)
    spec = {**TrainingSpec().to_json(), "command": ["python", "train.py"]}
    record = Record("one-device", 1, spec, "ok", "", 0, ranks=(rank,), command="tfdist bench")
    save_record(tmp_path, record)
    assert run(["report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "examples/s (whole job)" in printed
    assert "images" not in printed


def test_refused_arms_are_shown_in_a_line_and_not_in_the_table(bench: Path) -> None:
    for number in range(6):
        save_record(bench, Record(f"mirrored/{number}", 1, TrainingSpec().to_json(), "refused", "only 1 GPU", 2))
    stream = io.StringIO()
    show(make_report([bench]), stream)
    assert stream.getvalue().count("mirrored/0") == 1
    assert "refused: only 1 GPU (mirrored/0, mirrored/1, mirrored/2, mirrored/3 and 2 more)" in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Screen])
def test_texts_of_records_are_shown_as_they_are_without_controls(
    bench: Path, stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    rank = RankRecord("worker-0", "box", 1, (), (Window(10, 640, 2.0, 0.5),), {}, 640, 10)
    name, reason = "[red]a[/red]:smile:\x1b]0;x\x07\x9b\u202e", "[link=x]b[/link]\x1b[2J\x9d"
    good = Record(name, 1, TrainingSpec().to_json(), "ok", "", 0, ranks=(rank,), command="tfdist bench", order=2)
    bad = Record("other" + name, 1, TrainingSpec().to_json(), "failed", reason, 1, command="tfdist bench", order=3)
    for record in (good, bad):
        save_record(bench, record)
    append_line(bench / "records.jsonl", '{"arm": "x\x1b]0;x\x07')
    report, screen = make_report([bench]), stream()
    show(report, screen)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert not has_controls(shown)
    assert "[red]a[/red]:smile:" in shown
    assert "failed: [link=x]b[/link] (other[red]a[/red]:smile:)" in shown
    list_skipped((), report.skipped)
    assert not has_controls(capsys.readouterr().err)
