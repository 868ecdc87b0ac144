"""Trainings that hang: which worker is named, and where."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "hang_in_a_step.py"
TFDIST = [sys.executable, "-m", "tfdist.cli", "launch", "--json", "--strategy", "multiworker", "--workers", "2"]
HANG = "while os.environ.get('TFDIST_TASK') == 'worker-1': time.sleep(1)\n"
STALL_S = "30"
"""Longer than a busy machine needs to import TensorFlow, which shows no sign of life."""
AT_ONCE = f"import os, time\n{HANG}"
IN_THE_IMPORT = f"""\
import os, sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            {HANG}
sys.meta_path.insert(0, Finder())
"""


def launch(*arguments, cwd, env=None):
    """The JSON and the stderr of a launch."""
    argv = [*TFDIST, "--stall-timeout", STALL_S, *arguments]
    done = subprocess.run(argv, cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, timeout=240)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == summary["exit_code"] == 76
    assert summary["culprits"] == ["worker-1"]
    assert f"[tfdist] no step for {STALL_S} s (worker-0 " in done.stderr
    return summary["reason"], done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "function"), [("augmenting", "augment"), ("reading", "read_image")])
def test_a_worker_that_hangs_inside_a_step_is_named_with_its_place(how, function, tmp_path, survivors):
    shutil.copy(PROGRAM, tmp_path)
    reason, err = launch("--", "python", PROGRAM.name, how, cwd=tmp_path)
    place = re.escape(f"no step for {STALL_S} s: worker-1 is in {function}() at {PROGRAM.name}:")
    assert re.fullmatch(rf"{place}\d+, not in TensorFlow", reason)
    assert re.search(rf'\|   File ".*{PROGRAM.name}", line \d+ in {function}\n', err)
    assert survivors() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("site", "places"),
    [
        (
            AT_ONCE,
            ("does not listen on its port yet", "is in <module> at sitecustomize.py:2, not in TensorFlow"),
        ),  # py-spy
        (IN_THE_IMPORT, ("is in find_spec() at sitecustomize.py:5, not in TensorFlow",)),
    ],
    ids=["at once", "in the import"],
)
def test_a_worker_that_never_connects_is_found(site, places, tmp_path, survivors):
    (tmp_path / "sitecustomize.py").write_text(site)
    reason, _ = launch("--preset", "smoke", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "TFDIST_TEMPLATE": "0"})
    assert reason.removeprefix(f"no step for {STALL_S} s: worker-1 ") in places
    assert survivors() == []
