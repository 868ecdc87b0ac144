"""A bench whose arms learn: evaluations, the staleness of updates, a slow worker, and variables on servers."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tfdist.bench.learning import Updates, curves_of, updates_of
from tfdist.bench.reading import read_folder
from tfdist.bench.report.build import make_report
from tfdist.models.record import Record

SUITE = """
name = "learning"
rounds = 4
incarnations = 1
turn = 0.6
warmup = 0.2
window = 0.2
until_accuracy = 1.0
arms = [
  { name = "one-worker", strategy = "parameter-server", workers = 1, ps = 1, count_updates = true },
  { name = "two-workers", strategy = "parameter-server", workers = 2, ps = 2, count_updates = true, variable_partitioner = "fixed:2" },
  { name = "slow-worker", strategy = "parameter-server", workers = 2, ps = 1, count_updates = true, slow_worker = 1, slow_ms = 100.0, steps_per_call = 2 },
  { name = "sync", strategy = "multiworker", workers = 2 },
]
[defaults]
model = "tiny"
dataset = "digits"
image_size = 32
learning_rate = 0.003 # longer steps can kill units of asynchronous trainings
batch_size = 32
evaluate = false
evaluate_turns = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("it's; learning")
    (root / "suite.toml").write_text(SUITE)
    command = [sys.executable, "-m", "tfdist.cli", "bench", "--suite", "suite.toml", "--out", "out", "--quiet"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "out"


def turns(folder: Path, arm: str) -> Sequence[Record]:
    return [record for record in read_folder(folder, "").records if record.arm == arm]


def updates(folder: Path, arm: str) -> Updates:
    found = updates_of(turns(folder, arm))
    assert found is not None
    return found


@pytest.mark.thorough
def test_turns_train_on_and_are_evaluated(folder):
    for arm in ("one-worker", "two-workers", "slow-worker", "sync"):
        (curve,) = curves_of(turns(folder, arm))
        examples = [point.examples for point in curve.points]
        assert examples == sorted(set(examples)), "each turn continues the training"
        assert min(point.loss for point in curve.points[1:]) < curve.points[0].loss
        assert [record.round for record in turns(folder, arm)] == [1, 2, 3, 4]
    evaluated = [task["held_out"] for record in turns(folder, "sync") for task in record.observed.values()]
    assert len(evaluated) == 8, "by both workers"
    assert evaluated[0::2] == evaluated[1::2], "together"


@pytest.mark.thorough
def test_staleness_is_that_of_the_other_workers_updates(folder):
    """One worker: 0. Two equal ones take turns, so about one update of the other is between each read and write."""
    one = updates(folder, "one-worker").staleness
    assert (one.mean, one.largest) == (0.0, 0)
    two = updates(folder, "two-workers")
    assert 0.3 < two.staleness.mean < 2
    assert min(two.shares) > 0.3


@pytest.mark.thorough
def test_a_slow_worker_does_less_and_its_updates_are_staler(folder):
    slow = updates(folder, "slow-worker")
    assert slow.shares[1] < slow.shares[0]
    assert Updates(slow.counts[1:]).staleness.mean > Updates(slow.counts[:1]).staleness.mean
    measured = turns(folder, "slow-worker")
    steps = sum(window.steps for record in measured for window in record.ranks[0].windows)
    # an edge reads two counters, and both workers go on meanwhile
    assert sum(map(sum, slow.counts)) == pytest.approx(steps, rel=0.3), "updates between the first and the last edge"


@pytest.mark.thorough
def test_the_report_has_the_section_on_learning(folder):
    report = make_report([folder])
    keys = [section.key for section in report.sections]
    assert "convergence" in keys
    assert json.loads((folder / "report.json").read_text())
