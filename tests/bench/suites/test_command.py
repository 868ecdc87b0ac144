"""Your own program in the place of the built-in training."""

import json
from pathlib import Path

import pytest

from tfdist.bench.suites.command import check_complete, check_imports, check_measures, with_command
from tfdist.bench.suites.suite import load_suite, parse_suite
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.job import program_of
from tfdist.launch.machine import Machine, local_machines
from tfdist.strategies.options import StrategyName

COMMAND = ("python", "train.py")


def test_a_built_in_suite_keeps_its_strategies_and_drops_its_training() -> None:
    suite = load_suite("cpu")
    changed, notes = with_command(suite, COMMAND, built_in=True)
    assert [arm.name for arm in changed.arms] == [arm.name for arm in suite.arms]
    assert {arm.command for arm in changed.arms} == {COMMAND}
    assert dict(changed.arms[2].choices) == {"strategy": StrategyName.MIRRORED, "devices": 2}
    assert not notes
    assert parse_suite(json.loads(json.dumps(changed.to_json())), "bench.json") == changed


def test_arms_that_differ_only_in_the_training_are_measured_once_and_twins_stay_two() -> None:
    matrix = {"strategy": ["one-device", "mirrored"], "precision": ["float32", "mixed_float16"]}
    twin = {"name": "twin", "strategy": "mirrored", "precision": "float32"}
    suite = parse_suite({"matrix": matrix, "arms": [twin]}, "s")
    changed, notes = with_command(suite, COMMAND, built_in=True)
    assert [arm.name for arm in changed.arms] == ["one-device/float32", "mirrored/float32", "twin"]
    (note,) = notes
    assert note.endswith(": one-device/mixed_float16, mirrored/mixed_float16")
    assert note.startswith("left out with your own program, because ")


@pytest.mark.parametrize(
    ("suite", "strategy", "kept"),
    [
        ("knobs", "mirrored", ["mirrored", "mirrored/hierarchical-copy", "mirrored/hierarchical-copy/4-packs"]),
        ("classic", "between-graph", []),
    ],
)
def test_arms_that_only_the_built_in_training_can_run_are_left_out(suite: str, strategy: str, kept: list[str]) -> None:
    changed, (note,) = with_command(load_suite(suite), COMMAND, built_in=True)
    names = [arm.name for arm in changed.arms if arm.choices["strategy"] == strategy]
    assert [name for name in names if "thread" not in name] == kept
    assert note.startswith("left out with your own program")


def test_without_a_command_nothing_changes() -> None:
    suite = load_suite("cpu")
    assert with_command(suite, (), built_in=False) == (suite, ())


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"defaults": {"batch_size": 8}}, "has batch_size, which is for the built-in training"),
        ({"command": ["true"]}, "has a command and another follows --"),
    ],
)
def test_a_suite_of_the_user_must_not_contradict_the_command(table: dict[str, object], reason: str) -> None:
    suite = parse_suite({**table, "arms": [{"name": "a", "strategy": "one-device"}]}, "s")
    with pytest.raises(TfdistError, match=reason):
        with_command(suite, COMMAND, built_in=False)


def test_a_suite_saved_without_its_secrets_cannot_run() -> None:
    suite = parse_suite({"arms": [{"name": "a", "strategy": "one-device", "command": ["p", "--token", "abc"]}]}, "s")
    check_complete(suite, "--resume x")
    with pytest.raises(TfdistError, match="--resume x: the command of a has secrets, which are not saved"):
        check_complete(parse_suite(suite.to_json(), "bench.json"), "--resume x")


MACHINES = local_machines(Machine((0,), ()))
FIT = (
    "import tensorflow as tf\nimport tfdist.strategies\nfrom lib.net import build\nfrom . import other\nbuild().fit()\n"
)
NET = "import keras\n\n\ndef build():\n    return keras.Sequential()\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in {"train": FIT, "other": "", "lib__net": NET, **files}.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "command", [("python", "train.py"), ("python", "-u", "train.py", "--steps", "3"), ("python", "-m", "train")]
)
def test_a_program_that_measures_nothing_is_refused(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path))
    with pytest.raises(TfdistError, match=r"^train.py, .*no step would be measured: call tfdist.measure.steps\(\)"):
        check_measures(program_of(command, {}, MACHINES))


def test_a_program_that_imports_from_above_its_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for level in ("...", "." * 99):
        Path("train.py").write_text(f"if __package__:\n    from {level}common import x\n")
        with pytest.raises(TfdistError, match="no step would be measured"):
            check_measures(program_of(("python", "train.py"), {}, MACHINES))


@pytest.mark.parametrize(
    "files",
    [
        {"train": "import tfdist\nfit(callbacks=[tfdist.measure.Callback()])"},
        {"train": "from tfdist import measure as m\nm.steps([], examples=1)"},
        {"lib__net": "from tfdist.measure import Callback"},
        {"other": "import os\nout = os.environ['TFDIST_EVENTS_FD']"},
        {"other": "import importlib\nimportlib.import_module('x')"},  # whatever this runs
        {"other": "import a_module_from_elsewhere"},
        {"other": "no ("},
        {"other": f"{'-' * 100_000}1"},  # nested too deeply for Python's parser
    ],
)
def test_a_program_that_measures_or_may_run_other_code_passes(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, **files))
    check_measures(program_of(("python", "train.py"), {}, MACHINES))


@pytest.mark.parametrize("command", [("true",), ("python", "-c", "pass"), ("python",)])
def test_programs_that_cannot_be_read_pass(command: tuple[str, ...]) -> None:
    check_measures(program_of(command, {}, MACHINES))


@pytest.mark.parametrize("example", ["keras_fit", "custom_loop", "fit_restart", "loop_restart"])
def test_the_examples_pass(example: str) -> None:
    path = Path(__file__).parents[3] / "examples" / f"{example}.py"
    check_measures(program_of(("python", str(path)), {}, MACHINES))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import tfdist.measure, no_such_package.part", "no_such_package"),
        ("from no_such_package import x", "no_such_package"),
        ("try:\n    import no_such_package\nexcept ImportError:\n    pass", ""),
        ("import os, numpy, beside", ""),
        ("from . import beside", ""),
        ("import (", ""),
    ],
)
def test_a_script_that_imports_what_is_not_installed_is_refused_with_the_pip_command(
    text: str, missing: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "beside.py").touch()
    machines = local_machines(Machine((0,), ()))
    program = program_of(("python", str(tmp_path / "train.py")), {}, machines)
    if missing:
        with pytest.raises(
            MissingHardwareError, match=f"imports {missing}, which is not installed: pip install {missing}"
        ):
            check_imports(program, machines)
    else:
        check_imports(program, machines)
