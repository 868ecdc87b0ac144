import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from tfdist.bench.report.build import labels_of, make_report
from tfdist.bench.report.columns import COLUMNS, values_of
from tfdist.bench.report.environment import environment_of
from tfdist.bench.report.plots import PLOTS
from tfdist.bench.report.tables import to_markdown
from tfdist.bench.report.write import write_report
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]
SaveAll = Callable[[Path, Sequence[Record]], Path]
FILES = {"report.md", "report.csv", "report.json", *PLOTS}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def root(tmp_path: Path, save_all: SaveAll, bench_records: list[Record]) -> Path:
    return save_all(tmp_path / 'it\'s a "bench"; really', bench_records)


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_a_report_needs_only_records(root: Path) -> None:
    path = write_report(make_report([root]), root)
    assert path == root / "report.md"
    assert set(files(root)) == FILES
    text = path.read_text()
    for part in ("mirrored/auto was the fastest", "## Results", "Weak scaling", "Baseline of speed-up and efficiency: one-device",
                 "## Warnings", "## Environment", "A CPU", "## Method", "`tfdist bench`", "worker-1 was killed by SIGKILL"):  # fmt: skip
        assert part in text
    for name in PLOTS:
        assert f"]({name})" in text
        assert files(root)[name].startswith(PNG)


def test_the_same_records_give_the_same_files(root: Path, tmp_path: Path) -> None:
    write_report(make_report([root]), tmp_path / "a")
    write_report(make_report([root]), tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_the_csv_holds_every_arm_with_exact_figures(root: Path) -> None:
    write_report(make_report([root]), root)
    table = pd.read_csv(root / "report.csv").set_index("arm")
    assert list(table.index) == ["one-device", "independent", "mirrored/auto", "multiworker/ring", "central-storage",
                                 "parameter-server/1-ps", "broken"]  # fmt: skip
    assert table.loc["one-device", "images_per_s"] == pytest.approx(
        50 / 0.504 / (1.0 * 1.04 * 0.98) ** (1 / 3), rel=1e-5
    )
    assert table.loc["mirrored/auto", "efficiency_vs_independent"] == pytest.approx(0.95, rel=1e-5)
    assert pd.isna(table.loc["broken", "images_per_s"])
    assert table.loc["broken", "reason"] == "worker-1 was killed by SIGKILL"


def test_json_has_the_columns_of_the_csv(root: Path) -> None:
    report = make_report([root])
    write_report(report, root)
    content = json.loads((root / "report.json").read_text())
    assert [row["arm"] for row in content["rows"]] == [row.arm for row in report.rows]
    assert list(content["rows"][0]) == list(pd.read_csv(root / "report.csv").columns)


def test_a_broken_record_is_listed_and_the_rest_is_reported(root: Path) -> None:
    broken = root / "records" / "099-cut.json"
    broken.write_text('{"format": 1, "arm"')
    report = make_report([root])
    write_report(report, root)
    assert len(report.rows) == 7
    text = (root / "report.md").read_text()
    assert "records/099-cut.json: truncated" in text
    assert json.loads((root / "report.json").read_text())["unreadable"][0]["file"] == "records/099-cut.json"


def test_no_readable_record_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    with pytest.raises(TfdistError, match="none written"):
        make_report([tmp_path])
    (tmp_path / "records" / "a.json").write_text('{"format": 99}')
    with pytest.raises(TfdistError, match="format 99") as raised:
        make_report([tmp_path])
    assert raised.value.exit_code == 2


def test_nothing_measured_is_a_report_without_pictures(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll
) -> None:
    save_all(tmp_path, [make_record(status="refused", reason="it needs GPUs")])
    write_report(make_report([tmp_path]), tmp_path)
    assert set(files(tmp_path)) == {"report.md", "report.csv", "report.json"}
    assert "it needs GPUs" in (tmp_path / "report.md").read_text()


def test_old_pictures_are_removed_when_nothing_was_measured(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll, root: Path
) -> None:
    write_report(make_report([root]), tmp_path / "out")
    nothing = save_all(tmp_path / "nothing", [make_record(status="failed", reason="x")])
    write_report(make_report([nothing]), tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"report.md", "report.csv", "report.json"}


def test_several_folders_are_one_report(tmp_path: Path, make_record: MakeRecord, save_all: SaveAll) -> None:
    one = save_all(tmp_path / "x", [make_record("one")])
    two = save_all(tmp_path / "y", [make_record("two", strategy="mirrored", devices=2)])
    write_report(make_report([one, two]), tmp_path / "out")
    assert list(pd.read_csv(tmp_path / "out" / "report.csv")["folder"]) == ["x", "y"]
    assert "| y: two |" in (tmp_path / "out" / "report.md").read_text()


def test_folders_of_one_name_are_labelled_by_their_paths(tmp_path: Path) -> None:
    assert labels_of([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert labels_of([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]


def test_a_folder_that_is_not_writable_is_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TfdistError, match="--out"):
        write_report(make_report([root]), tmp_path / "file")


def test_no_text_breaks_out_of_its_cell(tmp_path: Path, make_record: MakeRecord, save_all: SaveAll) -> None:
    save_all(tmp_path, [make_record("a | b\nc", status="failed", reason="x | y\n\nz")])
    table = to_markdown(make_report([tmp_path]).rows)
    assert table.count("\n") == 3
    assert "a \\| b c" in table


def test_every_column_is_explained(root: Path) -> None:
    """bench_results/README.md says what each column means."""
    readme = (Path(__file__).parents[3] / "bench_results" / "README.md").read_text()
    for name in values_of(make_report([root]).rows[0], "weak"):
        assert f"`{name}`" in readme
    for name in COLUMNS:
        assert name.partition(",")[0].partition(" (")[0].lower() in readme.lower()


def test_the_environment_has_each_fact_once(make_record: MakeRecord) -> None:
    facts = environment_of([make_record(), make_record()])
    assert facts["cpu"] == ("A CPU",)
    assert facts["cores"] == ("2",)
    assert facts["tensorflow"] == ("2.21.0",)
    assert facts["variable TF_NUM_INTRAOP_THREADS"] == ("1",)


@pytest.mark.parametrize(
    "statement", ["import tfdist.bench.report.write", "import tfdist.cli.report, tfdist.cli.bench"]
)
def test_what_is_not_imported(statement: str) -> None:
    """Reporting needs no TensorFlow; the command itself not even pandas."""
    unwanted = ["tensorflow", "keras", "tf_keras"] + (["pandas", "matplotlib", "numpy"] if "cli" in statement else [])
    code = f"import sys; {statement}; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_is_written_where_tensorflow_cannot_be_imported(root: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'tf_keras']))\n"
        "from pathlib import Path\n"
        "from tfdist.bench.report.build import make_report\n"
        "from tfdist.bench.report.write import write_report\n"
        "root = Path(sys.argv[1]); write_report(make_report([root]), root)"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True, capture_output=True)
    assert set(files(root)) == FILES
