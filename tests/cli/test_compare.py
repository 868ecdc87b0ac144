"""`tfdist compare` as it is typed."""

import io
import json
from pathlib import Path

import pytest

from tests.bench.compare.benches import save_bench
from tfdist.bench.compare.folders import compare_folders
from tfdist.cli.command import run
from tfdist.cli.compare import show
from tfdist.launch.text import plain

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_bench(tmp_path / "it's; old")


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    return save_bench(tmp_path / "new", {"multiworker/ring": 1.25}, seed=1)


def test_a_slower_arm_fails_the_gate(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow)]) == 0
    assert run(["compare", str(base), str(slow), "--fail-slower", "5%"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "Surely slower by more than 5 %: multiworker/ring."
    assert "SLOWER THAN THE BOUND, slower" in printed.out
    assert printed.err == ""
    assert run(["compare", str(base), str(slow), "--fail-slower", "30%"]) == 0


def test_differences_of_environment_come_first(base: Path, tmp_path: Path, capsys: Printed) -> None:
    other = save_bench(tmp_path / "other", machine={"cpu": "B CPU"}, day=2)
    assert run(["compare", str(base), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["environment:", "  cpu: A CPU -> B CPU"]
    assert any(line.startswith("arm  ") for line in lines[4:7])


def test_json_is_the_last_line_of_stdout(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), "--fail-slower", "0.05", "--json"]) == 1
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["too_slow"] == ["multiworker/ring"]
    assert "Surely slower" in printed.err


@pytest.mark.parametrize("wrong", [["--fail-slower", "5"], ["--anchor", "mirrored"], ["--nothing"]])
def test_wrong_input_is_one_sentence(base: Path, slow: Path, wrong: list[str], capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), *wrong]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"tfdist: {wrong[0]}")
    assert printed.out == ""


def test_a_missing_folder_is_named(base: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), "nowhere"]) == 2
    assert capsys.readouterr().err == "tfdist: nowhere: no such folder; give the folder of a bench or of a launch\n"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_terminal_gets_a_table(base: Path, slow: Path, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", columns)
    stream = Terminal()
    show(compare_folders(base, slow), 0.05, stream)
    text = plain(stream.getvalue())
    assert max(map(len, text.splitlines())) <= int(columns)
    assert ("images/s ratio" in text) == (columns == "200")


def test_out_gets_a_report(base: Path, slow: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "a; report"
    assert run(["compare", str(base), str(slow), "--fail-slower", "5%", "--out", str(out)]) == 1
    assert f"report: {out / 'report.html'}" in capsys.readouterr().out
    assert {"report.html", "report.md", "compare.csv", "ratios.png"} <= {path.name for path in out.iterdir()}
    assert "Surely slower by more than 5 %: multiworker/ring." in (out / "report.md").read_text()


def test_arms_without_anything_to_compare_are_a_report_too(tmp_path: Path, capsys: Printed) -> None:
    arms = {"mirrored/auto": 0.1}
    base = save_bench(tmp_path / "a", arms=arms)
    other = save_bench(tmp_path / "b", arms=arms, spec={"image_size": 96})
    assert run(["compare", str(base), str(other), "--out", str(tmp_path / "out")]) == 0
    assert "not compared: different work: image_size: 96, not 224" in (tmp_path / "out" / "report.md").read_text()
