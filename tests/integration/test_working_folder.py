"""Modules in the working folder do not run: neither in the commands, nor in the agents, nor in tasks of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.jobs import FORKED
from tfdist.launch.agents.template import VARIABLE
from tfdist.strategies.options import StrategyName

from .test_optional import ON_CPUS, OPTIONS, TRAINING

MODULES = (
    "tensorflow", "tf_keras", "keras", "numpy", "json", "typing", "random", "selectors", "subprocess", "socket", "psutil",
    "dataclasses", "tempfile", "logging", "typer",
)  # fmt: skip
HOSTILE = "import os; open(os.path.dirname(os.path.abspath(__file__)) + '/imported', 'a').write(__name__ + '\\n')\n"
SEARCH = {"": None, "colon": os.pathsep, "relative": f".{os.pathsep}/none"}
"""Values of PYTHONPATH that lead to the working folder, or none."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with modules that say when they are imported, and then fail."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"{HOSTILE}raise SystemExit('hostile {name}')\n")
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").write_text(HOSTILE)
    return tmp_path


def run(folder: Path, *words: str, env: dict[str, str] | None = None) -> str:
    """The stdout of a successful command as users start it, which has imported none of the modules."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", FORKED)}
    command = [str(Path(sys.executable).with_name("tfdist")), *words]
    done = subprocess.run(command, cwd=folder, env=environ | (env or {}), capture_output=True, text=True)
    assert not (folder / "imported").exists(), (folder / "imported").read_text() + done.stderr
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def train(folder: Path, strategy: StrategyName, env: dict[str, str] | None = None, *options: str) -> None:
    words = ("launch", "--strategy", strategy, *OPTIONS.get(strategy, ()), *TRAINING, *options, "--json")
    assert json.loads(run(folder, *words, env=env).splitlines()[-1])["status"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "forked"),
    [
        ("relative", "1"),
        *(pytest.param(search, "1", marks=pytest.mark.thorough) for search in ("", "colon")),
        *(pytest.param(search, "0", marks=pytest.mark.thorough) for search in SEARCH),
    ],
)
def test_a_training_and_export_import_no_module_of_the_working_folder(folder: Path, search: str, forked: str) -> None:
    path = SEARCH[search]
    env = {VARIABLE: forked} | ({"PYTHONPATH": path} if path else {})
    (folder / "tfdist").mkdir()
    if not path:  # else it would be the command itself
        (folder / "tfdist" / "__init__.py").write_text(HOSTILE)
    train(folder, StrategyName.MULTI_WORKER, env, "--checkpoint-dir", "checkpoints")
    run(folder, "export", "last", "model", env=env)
    assert (folder / "model" / "saved_model.pb").exists()


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("search", ["colon", ""])
def test_doctor_and_collectives_import_no_module_of_the_working_folder(folder: Path, search: str) -> None:
    env = {"PYTHONPATH": SEARCH[search] or ""}
    run(folder, "doctor", env=env)
    turns = ("--workers", "2", "--sizes", "1K", "--rounds", "1", "--turn", "0.1s", "--incarnations", "1", "--quiet")
    run(folder, "collectives", *turns, "--out", "out", env=env)


@pytest.mark.slow
@pytest.mark.thorough
def test_check_and_bench_import_no_module_of_the_working_folder(folder: Path) -> None:
    env = {"PYTHONPATH": SEARCH["colon"] or ""}
    turns = ("--rounds", "1", "--incarnations", "1", "--turn", "0.5s", "--quiet")
    run(folder, "bench", "--suite", "smoke", "--arm", "multiworker/auto", *turns, "--out", "out", env=env)
    program = folder / "own" / "train.py"  # beside the modules it would import them, as any program
    program.parent.mkdir()
    program.write_text("import tfdist.measure\nfor _ in tfdist.measure.steps(range(99), examples=1):\n    pass\n")
    run(folder, "check", "--strategy", "one-device", "own/train.py")


@pytest.mark.slow
def test_a_program_of_the_user_finds_its_own_modules(tmp_path: Path) -> None:
    """Also by a relative PYTHONPATH, which is the user's."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "settings.py").write_text("x = 5")
    (tmp_path / "json.py").write_text("x = 6")
    (tmp_path / "train.py").write_text("import json, os, settings; print(json.x, settings.x, os.environ['PYTHONPATH'])")
    run(tmp_path, "launch", "--strategy", "one-device", "--", "python", "train.py", env={"PYTHONPATH": "own:"})
    (log,) = tmp_path.glob("runs/*/attempt-0/*/stdout.log")
    assert log.read_text() == "6 5 own:\n"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ON_CPUS)
def test_no_strategy_imports_a_module_of_the_working_folder(strategy: StrategyName, folder: Path) -> None:
    train(folder, strategy)
