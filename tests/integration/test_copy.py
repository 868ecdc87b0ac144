"""`launch --copy`: hosts that have none of the program's files."""

import json
import os
import time
from pathlib import Path

import pytest

from . import turns_program

TWO = ("--strategy", "multiworker", "--hosts", "h1,h2", "--copy")
TRAIN = """
import os, sys
import helper, package.part
from package import other
print(helper.NAME, package.part.NAME, other.NAME, open("data/numbers.txt").read().strip())
print("in", os.getcwd())
"""


@pytest.fixture
def program(launcher) -> Path:
    """The folder of a program with three modules, a package and a data file."""
    folder = launcher.folder
    for name, text in {
        "train.py": TRAIN,
        "helper.py": "NAME = 'helper'",
        "package/__init__.py": "",
        "package/part.py": "NAME = 'part'",
        "package/other.py": "NAME = 'other'",
        "data/numbers.txt": "1 2 3",
    }.items():
        launcher.script(text, name)
    return folder


def folders(done):
    return [
        Path(line.removeprefix("in "))
        for task in ("worker-0", "worker-1")
        for line in done.lines_of(task, done.out)[1:]
    ]


def test_the_program_trains_in_a_copy_that_is_removed(launcher, program):
    done = launcher.run(*TWO, "--", "python", "train.py")
    assert done.code == 0, done.err
    for task in ("worker-0", "worker-1"):
        assert done.lines_of(task, done.out)[0] == "helper part other 1 2 3"
    first, second = folders(done)
    assert first != second
    assert not any(folder.is_relative_to(program) or folder.exists() for folder in (first, second))
    assert "written in the copy" not in done.err  # byte code does not count
    commands = (launcher.run_dir / "commands.txt").read_text()
    assert f"copy of {program}: 6 files" in commands
    spec = json.loads((launcher.run_dir / "spec.json").read_text())
    assert (spec["copy"]["folder"], spec["copy"]["files"], spec["copy"]["commit"]) == (str(program), 6, "")


def test_this_machine_uses_a_copy_too(launcher, program):
    done = launcher.run("--strategy", "multiworker", "--hosts", "localhost:2", "--copy", "--", "python", "train.py")
    assert done.code == 0, done.err
    first, second = folders(done)
    assert first == second
    assert not first.is_relative_to(program)
    assert not first.exists()


RESTARTED = """
import os, pathlib, sys
print("version 1")
if os.environ["TFDIST_ATTEMPT"] == "0":
    pathlib.Path({original!r}).write_text("print('version 2')")
    sys.exit(1)
"""


def test_a_restart_runs_the_code_of_the_launch(launcher):
    original = str(launcher.folder / "train.py")
    launcher.script(RESTARTED.format(original=original), "train.py")
    done = launcher.run(*TWO, "--max-restarts", "1", "--", "python", "train.py")
    assert done.code == 0, done.err
    assert set(done.lines_of("worker-0", done.out)) == {"version 1"}
    assert Path(original).read_text() == "print('version 2')"


def test_what_a_task_writes_in_the_copy_is_named_with_the_places_that_last(launcher):
    launcher.script(
        "import os, pathlib\n"
        "pathlib.Path('model.keras').write_text('x')\n"
        "lasts = pathlib.Path(os.environ['TFDIST_ARM_DIR'], os.environ['TFDIST_TASK'])\n"
        "lasts.parent.mkdir(parents=True, exist_ok=True)\n"
        "lasts.write_text('x')\n"
        "print(lasts)\n",
        "train.py",
    )
    done = launcher.run(*TWO, "--", "python", "train.py")
    assert done.code == 0, done.err
    assert (
        "2 files written in the copy of the folder, which is removed: model.keras on h1, model.keras on h2; write to "
        "TFDIST_ARM_DIR or TFDIST_CHECKPOINT_DIR"
    ) in done.err
    for task in ("worker-0", "worker-1"):
        (path,) = done.lines_of(task, done.out)
        assert Path(path).read_text() == "x"


def test_resume_uses_the_copy_of_the_run(launcher):
    launcher.script(
        "import os, pathlib\n"
        "print('version 1')\n"
        "pathlib.Path(os.environ['TFDIST_CHECKPOINT_DIR'], 'saved').write_text('x')\n",
        "train.py",
    )
    saving = ("--checkpoint-dir", "saved")
    done = launcher.run(*TWO, *saving, "--", "python", "train.py")
    assert done.code == 0, done.err
    launcher.script("print('version 2')", "train.py")
    again = TWO[:-1]
    done = launcher.run(*again, "--resume", "last", "--", "python", "train.py")
    assert done.code == 0, done.err
    assert done.lines_of("worker-1", done.out) == ["version 1"]
    first = sorted((launcher.folder / "runs").iterdir())[0]
    done = launcher.run(*TWO, "--resume", str(first), "--", "python", "train.py")
    assert done.code == 0, done.err
    assert f"{launcher.folder} differs from the copy in which that run ran" in done.err
    assert done.lines_of("worker-1", done.out) == ["version 2"]


def test_a_host_without_space_is_named_before_anything_starts(launcher, net):
    (launcher.folder / "noise").write_bytes(os.urandom(12 << 20))
    launcher.script("print('it runs')", "train.py")
    small = launcher.folder / "small"
    small.mkdir()
    prefix = f"unshare -m sh -c 'mount -t tmpfs -o size=16m,mode=700 tmpfs {small} && TMPDIR={small} exec \"$@\"' sh"
    done = launcher.run(*TWO, "--remote-prefix", prefix, "--", "python", "train.py")
    assert done.code == 69
    *progress, sentence = done.err.splitlines()  # the former on a busy machine
    assert "tfdist: " not in "".join(progress)
    assert "h1, h2: the copy of the folder cannot be unpacked (no space left on device); free space in" in sentence


def test_a_slow_link_shows_progress_and_the_copy_arrives(launcher, net):
    (launcher.folder / "noise").write_bytes(os.urandom(2 << 20))
    launcher.script("print(len(open('noise', 'rb').read()))", "train.py")
    with net.limit_mbit(4):
        done = launcher.run(*TWO, "--", "python", "train.py")
    assert done.code == 0, done.err
    assert "copying 2.1 MB to h1, h2" in done.err
    assert done.lines_of("worker-1", done.out) == [str(2 << 20)]


def test_a_dry_run_says_what_would_travel_and_copies_nothing(launcher, program):
    done = launcher.run(*TWO, "--dry-run", "--", "python", "train.py")
    assert done.code == 0, done.err
    assert f"copy of {program}: 6 files, " in done.out
    assert f"in a copy of {program}" in done.out
    assert not (launcher.folder / "runs").exists()


@pytest.mark.thorough
def test_a_host_that_comes_back_gets_the_copy_again(launcher, net):
    launcher.script(
        "import os, sys, time\n"
        "print('attempt', os.environ['TFDIST_ATTEMPT'])\n"
        "time.sleep(600 if os.environ['TFDIST_ATTEMPT'] == '0' else 0)\n",
        "train.py",
    )
    process = launcher.start(
        "--python",
        str(launcher.python),
        *TWO,
        "--max-restarts",
        "1",
        "--launcher-timeout",
        "5s",
        "--",
        "python",
        "train.py",
    )
    deadline = time.monotonic() + 60
    while not list((launcher.folder).glob("runs/*/attempt-0/worker-1/stdout.log")) and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = [line.split(": ")[1] for line in net.processes() if net.hosts[1].namespace in line and "tfdist-" in line]
    assert pids
    for pid in pids[:1]:
        os.kill(int(pid), 9)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "[worker-1] attempt 1" in out


def test_a_bench_on_two_hosts_measures_copies(launcher):
    launcher.script(Path(turns_program.__file__).read_text(), "train.py")
    suite = launcher.script(
        "name = 'two'\nrounds = 1\nturn = 0.5\nwarmup = 0.1\nincarnations = 1\n"
        "[[arms]]\nname = 'both'\nstrategy = 'independent'\nworkers = 2\nhosts = 2\n",
        "two.toml",
    )
    words = ("--hosts", "h1,h2", "--suite", suite, "--copy", "--out", "bench", "--json", "--", "python", "train.py")
    done = launcher.run(*words, command="bench", timeout_s=120)
    assert done.code == 0, done.err[-4000:]
    (row,) = json.loads(done.out.splitlines()[-1])["rows"]
    assert (row["status"], row["hosts"]) == ("ok", 2)
    assert (launcher.folder / "bench" / "copy.tar.gz").exists()
    (cluster,) = (launcher.folder / "bench" / "runs").glob("*/cluster.json")
    assert all("/tfdist-" in task["cwd"] for task in json.loads(cluster.read_text())["tasks"])
