"""`import tfdist` alone."""

import subprocess
import sys

import pytest

import tfdist

PROGRAM = """
import sys, tfdist
before = set(sys.modules)
assert not {"tfdist.bench", "tfdist.measure", "tfdist.strategies", "tensorflow", "pandas"} & before
print(tfdist.measure.epochs(3), tfdist.strategies.current.__name__, tfdist.bench.run.__name__)
"""


def test_what_programs_call_is_imported_at_its_first_use():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "3 current run\n"


def test_another_name_is_an_error():
    with pytest.raises(AttributeError, match="module 'tfdist' has no attribute 'stragegies'"):
        tfdist.stragegies  # noqa: B018


def test_a_shell_can_complete_what_is_imported_later():
    assert {"bench", "check", "measure", "run", "RunFailed", "strategies"} <= set(dir(tfdist))
