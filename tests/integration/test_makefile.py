"""The targets of the Makefile, as make would run them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from .test_packaging import UNSET

ROOT = Path(__file__).parents[2]


def make(*arguments: str) -> str:
    env = {key: value for key, value in os.environ.items() if key not in UNSET}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout


def commands(target: str) -> str:
    """The commands that make would run for this target in a fresh clone."""
    return make("--dry-run", "--always-make", target)


def test_check_runs_formatting_lint_types_and_the_quick_tests_too_and_test_all_leaves_none_out() -> None:
    every = commands("test-all").splitlines()[-1].removesuffix(" --hypothesis-profile thorough")
    *_, pattern, lint, types, tests = commands("check").splitlines()
    assert [line.split(" -m ")[1] for line in (pattern, lint, types)] == [
        "ruff format --check .",
        "ruff check .",
        "mypy",
    ]
    assert commands("test").splitlines()[-1] == f'{every} -m "not slow and not thorough"'
    assert tests == f'{every} -m "not thorough or core"'


def test_install_takes_nothing_from_the_index_but_locked_packages() -> None:
    pip = [line for line in commands("install").splitlines() if "pip install" in line]
    assert pip
    for line in pip:
        assert "--no-deps" in line
        assert ("--require-hashes" in line) != ("--editable ." in line)
        assert "--no-build-isolation" in line or line.endswith("--requirement requirements/build.txt")
    assert "--no-isolation" in commands("build")


def test_install_refuses_a_python_that_is_too_new_and_installs_nothing(tmp_path: Path) -> None:
    newer = tmp_path / "python"
    program = "import sys; sys.version_info = (3, 14, 0); exec(sys.argv[2])"
    call = shlex.join([sys.executable, "-c", program])  # a #! line takes no path with a space
    newer.write_text(f'#!/bin/sh\nexec {call} "$@"\n')
    newer.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make("install", f"VENV={tmp_path}/venv", f"PYTHON={newer}")
    assert f"{newer} is Python 3.14, and tfdist needs 3.10 to 3.13" in refused.value.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


@pytest.mark.parametrize(
    ("settings", "suite"), [([], "quick"), (["SUITE=cpu"], "cpu"), (["SUITE=my own.toml"], "my own.toml")]
)
def test_bench_answers_soon_unless_another_suite_is_named(settings: list[str], suite: str) -> None:
    *_, command = make("--dry-run", "bench", *settings).splitlines()
    assert shlex.split(command)[1:] == ["-m", "tfdist", "bench", "--suite", suite]


def test_help_describes_every_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", make("--dry-run", "--print-data-base", "help"), re.MULTILINE)
    described = re.findall(r"^  ([a-z-]+) +\S", make("help"), re.MULTILINE)
    assert sorted(described) == sorted(phony.split())


def test_every_tensorflow_that_the_project_allows_is_tested() -> None:
    (allowed,) = re.findall(
        r'^  "tensorflow(>=[\d.]+,<[\d.]+)[";]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    (tested,) = re.findall(r"TENSORFLOWS:-([\d. ]+)}", (ROOT / "tests" / "tensorflows.sh").read_text())
    assert tested.split() == [f"2.{minor}" for minor in range(99) if f"2.{minor}" in SpecifierSet(allowed)]


@pytest.mark.parametrize(
    ("settings", "installed"),
    [([], True), (["CUDA=0"], False), (["CUDA=1"], True), (["CUDA=/usr/local/cuda"], True)],
)
def test_install_adds_the_cuda_libraries_where_an_nvidia_driver_has_devices(
    settings: list[str], installed: bool, tmp_path: Path
) -> None:
    (tmp_path / "nvidia0").touch()
    text = make("--dry-run", "--always-make", "install", f"NVIDIA_DEVICES={tmp_path}/nvidia[0-9]*", *settings)
    assert ("--requirement requirements/cuda.txt" in text) is installed
    assert ("installing the CUDA libraries" in text) is installed


@pytest.mark.parametrize(("settings", "installed"), [([], False), (["CUDA=1"], True)])
def test_install_leaves_the_cuda_libraries_out_without_a_gpu(
    settings: list[str], installed: bool, tmp_path: Path
) -> None:
    text = make("--dry-run", "--always-make", "install", f"NVIDIA_DEVICES={tmp_path}/nvidia[0-9]*", *settings)
    assert ("--requirement requirements/cuda.txt" in text) is installed
