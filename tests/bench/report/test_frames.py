"""Frames of a committed result, and of a folder with turns."""

import json
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest

import tfdist.bench
from tfdist.bench.folder import BenchPaths
from tfdist.bench.report.build import make_report
from tfdist.bench.report.write import write_page
from tfdist.launch.errors import TfdistError
from tfdist.models.record import HostUsage, TurnRecord, Window, WindowUsage

COMMITTED = Path(__file__).parents[3] / "bench_results" / "20261124T102831Z-cpu"
USAGE = WindowUsage(0.2, 0.4, 0.0, 600_000_000)


@pytest.fixture
def turns(tmp_path, make_record, save_all):
    """Two rounds of one arm in one incarnation: 100 images/s in the first round, 50 in the second."""
    start = replace(make_record(times=[[]]), incarnation=1)
    save_all(tmp_path, [start])
    with BenchPaths(tmp_path).turns.open("w") as lines:
        for number, elapsed_s in enumerate((0.1, 0.2), start=1):
            windows = {"worker-0": (Window(1, 10, elapsed_s, 2.0, USAGE),) * 2}
            host = HostUsage(1.0, 2, {"worker-0": 0.5}, 0.7, 0.1)
            turn = TurnRecord("one-device", number, 1, 1, number, "2026-01-01T00:00:00+00:00", windows, (host,))
            lines.write(json.dumps(turn.to_json()) + "\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("no_charts")
def test_arms_have_the_columns_of_the_report(turns, tmp_path):
    for folder in (COMMITTED, str(turns)):
        table = tfdist.bench.load(folder)
        assert table["arm"].is_unique
        assert (table["images_per_s"] > 0).all()
    write_page(make_report([COMMITTED]), tmp_path / "report")
    header = set(pd.read_csv(tmp_path / "report" / "report.csv").columns)
    assert {"strategy", "speed_up", "status"} <= header & set(table.columns)


def test_turns_have_the_throughput_of_each_round(turns):
    table = tfdist.bench.load(turns, rows="turns")
    assert table["images_per_s"].round(6).to_list() == [100.0, 50.0]
    assert table["others"].round(6).to_list() == [0.1, 0.1]
    old = tfdist.bench.load(COMMITTED, rows="turns")
    assert set(old.groupby("arm")["round"].nunique()) == {12}


def test_windows_have_times_and_usage_of_each_task(turns):
    table = tfdist.bench.load(turns, rows="windows")
    assert table[["round", "window"]].values.tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert table["elapsed_s"].sum() == pytest.approx(0.6)
    expected = {name: value for name, value in asdict(USAGE).items() if name != "gpus"}
    assert table.loc[0, list(expected)].to_dict() == expected
    assert set(tfdist.bench.load(COMMITTED, rows="windows")["task"]) >= {"worker-0", "worker-1", "chief-0"}


def test_wrong_arguments_are_a_sentence(tmp_path):
    with pytest.raises(TfdistError, match=r"no records\.jsonl"):
        tfdist.bench.load(tmp_path)
    with pytest.raises(TfdistError, match="rows='steps': choose one of 'arms', 'turns', 'windows'"):
        tfdist.bench.load(turns, rows="steps")


def test_importing_the_package_imports_no_pandas():
    code = "import sys, tfdist.bench; sys.exit(str([name for name in ('pandas', 'numpy', 'psutil') if name in sys.modules]))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == "[]"


@pytest.mark.slow
def test_the_example_of_the_docs_runs_and_prints_what_they_say():
    root = Path(__file__).parents[3]
    docs = (root / "docs" / "python.md").read_text()
    example, _, printed = docs.partition("From a folder that is already measured:\n\n")[2].partition("\nprints\n")
    assert "tfdist.bench.load(" in example
    code = textwrap.dedent(example)
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    expected = [line.strip() for line in printed.strip("\n").split("\n\n")[0].splitlines()]
    assert [line.strip() for line in done.stdout.splitlines()] == expected
