"""`tfdist compare` as it is typed."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.compare.benches import save_bench
from tests.bench.conftest import record, save_record
from tests.bench.dashboards import load_bencher, load_github
from tests.cli.screens import ARMS, Screen, broken
from tfdist.bench.compare.folders import compare_folders
from tfdist.cli.command import run
from tfdist.cli.compare import show
from tfdist.launch.json_files import append_line
from tfdist.launch.text import plain

pytestmark = pytest.mark.usefixtures("no_charts")

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
    lines = printed.out.splitlines()
    at = lines.index("Slower than the bound of 5 %: multiworker/ring.")
    assert lines[at + 1].startswith("base: ")  # the answer comes first
    assert "slower than the bound" in next(line for line in lines[at:] if line.startswith("multiworker/ring "))
    assert printed.err == ""
    assert run(["compare", str(base), str(slow), "--fail-slower", "30%"]) == 0


def test_the_answer_without_a_gate_is_what_changed_beside_the_anchor(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(
        r"multiworker/ring is [\d.]+ % slower than the base, surely between [\d.]+ and [\d.]+ %\. "
        r"No change of mirrored/auto could be measured: at most \d+ % slower\.",
        first,
    )


def test_a_record_that_cannot_be_read_is_named_with_its_folder(base: Path, slow: Path, capsys: Printed) -> None:
    append_line(slow / "records.jsonl", '{"arm": "cut o')
    assert run(["compare", str(base), str(slow)]) == 0
    assert re.search(r"^skipped new/records\.jsonl, line \d+: truncated", capsys.readouterr().out, re.MULTILINE)


def test_differences_of_environment_come_first(base: Path, tmp_path: Path, capsys: Printed) -> None:
    other = save_bench(tmp_path / "other", machine={"cpu": "B CPU"}, day=2)
    assert run(["compare", str(base), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == ["environment:", "  cpu: A CPU -> B CPU"]
    assert any(line.startswith("arm  ") for line in lines[4:7])


def test_json_is_the_last_line_of_stdout(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), "--fail-slower", "0.05", "--json"]) == 1
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["too_slow"] == ["multiworker/ring"]
    assert printed.err.startswith("Slower than the bound of 5 %: multiworker/ring.")


def test_export_prints_the_figures_alone(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), "--export", "bencher"]) == 0
    ratio, *_ = load_bencher(json.loads(capsys.readouterr().out))["multiworker/ring"]["ratio"]
    assert ratio < 0.9
    assert run(["compare", str(base), str(slow), "--export", "github"]) == 0
    assert load_github(json.loads(capsys.readouterr().out))["multiworker/ring: ratio"][0] == ratio
    assert run(["compare", str(base), str(slow), "--export", "github", "--json"]) == 2
    assert "--export github --json: stdout has one of them" in capsys.readouterr().err
    assert run(["compare", str(base), str(slow), str(base), "--export", "bencher"]) == 2
    assert "--export bencher: compares two folders" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--fail-slower", "5"], ["--baseline", "mirrored"], ["--nothing"]])
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
    monkeypatch.setenv("COLUMNS", columns)
    stream = Screen()
    show(compare_folders(base, slow), 0.05, stream)
    text = plain(stream.getvalue())
    assert max(map(len, text.splitlines())) <= int(columns)
    assert ("images/s ratio" in text) == (columns == "200")


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_arms(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    arms = [arm for arm in ARMS if len(arm) < width]
    steps = {"one-device": 0.1, **dict.fromkeys(arms, 0.08)}
    folders = [save_bench(tmp_path / name, seed=seed, arms=steps) for seed, name in enumerate(("base", "new"))]
    stream = Screen()
    show(compare_folders(*folders), None, stream)
    table = stream.getvalue().partition("─\n")[2].partition("\n\n")[0]
    assert broken(arms, table, width) == []
    assert " ".join(table.split()).count("cannot tell") == 1 + len(arms)


def test_out_gets_a_report(base: Path, slow: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "a; report"
    assert run(["compare", str(base), str(slow), "--fail-slower", "5%", "--out", str(out)]) == 1
    assert f"report: {out / 'report.html'}" in capsys.readouterr().out
    assert {"report.html", "report.md", "compare.csv", "ratios.png"} <= {path.name for path in out.iterdir()}
    assert "Slower than the bound of 5 %: multiworker/ring." in (out / "report.md").read_text()


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_changes_neither_the_verdict_nor_the_report(
    base: Path, slow: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tfdist.cli", "compare", str(base), str(slow), "--fail-slower", "50%"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*words, "--out", "page"], cwd=tmp_path, stdout=write, timeout=60)
    os.close(write)
    assert (done.returncode, (tmp_path / "page" / "report.md").is_file()) == (0, True)


def test_the_report_of_one_bench_is_not_replaced(base: Path, slow: Path, capsys: Printed) -> None:
    for folders in ([base, slow], [base, slow, slow.parent / "other"]):
        assert run(["compare", *map(str, folders), "--out", str(slow)]) == 2
        assert capsys.readouterr().err.startswith(f"tfdist: --out {slow}: it would replace the report of that folder")
    assert not (slow / "report.html").exists()


def test_a_folder_that_two_patterns_name_counts_once(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), f"{base}/../{base.name}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["benches"]) == 2


def test_arms_without_anything_to_compare_are_a_report_too(tmp_path: Path, capsys: Printed) -> None:
    arms = {"mirrored/auto": 0.1}
    base = save_bench(tmp_path / "a", arms=arms)
    other = save_bench(tmp_path / "b", arms=arms, spec={"image_size": 96})
    assert run(["compare", str(base), str(other), "--out", str(tmp_path / "out")]) == 3
    assert "not compared: different work: image_size: 96, not 224" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize("gate", [[], ["--fail-slower", "5%"], ["--fail-slower", "5%", "--fail-inconclusive"]])
@pytest.mark.parametrize("rounds", [8, 2])
def test_nothing_compared_never_passes(tmp_path: Path, gate: list[str], rounds: int, capsys: Printed) -> None:
    """All work differs, or there are too few rounds for an interval."""
    arms = {"mirrored/auto": 0.1, "multiworker/ring": 0.1}
    base = save_bench(tmp_path / "a", arms=arms, rounds=rounds)
    other = save_bench(tmp_path / "b", arms=arms, rounds=rounds, spec={"image_size": 96} if rounds > 2 else {})
    assert run(["compare", str(base), str(other), *gate]) == 3
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "Nothing compared: none of 2 arms of both benches has an interval."


def test_a_history_without_a_comparison_does_not_pass(base: Path, tmp_path: Path, capsys: Printed) -> None:
    others = [save_bench(tmp_path / name, arms={f"mirrored/{name}": 0.1}) for name in ("b", "c")]
    assert run(["compare", str(base), *map(str, others)]) == 3
    assert "Nothing compared: no arm has an interval" in capsys.readouterr().out


def test_an_interval_around_the_bound_is_inconclusive(base: Path, tmp_path: Path, capsys: Printed) -> None:
    near = save_bench(tmp_path / "near", {"mirrored/auto": 1 / 0.95}, seed=1)
    both = ["compare", str(base), str(near), "--fail-slower", "5%"]
    assert run(both) == 0
    assert run([*both, "--fail-inconclusive"]) == 4
    expected = "Inconclusive: mirrored/auto may be slower by more than 5 %; measure more starts."
    assert capsys.readouterr().out.splitlines().count(expected) == 2
    assert run([*both, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inconclusive"] == ["mirrored/auto"]
    wide = ["compare", str(base), str(near), "--fail-slower", "20%", "--fail-inconclusive"]
    assert run(wide) == 0
    assert capsys.readouterr().out.startswith("Not slower than the bound of 20 %: 3 arms compared.")


def test_an_arm_that_the_new_bench_lacks_is_inconclusive(base: Path, tmp_path: Path, capsys: Printed) -> None:
    fewer = save_bench(tmp_path / "fewer", arms={"one-device": 0.1, "mirrored/auto": 0.12}, seed=1)
    assert run(["compare", str(base), str(fewer), "--fail-slower", "20%", "--fail-inconclusive"]) == 4
    assert capsys.readouterr().out.startswith("Inconclusive: multiworker/ring may be slower by more than 20 %")


def test_another_command_line_is_compared_as_the_same_work(tmp_path: Path, capsys: Printed) -> None:
    base, new = tmp_path / "a", tmp_path / "b"
    for root, size in ((base, 32), (new, 64)):
        for number in range(1, 9):
            one = record("mirrored/auto", [[0.1 + number % 3 / 1000]], round=number, strategy="mirrored", devices=2)
            save_record(root, replace(one, spec={**one.spec, "command": f"python train.py --width {size}"}))
    assert run(["compare", str(base), str(new)]) == 3
    assert "compare it with --same-work" in capsys.readouterr().out
    assert run(["compare", str(base), str(new), "--same-work", "--fail-slower", "20%"]) == 0
    assert "  program: python train.py --width 32 -> python train.py --width 64" in capsys.readouterr().out


def test_a_program_that_takes_other_steps_did_other_work(tmp_path: Path, capsys: Printed) -> None:
    for root, examples in ((tmp_path / "a", 32), (tmp_path / "b", 64)):
        for number in range(1, 5):
            one = record("one-device", [[0.1]], round=number, examples=examples)
            choices = {key: one.spec[key] for key in ("strategy", "workers", "devices", "ps")}
            save_record(root, replace(one, spec={**choices, "command": "python train.py"}))
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    assert "not compared: different work: examples per step: 64, not 32" in capsys.readouterr().out


def test_the_gates_options_need_each_other(base: Path, slow: Path, capsys: Printed) -> None:
    assert run(["compare", str(base), str(slow), "--fail-inconclusive"]) == 2
    assert "give the bound, too, as --fail-slower 5%" in capsys.readouterr().err
    assert run(["compare", str(base), str(slow), str(base), "--same-work"]) == 2
    assert "--same-work: compares two folders" in capsys.readouterr().err
