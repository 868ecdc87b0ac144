import subprocess
import tempfile
from dataclasses import replace

from lab.faults.measure import FaultResult, deviations
from lab.faults.page import page, this_commit
from lab.faults.results import FOLDER, load, row_of, save, without_paths
from lab.faults.table import SCENARIOS

SCENARIO = next(each for each in SCENARIOS if each.name == "sigkill/multiworker/worker-1/middle/restarts")
MEASURED = FaultResult(
    code=0,
    culprit="worker-1",
    sentence="worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 5: all tasks, from step 60",
    detected_s=0.1,
    block_s=None,
    ended_s=9.0,
    cold_start_s=4.0,
    next_step_s=5.0,
    steps_lost=3,
    resumed_from=60,
    should_resume_from=None,
    restarts=1,
    restarted=("worker-0", "worker-1"),
    last_step=300,
    orphans=(),
)


def test_rows_survive_the_file(tmp_path):
    rows = [
        row_of(SCENARIO, MEASURED, 12.0, "commit abc"),
        row_of(SCENARIO, replace(MEASURED, code=None, steps_lost=None), 1.0, "commit abc"),
    ]
    save(rows, tmp_path / "rows.csv")
    assert load(tmp_path / "rows.csv") == rows


def test_rows_of_another_version_are_not_read(tmp_path):
    (tmp_path / "rows.csv").write_text("scenario,fault\nx,y\n")
    assert load(tmp_path / "rows.csv") == []


def test_each_deviation_is_named():
    assert deviations(SCENARIO, MEASURED) == []
    wrong = replace(
        MEASURED, code=1, culprit="worker-0", restarted=("worker-1",), last_step=290, orphans=("process 7",)
    )
    assert deviations(SCENARIO, wrong) == [
        "exit code 1, not 0",
        "named worker-0, not worker-1",
        "restarted worker-1, not worker-0, worker-1",
        "ended at step 290 of 300",
        "left over: process 7",
    ]


def test_the_page_counts_and_lists_what_is_not_as_expected():
    rows = [
        row_of(SCENARIO, MEASURED, 12.0, "commit abc"),
        row_of(SCENARIO, replace(MEASURED, code=1), 12.0, "commit def"),
    ]
    text = page(rows, SCENARIOS)
    assert " UTC at commit abc and commit def; " in text
    assert "| as expected in every respect | 1 of 2 |" in text
    assert f"- `{SCENARIO.name}`: exit code 1, not 0" in text
    assert "| slowest restart, in cold starts | 1.25 |" in text


def test_sentences_are_kept_without_the_folders_of_a_machine():
    folder = f"{tempfile.gettempdir()}/tfdist-faults-ab_1/94"
    sentence = f"worker-0 is in act() at {FOLDER.parents[1]}/tests/act.py:31; {folder}/checkpoints is full"
    assert without_paths(sentence) == "worker-0 is in act() at tests/act.py:31; checkpoints is full"


def test_a_commit_is_clean_when_only_results_have_changed(tmp_path):
    def git(*words: str) -> str:
        command = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org", *words)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    for path in (tmp_path / "code.py", tmp_path / "bench_results" / "faults.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    commit = f"commit {git('rev-parse', '--short', 'HEAD')}"
    (tmp_path / "bench_results" / "faults.csv").write_text("2\n")
    assert this_commit(tmp_path) == commit
    (tmp_path / "code.py").write_text("2\n")
    assert this_commit(tmp_path) == f"{commit}-dirty"
