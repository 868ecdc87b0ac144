import subprocess
import sys

from tfdist.models.training.ending import warn

LEAVE = """
import atexit
from tfdist.models.training.ending import leave
atexit.register(print, "clean-up")
print("last line")
leave(42)
"""


def test_a_task_leaves_with_its_output_and_without_clean_up():
    done = subprocess.run([sys.executable, "-c", LEAVE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (42, "last line\n", "")


def test_a_warning_goes_to_the_log_of_the_task(capsys):
    warn("the disk is full")
    assert capsys.readouterr().err == "tfdist: warning: the disk is full\n"
