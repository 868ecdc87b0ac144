"""`tfdist compare` with more than two folders, as it is typed."""

import json
import re
from pathlib import Path

import pytest

from tests.bench.compare.benches import save_bench
from tests.cli.screens import ARMS, broken
from tfdist.cli.command import run
from tfdist.launch.json_files import append_line

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture
def results(tmp_path: Path) -> list[str]:
    save_bench(tmp_path / "a", day=1)
    save_bench(tmp_path / "b", {"mirrored/auto": 1.2}, seed=1, day=2)
    (tmp_path / "calibration").mkdir()
    return [str(path) for path in sorted(tmp_path.iterdir())]


def test_files_and_folders_without_records_are_skipped(
    results: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("what the columns mean")
    append_line(tmp_path / "b" / "records.jsonl", '{"arm": "cut o')
    assert run(["compare", str(readme), *results, "--arm", "mirrored/*"]) == 0
    printed = capsys.readouterr()
    assert "README.md: no records in it" in printed.err
    assert "calibration: no records in it" in printed.err
    assert re.search(r"^tfdist: skipped b/records\.jsonl, line \d+: truncated", printed.err, re.MULTILINE)
    assert len(printed.out.splitlines()) == 4
    assert "mirrored/auto became slower in b" in printed.out


def test_json_has_every_point(results: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *results, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [bench["name"] for bench in content["benches"]] == ["a", "b"]
    assert len(content["points"]) == 6
    assert {point["since_last_verdict"] for point in content["points"]} == {None, "cannot tell", "slower"}


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_arms(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    arms = [arm for arm in ARMS if len(arm) < width]
    steps = {"one-device": 0.1, **dict.fromkeys(arms, 0.08)}
    folders = [save_bench(tmp_path / name, seed=day, day=day, arms=steps) for day, name in enumerate("abc", 1)]
    assert run(["compare", *map(str, folders)]) == 0
    table = capsys.readouterr().out.partition("─\n")[2].partition("\n\n")[0]
    assert broken(arms, table, width) == []
    assert all(table.count(arm) >= 3 for arm in arms)


def test_nothing_to_show_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *[str(tmp_path / "none")] * 3]) == 2
    assert capsys.readouterr().err.startswith(f"tfdist: {tmp_path / 'none'}: no such folder")


def test_out_gets_a_report(results: list[str], tmp_path: Path) -> None:
    assert run(["compare", *results, "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.html", "report.md", "history.csv", "history-images-per-s.png", "history-speed-up.png"} <= names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "a: only one folder; give two benches"),
        (["a", "b", "c", "--fail-slower", "5%"], "--fail-slower 5%: compares two folders, and 3 were given"),
        (["a", "b", "c", "--baseline", "x"], "--baseline x: compares two folders"),
        (["a", "b", "--arm", "x"], "--arm x: is for more than two folders"),
    ],
)
def test_options_for_another_number_of_folders_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"tfdist: {message}")
