"""The import of TensorFlow in a task."""

import subprocess
import sys

import pytest

from tfdist.strategies.options import Keras

pytestmark = pytest.mark.slow


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
