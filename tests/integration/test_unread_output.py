"""A terminal or pipe that nobody reads: the launcher still obeys signals and time limits, and the logs keep all."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TFDIST = [sys.executable, "-m", "tfdist.cli"]
LINES = 400_000
LIMIT_S = 8.0
"""Time limit from the signal, or from the start with `--timeout 5`, to the end of the launcher."""
DEADLINE_S = 120.0
PROGRAM = f"""
import os, pathlib, signal, sys, time
written = 0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    while written < {LINES}:
        print(written, "x" * 60)
        written += 1
    pathlib.Path(sys.argv[1], "written-" + os.environ["TFDIST_TASK"]).touch()
    time.sleep(1000)
finally:
    pathlib.Path(sys.argv[1], "count-" + os.environ["TFDIST_TASK"]).write_text(str(written))
"""
"""Writes many lines, and at its end how many of them it has written."""


class Unread:
    """A launch of two tasks whose stdout and stderr are one pipe or terminal that is never read."""

    def __init__(self, folder: Path, *options: str, terminal: bool) -> None:
        (folder / "program.py").write_text(PROGRAM)
        self.folder = folder
        self.reading, writing = pty.openpty() if terminal else os.pipe()
        command = [*TFDIST, "launch", "--strategy", "multiworker", *options]
        self.process = subprocess.Popen(
            [*command, "--", sys.executable, "program.py", str(folder)],
            cwd=folder,
            stdin=writing if terminal else subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY)) if terminal else None,
        )
        os.close(writing)

    def wait_until_written(self) -> None:
        """Wait until both tasks have written everything."""
        deadline = time.monotonic() + DEADLINE_S
        while len(list(self.folder.glob("written-*"))) < 2:
            assert time.monotonic() < deadline, "the tasks wait for the console"
            assert self.process.poll() is None
            time.sleep(0.05)

    def logged_lines(self) -> list[int]:
        """Number of lines in the stdout log of each task."""
        logs = sorted(self.folder.glob("runs/*/attempt-0/*/stdout.log"))
        return [log.read_bytes().count(b"\n") for log in logs]

    def written_lines(self) -> list[int]:
        """Number of lines that each task has written."""
        return [int(count.read_text()) for count in sorted(self.folder.glob("count-*"))]


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Callable[..., Unread]]:
    """Starts such launches."""
    started: list[Unread] = []

    def start(*options: str, terminal: bool) -> Unread:
        started.append(Unread(tmp_path, *options, terminal=terminal))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        os.close(one.reading)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_launch_that_writes_to_an_unread_pipe(unread, number, code):
    launch = unread(terminal=False)
    launch.wait_until_written()
    sent_at = time.monotonic()
    launch.process.send_signal(number)
    assert launch.process.wait(DEADLINE_S) == code
    assert time.monotonic() - sent_at < LIMIT_S
    assert launch.logged_lines() == [LINES, LINES]


@pytest.mark.thorough
def test_ctrl_c_ends_a_launch_on_a_terminal_stopped_with_ctrl_s(unread):
    launch = unread(terminal=True)
    os.write(launch.reading, b"\x13")
    launch.wait_until_written()
    sent_at = time.monotonic()
    os.write(launch.reading, b"\x03")
    assert launch.process.wait(DEADLINE_S) == 130
    assert time.monotonic() - sent_at < LIMIT_S
    assert launch.logged_lines() == [LINES, LINES]


@pytest.mark.thorough
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_the_time_limit_ends_a_launch_whose_output_is_not_read(unread, terminal):
    started_at = time.monotonic()
    launch = unread("--timeout", "5", terminal=terminal)
    assert launch.process.wait(DEADLINE_S) == 124
    assert time.monotonic() - started_at < LIMIT_S + 12  # on a busy machine
    logged, written = launch.logged_lines(), launch.written_lines()
    assert min(written) > LINES / 20  # far more than pipes hold
    for lines, count in zip(logged, written, strict=True):
        assert count <= lines <= count + 1  # SIGTERM may come between writing and counting


def test_ctrl_c_ends_a_launch_that_connects_while_stderr_is_full(tmp_path):
    (tmp_path / "ssh").write_text('#!/bin/sh\ntouch "$0.started"\ncat >/dev/null\nexit 1\n')
    (tmp_path / "ssh").chmod(0o755)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    while True:  # fill the pipe
        try:
            os.write(writing, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)
    process = subprocess.Popen(
        [*TFDIST, "launch", "--hosts", "h1", "--ssh", "./ssh", "--", "true"],
        cwd=tmp_path,
        stderr=writing,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "ssh.started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2.5)  # the step is printed after 2 s
        process.send_signal(signal.SIGINT)
        assert process.wait(20.0) == 130
    finally:
        process.kill()
        os.close(reading)
        os.close(writing)


def test_a_slow_reader_gets_the_failure_and_the_json_line(tmp_path):
    program = "import sys\nfor number in range(30_000): print(number, 'x' * 90)\nsys.exit(3)"
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*TFDIST, "launch", "--json", "--strategy", "one-device", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=writing,
        stderr=writing,
    )
    os.close(writing)
    received = bytearray()
    while data := os.read(reading, 1 << 15):
        received += data
        time.sleep(0.05)
    os.close(reading)
    assert process.wait(DEADLINE_S) == 3
    *_, json_line = received.decode().splitlines()
    assert json.loads(json_line)["exit_code"] == 3
    assert "tfdist: worker-0 exited with code 3" in received.decode()
    lines = [line for line in received.decode().splitlines() if "x" * 90 in line]
    notes = [line for line in received.decode().splitlines() if line.endswith("lines not shown; the logs keep all")]
    assert len(lines) + sum(int(line.split()[1].replace(",", "")) for line in notes) >= 30_000
