"""A program that is configured by flags, as those before tf.distribute, under launch and bench."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfdist.bench
from tfdist.bench.report.build import make_report

PROGRAM = (
    "python",
    str(Path(__file__).parents[2] / "examples" / "flags.py"),
    "--job_name={job}",
    "--task_index={index}",
    "--ps_hosts={ps_hosts}",
    "--worker_hosts={worker_hosts}",
)
SUITE = """
rounds = 2
incarnations = 1
turn = 1
warmup = 0.5
window = 0.2
[[arms]]
name = "one-device"
strategy = "one-device"
[[arms]]
name = "parameter-server"
strategy = "parameter-server"
workers = 2
ps = 1
"""


@pytest.mark.thorough
@pytest.mark.core
def test_a_flag_driven_program_trains_and_its_servers_are_stopped_when_the_workers_are_done(tmp_path, survivors):
    command = [sys.executable, "-m", "tfdist.cli", "launch", "--strategy", "parameter-server", "--workers", "2"]
    done = subprocess.run([*command, "--", *PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert survivors() == []
    assert not re.search("did not train|unknown whether", done.stdout + done.stderr)
    steps = dict(re.findall(r"worker (\d): (\d+) steps of all workers", done.stdout))
    assert set(steps) == {"0", "1"}
    assert 390 <= max(map(int, steps.values())) <= 400  # each worker takes 200
    assert re.search(r"\[worker-[01]\] step \d+  [\d,.]+ images/s", done.stdout)


@pytest.mark.thorough
def test_a_flag_driven_program_is_measured_and_arms_without_its_hosts_are_refused(tmp_path, survivors):
    (tmp_path / "suite.toml").write_text(SUITE)
    folder = tfdist.bench.run(tmp_path / "suite.toml", program=list(PROGRAM), out=tmp_path / "out")
    assert survivors() == []
    arms = tfdist.bench.load(folder).set_index("arm")
    assert arms["status"].to_dict() == {"parameter-server": "ok"}
    statuses = {row.arm: row.status for row in make_report([Path(folder)]).rows}
    assert statuses == {"one-device": "refused", "parameter-server": "ok"}
    assert arms.loc["parameter-server", "strategy_check"] == "confirmed"
    windows = tfdist.bench.load(folder, rows="windows")
    assert (windows["examples"] == 16 * windows["steps"]).all()
    assert len(windows.groupby(["round", "window"])) * 2 == len(windows)  # of both workers
