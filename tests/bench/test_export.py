"""Figures as dashboards read them."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.compare.benches import save_bench
from tests.bench.dashboards import load_bencher, load_github
from tests.bench.report.rows import folder, timed
from tfdist.bench.export import ExportedFigure, ExportFormat, exported, figures_of, figures_of_changes, ratios_of
from tfdist.bench.report.across import changes
from tfdist.bench.report.summary import summarize
from tfdist.bench.statistics import Comparison, Interval
from tfdist.bench.suites.arm import LONGEST_NAME
from tfdist.cli.command import run
from tfdist.launch.json_files import dumps

ROWS = (*summarize([folder(timed("one", 0.1, 0.101, 0.1, 0.1))]), *summarize([folder(timed("two", 0.2))]))


class OfRows:
    rows = ROWS


def test_bencher_has_a_throughput_with_its_limits_for_each_arm() -> None:
    found = exported(figures_of(OfRows()), ExportFormat.BENCHER)  # type: ignore[arg-type]
    one, two = ROWS
    assert one.spread is not None
    limits = {"lower_value": one.spread.low, "upper_value": one.spread.high}
    assert found == {"one": {"throughput": {"value": one.images_per_s, **limits}}, "two": {"throughput": {"value": two.images_per_s}}}  # fmt: skip


def test_github_has_an_entry_for_each_figure_with_a_name_of_its_own() -> None:
    compared = [("one", Comparison(0.9, Interval(0.85, 0.95, 0.95), 12, 1))]
    found = exported([*figures_of(OfRows()), *ratios_of(compared)], ExportFormat.GITHUB)  # type: ignore[arg-type]
    assert [(each["name"], each["unit"]) for each in found] == [
        ("one", "images/s"),
        ("two", "images/s"),
        ("one: ratio", "times the base"),
    ]
    assert found[-1] == {
        "name": "one: ratio",
        "unit": "times the base",
        "value": 0.9,
        "range": "± 0.05",
        "extra": "0.85 to 0.95",
    }
    assert "range" not in found[1]


def test_a_comparison_has_both_figures_of_each_arm() -> None:
    other = summarize([folder(timed("one", 0.2, 0.202, 0.2, 0.2))])
    found = exported(figures_of_changes(changes(ROWS, other, None)), ExportFormat.BENCHER)
    assert found.keys() == {"one"}
    assert found["one"]["ratio"]["value"] == pytest.approx(0.5)
    assert found["one"]["throughput"]["value"] == other[0].images_per_s


SIZES = st.floats(min_value=1e-3, max_value=1e12)
NAMES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=LONGEST_NAME)


@given(arms=st.dictionaries(NAMES, st.tuples(SIZES, SIZES, st.none() | st.floats(1, 1000)), min_size=1))
def test_dashboards_load_the_figures_of_any_arm(arms: dict[str, tuple[float, float, float | None]]) -> None:
    def interval(value: float, wide: float | None) -> Interval | None:
        return None if wide is None else Interval(value / wide, value * wide, 0.95)

    figures = [
        ExportedFigure(arm, measure, unit, value, interval(value, wide))
        for arm, (rate, ratio, wide) in arms.items()
        for measure, unit, value in (("throughput", "images/s", rate), ("ratio", "times the base", ratio))
    ]
    by_arm = load_bencher(json.loads(dumps(exported(figures, ExportFormat.BENCHER))))
    by_name = load_github(json.loads(dumps(exported(figures, ExportFormat.GITHUB))))
    assert len(by_name) == len(figures)
    for figure in figures:
        value, low, high = by_arm[figure.arm][figure.measure]
        assert value == figure.value
        assert low <= value <= high
        assert by_name[figure.name] == (figure.value, pytest.approx(max(value - low, high - value), rel=1e-3))


ACTION = "https://github.com/benchmark-action/github-action-benchmark"


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """github-action-benchmark as workflows run it: its branch v1 holds JavaScript and all packages that it needs."""
    if not shutil.which("node"):
        pytest.skip("github-action-benchmark needs node")
    target, source = tmp_path_factory.mktemp("action"), os.environ.get("ACTION_BENCHMARK", ACTION)
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", "v1", source, str(target)]
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(clone, env=environ, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"{source} cannot be cloned; ACTION_BENCHMARK may name a clone: {done.stderr.splitlines()[-1]}")
    return target


@pytest.fixture
def track(action: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """A function that runs the action as a job for a commit does; the data of all commits are in data.json."""
    inputs = yaml.load((action / "action.yml").read_text(), yaml.BaseLoader)["inputs"]
    defaults = {name: values.get("default", "") for name, values in inputs.items()}

    def track(output: str, commit: str, **given: str) -> "subprocess.CompletedProcess[str]":
        output_file, event = tmp_path / "output.json", tmp_path / "event.json"
        output_file.write_text(output)
        event.write_text(json.dumps({"head_commit": {"id": commit}, "repository": {"html_url": ACTION}}))
        values = {
            **defaults,
            **{name.replace("_", "-"): value for name, value in given.items()},
            "tool": "customBiggerIsBetter",
            "output-file-path": str(output_file),
            "external-data-json-path": str(tmp_path / "data.json"),
        }
        environ = {f"INPUT_{name.upper()}": value for name, value in values.items()}
        environ |= {"GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "tfdist/tfdist", "PATH": os.environ["PATH"]}
        command = ["node", str(action / "dist" / "src" / "index.js")]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return track


@pytest.mark.thorough
def test_github_action_benchmark_keeps_the_figures_and_finds_a_slower_arm(
    track: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = save_bench(tmp_path / "base")
    outputs = []
    for day, factor in enumerate((1.0, 1.25), start=2):
        new = save_bench(tmp_path / str(day), {"multiworker/ring": factor}, seed=day, day=day)
        assert run(["compare", str(base), str(new), "--export", "github"]) == 0
        outputs.append(capsys.readouterr().out)
    gate = {"fail_on_alert": "true", "alert_threshold": "110%"}
    first, second = (track(output, commit, **gate) for output, commit in zip(outputs, "ab", strict=True))
    assert (first.returncode, second.returncode) == (0, 1), first.stdout + second.stdout
    alerts = [line for line in second.stdout.splitlines() if line.startswith("::warning::Performance alert!")]
    assert len(alerts) == 2  # throughput and ratio of the arm
    (runs,) = json.loads((tmp_path / "data.json").read_text())["entries"].values()
    assert [load_github(each["benches"]) for each in runs] == [load_github(json.loads(text)) for text in outputs]
