"""`tfdist predict` as it is typed."""

import json
import re
from pathlib import Path

import pytest

from tests.bench.predict.sweeps import RING, save_sweep, sweep
from tests.bench.predict.test_prediction import BYTES, save_bench
from tests.cli.screens import ARMS, broken
from tfdist.cli.command import run
from tfdist.launch.json_files import append_line

pytestmark = pytest.mark.usefixtures("no_charts")

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    bench = save_bench(tmp_path / "it's; new", float(RING.seconds(2, BYTES)))
    return ["predict", str(bench), "--collectives", str(save_sweep(tmp_path / "sweep", sweep()))]


def test_the_report_of_the_bench_is_not_replaced(words: list[str], capsys: Printed) -> None:
    for folder in (words[1], words[3]):  # of the bench, and of the sweep
        assert run([*words, "--out", folder]) == 2
        assert "it would replace the report of that folder" in capsys.readouterr().err


def test_points_answers_and_a_report(words: list[str], tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "out"
    assert (
        run([*words, "--devices", "1,2,4,...,512", "--bandwidth", "10Gbit", "--latency", "50us", "--out", str(out)])
        == 0
    )
    printed = capsys.readouterr()
    assert printed.err == ""
    assert sum(line.startswith("multiworker/ring  ") for line in printed.out.splitlines()) == 10
    assert "Predicted for links of 10 Gbit/s and 50 us one way" in printed.out
    assert {"report.html", "report.md", "prediction.csv", "prediction-images-per-s.png"} <= {
        p.name for p in out.iterdir()
    }


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_arms(
    words: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    arm = [arm for arm in ARMS if len(arm) < width][-1]
    records = Path(words[1]) / "records.jsonl"
    records.write_text(records.read_text().replace("multiworker/ring", arm))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*words, "--devices", "1,2,4"]) == 0
    table, _, answer = capsys.readouterr().out.partition("─\n")[2].partition("\n\n")
    assert broken([arm], table, width) == broken([arm], answer, width) == []
    assert table.count(arm) == 3


def test_a_record_that_cannot_be_read_is_named(words: list[str], capsys: Printed) -> None:
    append_line(Path(words[1]) / "records.jsonl", '{"arm": "cut o')
    assert run(words) == 0
    assert re.search(r"^tfdist: skipped it's; new/records\.jsonl, line \d+: truncated", capsys.readouterr().err)


def test_json_is_the_last_line_of_stdout(words: list[str], capsys: Printed) -> None:
    assert run([*words, "--devices", "2,4", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [point["devices"] for point in content["curves"][0]["points"]] == [2, 4]
    assert content["curves"][0]["ring"]["ranks"] == [2]
    assert content["curves"][0]["gradient_bytes"] == BYTES


@pytest.mark.parametrize(
    "wrong",
    [["--devices", "0"], ["--bandwidth", "10"], ["--latency", "50 minutes"], ["--worth", "5"], ["--gradient-bytes", "x"],
     ["--arm", "nothing"]],
)  # fmt: skip
def test_wrong_input_is_one_sentence(words: list[str], wrong: list[str], capsys: Printed) -> None:
    assert run([*words, *wrong]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"tfdist: {wrong[0]} {wrong[1]}:")
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_a_folder_without_a_sweep_is_named(words: list[str], capsys: Printed) -> None:
    assert run([*words[:3], words[1]]) == 2
    assert "has no readable collectives.json" in capsys.readouterr().err


def test_a_bench_of_one_host_is_not_predicted_for_several(tmp_path: Path, capsys: Printed) -> None:
    bench = save_bench(tmp_path / "bench", 0.1, link=None)
    assert run(["predict", str(bench), "--arm", "parameter-server"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("tfdist: parameter-server was measured on one host, ")
    assert (printed.err.count("\n"), printed.out) == (1, "")
