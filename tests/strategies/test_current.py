"""`current()` and the modules of the catalog, without a training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.strategies import build
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

pytestmark = pytest.mark.slow


def test_importing_the_strategies_does_not_import_tensorflow():
    code = (
        "import sys, tfdist.strategies, tfdist.strategies.build, tfdist.models.training.task; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("module", ["tfdist.strategies", "tfdist.cli.command"])
def test_programs_and_help_do_not_load_the_launcher(module):
    code = f"import sys, {module}; sys.exit(str([name for name in ('psutil', 'tfdist.launch.job') if name in sys.modules]))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == "[]"


def test_every_strategy_but_auto_has_a_file():
    folder = Path(build.__file__).resolve().parent
    assert set(CATALOG) == set(StrategyName) - {StrategyName.AUTO}
    assert all(row.graph or (folder / f"{row.module}.py").is_file() for row in CATALOG.values())


PROGRAM = """
import tfdist.strategies
strategy = tfdist.strategies.current()
assert tfdist.strategies.current() is strategy
print(type(strategy).__name__, strategy.num_replicas_in_sync)
"""


@pytest.mark.parametrize(
    ("spec", "printed"),
    [
        (None, "_DefaultDistributionStrategy 1"),
        ('{"format": 1, "strategy": "mirrored", "devices": 3}', "MirroredStrategy 3"),
        pytest.param('{"format": 1, "strategy": "independent"}', "OneDeviceStrategy 1", marks=pytest.mark.thorough),
    ],
)
def test_a_program_gets_the_chosen_strategy(spec, printed, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TFDIST_STRATEGY_CHOICE", raising=False)
    if spec:
        monkeypatch.setenv("TFDIST_STRATEGY_CHOICE", spec)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip() == printed, done.stderr


@pytest.mark.parametrize(
    ("first", "phases"),
    [("", ["importing", "building"]), pytest.param("import tensorflow", ["building"], marks=pytest.mark.thorough)],
    ids=["", "imported"],
)
def test_a_program_reports_what_it_does_before_it_has_a_strategy(first, phases, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("TFDIST_STRATEGY_CHOICE", '{"format": 1, "strategy": "one-device"}')
    read, write = os.pipe()
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(write))
    subprocess.run([sys.executable, "-c", f"{first}\n{PROGRAM}"], capture_output=True, check=True, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as lines:
        events = [json.loads(line) for line in lines]
    built = {"event": "strategy", "name": "OneDeviceStrategy", "replicas": 1, "trains": False, "line": ""}
    assert events == [*({"event": "phase", "phase": phase} for phase in phases), {"event": "ready"}, built]
