"""The start-up phases of a task."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.training.observation import phases_after_import
from tfdist.strategies.options import Keras

pytestmark = pytest.mark.slow


def test_phases_follow_each_other():
    assert phases_after_import(10.0, 13.0, 18.0, 25.0) == {"strategy": 3.0, "build": 5.0, "trace": 7.0}


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(sorted))
def test_phases_sum_to_the_whole_time(edges):
    assert sum(phases_after_import(*edges).values()) == edges[-1] - edges[0]


IMPORTS = """
import sys
from tfdist.models.training.task import import_tensorflow
from tfdist.strategies.options import Keras
import_tensorflow(Keras(sys.argv[1]))
print(*sorted({"pandas", "scipy"} & sys.modules.keys()), "|", __import__("pandas").Series([1, 2]).sum())
import scipy.linalg
"""


@pytest.mark.parametrize("keras", Keras)
def test_tensorflow_comes_without_pandas_which_can_be_imported_later(keras):
    done = subprocess.run([sys.executable, "-c", IMPORTS, keras], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "| 3\n"
