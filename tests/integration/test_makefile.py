"""The targets, as make would run them."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands(*arguments: str) -> str:
    """What make would run, if everything were to be made anew."""
    asked = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return asked.stdout


@pytest.mark.parametrize("target", ["install", "test", "lint", "types", "build"])
def test_no_target_but_bench_starts_a_bench(target: str) -> None:
    assert "tfdist.cli bench" not in commands(target)
    assert "tfdist.cli bench" in commands("bench")


def test_help_lists_every_target_with_a_line() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    for target in phony.split()[1:]:
        assert any(line.split()[0] == target and len(line.split()) > 2 for line in listed.splitlines()), target
