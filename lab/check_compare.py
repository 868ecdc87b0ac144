"""Whether `tfdist compare` finds a slow-down of 10 %, and none where there is none: three real benches.

python -m lab.check_compare [--out DIR] [--rounds N]    # about 17 minutes on a quiet machine

The same suite is measured twice, then with a burn in one arm that makes its steps a ninth longer.
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.commands import TFDIST
from tfdist.bench.compare.folders import ComparedFolders, compare_folders
from tfdist.bench.compare.page import gate, sentences
from tfdist.bench.environment import environment_of
from tfdist.bench.reading import read_folder
from tfdist.bench.report.section import Page, Section
from tfdist.bench.report.sections.ratios import ratio_chart, ratio_table
from tfdist.bench.report.summary import summarize
from tfdist.bench.report.warnings import turn_warnings
from tfdist.bench.report.write import write_page
from tfdist.bench.statistics import ArmVerdict

BURNED = "multiworker/ring"
SLOWER = 0.1
BOUND = 0.03

SUITE = """
name = "compare"
preset = "cpu"
rounds = {rounds}
incarnations = 3
turn = 2.5
[defaults]
dataset = "synthetic"
image_size = 64
alpha = 0.35
evaluate = false
[[arms]]
name = "one-device"
strategy = "one-device"
[[arms]]
name = "mirrored/auto"
strategy = "mirrored"
devices = 2
[[arms]]
name = "central-storage"
strategy = "central-storage"
devices = 2
[[arms]]
name = "multiworker/ring"
strategy = "multiworker"
workers = 2
communication = "ring"
"""


def measure(folder: Path, rounds: int) -> None:
    """Write the folders `base`, `again` and `burned`."""
    text = SUITE.format(rounds=rounds)
    for name in ("base", "again"):
        bench(folder, name, text)
    (row,) = (row for row in summarize([read_folder(folder / "base", "")]) if row.arm == BURNED)
    if not (row.images_per_s and row.batch_global):
        raise SystemExit(f"{BURNED} was not measured: {row.reason}")
    step_ms = 1e3 * row.batch_global / row.images_per_s
    bench(folder, "burned", f"{text}slow_worker = 0\nslow_ms = {step_ms * SLOWER / (1 - SLOWER):.3f}\n")


def bench(folder: Path, name: str, text: str) -> None:
    """Run one bench."""
    suite = folder / f"{name}.toml"
    suite.write_text(text)
    subprocess.run([TFDIST, "bench", "--suite", str(suite), "--out", str(folder / name), "--quiet"], check=True)


def section_of(key: str, title: str, compared: ComparedFolders) -> Section:
    """One comparison."""
    labels = [change.arm for change in compared.changes]
    return Section(
        key,
        title,
        tuple(verdicts(compared)),
        (ratio_chart(f"{key}-ratios", "New over base", compared.changes, labels, BOUND),),
        (ratio_table(f"{key}-arms", "Arms", compared.changes, compared.anchor),),
        (gate(compared, BOUND)[1], *sentences(compared)),
    )


def verdicts(compared: ComparedFolders) -> Iterator[str]:
    """Which arms are slower."""
    slower = [
        change.arm
        for change in compared.changes
        if change.comparison and change.comparison.verdict is ArmVerdict.SLOWER
    ]
    yield f"Slower: {', '.join(slower)}." if slower else "No arm is called slower."


def report(folder: Path, out: Path) -> Path:
    """Compare, and write the page and the records into `out`."""
    names = ("base", "again", "burned")
    same = section_of("same", "The same bench twice", compare_folders(folder / "base", folder / "again"))
    title = f"A burn of {SLOWER:.0%} in {BURNED}"
    burned = section_of("burned", title, compare_folders(folder / "base", folder / "burned"))
    headline = (f"{same.title}: {same.answer[0]}", f"{burned.title}: {burned.answer[0]}")
    folders = [read_folder(folder / name, "") for name in names]
    facts = environment_of([record for each in folders for record in each.records])
    warnings = [warning for each in folders for warning in turn_warnings(summarize([each]))]
    commands = ["python -m lab.check_compare"]
    title = "Does compare find what changed?"
    sections = (same, burned)
    page = write_page(Page(title, headline, sections, facts, tuple(warnings), tuple(commands)), out)
    for name in names:
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(folder / name, out / name, ignore=shutil.ignore_patterns("runs", "*.log"))
    return page


def main() -> None:
    """Measure, unless --measured names a folder of an earlier run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "bench_results" / "compare")
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--measured", type=Path, help="a folder with base, again and burned")
    options = parser.parse_args()
    folder = options.measured or Path(tempfile.mkdtemp(prefix="tfdist-compare-"))
    if options.measured is None:
        print(f"measuring in {folder}", flush=True)
        measure(folder, options.rounds)
    print(report(folder, options.out))


if __name__ == "__main__":
    main()
