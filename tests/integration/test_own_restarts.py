"""Programs of one's own that continue after a kill or a preemption."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PREEMPTED = Path(__file__).with_name("save_on_preemption.py")
WORKERS = ("--strategy", "multiworker", "--workers", "2")


@dataclass
class Launch:
    """A running `tfdist launch` whose lines on stdout are watched."""

    folder: Path
    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    def wait_for_line(self, wanted: str) -> None:
        """Read lines until one contains this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if wanted in line:
                return
        raise AssertionError("\n".join(self.lines))

    def wait_for_file(self, pattern: str) -> None:
        """Wait until the folder of checkpoints has such a file."""
        while self.process.poll() is None:
            with suppress(FileNotFoundError):  # a folder that was deleted meanwhile
                if any((self.folder / "ckpt").glob(pattern)):
                    return
            time.sleep(0.01)
        raise AssertionError("\n".join(self.lines))

    def end(self) -> int:
        """Read the rest; the exit code."""
        assert self.process.stdout is not None
        self.lines += map(str.rstrip, self.process.stdout)
        return self.process.wait()

    def pid_of(self, task: str) -> int:
        """The process of a task's first attempt."""
        (events,) = self.folder.glob("runs/*/events.jsonl")
        started = (json.loads(line) for line in events.read_text().splitlines())
        return next(each["pid"] for each in started if each["kind"] == "Started" and each["task"] == task)

    def printed(self, pattern: str) -> list[str]:
        """What matches in all lines, sorted."""
        return sorted(found[1] for line in self.lines if (found := re.search(pattern, line)))


@pytest.fixture
def launch(tmp_path, survivors):
    """Starts `tfdist launch` with a folder for checkpoints; nothing may be left of it."""
    launches = []

    def start(program, *options):
        arguments = [*WORKERS, "--checkpoint-dir", "ckpt", "--runs-dir", "runs", *options, "--", "python", str(program)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tfdist.cli", "launch", *arguments],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        watchdog = threading.Timer(280, process.kill)
        watchdog.start()
        launches.append((process, watchdog))
        return Launch(tmp_path, process)

    yield start
    for process, watchdog in launches:
        watchdog.cancel()
        process.kill()
        process.communicate()
    assert survivors() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("example", "saved", "ends"),
    [
        ("loop_restart.py", "checkpoint", r"attempt 1: (accuracy 0\.9\d+ after step 2000)"),
        ("fit_restart.py", "**/checkpoint", r"attempt 1: (accuracy 0\.9\d+ after step 1200)"),
    ],
)
def test_an_example_continues_after_a_worker_is_killed(example, saved, ends, launch):
    run = launch(EXAMPLES / example, "--max-restarts", "1")
    run.wait_for_file(saved)
    os.kill(run.pid_of("worker-1"), signal.SIGKILL)
    assert run.end() == 0, "\n".join(run.lines)
    assert run.printed("(worker-1 was killed by SIGKILL.*restart 1 of 1: all tasks)")
    finished = run.printed(ends)
    assert len(finished) == 2
    if example == "loop_restart.py":
        first = run.printed(r"attempt 1: from step (\d+)")
        assert len(first) == 2
        assert len(set(first)) == 1
        assert int(first[0]) >= 100
        assert len(set(finished)) == 1


@pytest.mark.thorough
def test_tensorflows_handler_saves_when_the_launcher_is_told_to_end(launch):
    run = launch(PREEMPTED)
    run.wait_for_line("trains")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 42, "\n".join(run.lines)
    resumed = launch(PREEMPTED)
    assert resumed.end() == 0, "\n".join(resumed.lines)
    assert_continued(resumed)


@pytest.mark.thorough
def test_a_preempted_worker_makes_all_save_and_restart(launch):
    run = launch(PREEMPTED, "--max-restarts", "1", "--set", "restart_on=preemption")
    run.wait_for_line("trains")
    os.kill(run.pid_of("worker-1"), signal.SIGTERM)
    assert run.end() == 0, "\n".join(run.lines)
    assert run.printed("(restart 1 of 1: all tasks)")
    assert_continued(run)


def assert_continued(run):
    """Both workers continue at one step that was saved, and train ten more."""
    first = {int(step) for step in run.printed(r"from step (\d+)")} - {0}
    assert len(first) == 1
    assert run.printed(r"done at step (\d+)") == [str(first.pop() + 10)] * 2
