"""docs/tutorial.md: its commands in their order, in one folder. What they print has the shape of what the page shows."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from .launcher import CLEAN_S
from .namespaces import missing, network
from .nethost import SYSTEM_PATH
from .test_documented_commands import SSH

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
LIMIT_S = 420.0
"""Limit of each command on a busy machine."""
PART = re.compile(r"^## ([^\n]*)$|```python\n(.*?)```|^ {4}(\S[^\n]*)$|```text\n(.*?)```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class TutorialStep:
    """A command line of the page."""

    section: str
    line: str
    program: str
    """What train.py holds then."""
    shown: tuple[str, ...] = ()
    """What the page shows of the output."""


def commands():
    section, program, found = "", "", []
    for title, code, line, output in PART.findall(PAGE.read_text(encoding="utf-8")):
        section, program = title or section, code or program
        if line:
            found.append(TutorialStep(section, line, program))
        elif output:
            found[-1] = TutorialStep(found[-1].section, found[-1].line, found[-1].program, tuple(output.splitlines()))
    return found


def shape(line):
    """A regular expression: numbers may differ, and so may how a worker ends whose peer has died."""
    start, error, _ = line.partition("exited with code 1: UnavailableError")
    text = re.escape(" ".join(start.split())) + (" " if error else "")
    numbers = re.sub(r"\d(?:[\d,T]|\\\.)*", r"[\\d,.T]+", text)
    return numbers.replace(r"\ s\ left", r"\ (s|min)\ left") + (".*" if error else "")


def missing_from(output, shown):
    """The lines of the page that the output has in no line, apart from their numbers and spaces."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return [line for line in shown if not any(re.fullmatch(shape(line), each) for each in lines)]


@dataclass
class TutorialReader:
    """Plays the commands as a reader of the page would."""

    folder: Path
    prefix: tuple[str, ...]
    environment: dict[str, str]

    def play(self, steps):
        steps = iter(steps)
        for step in steps:
            (self.folder / "train.py").write_text(step.program)
            if step.line.startswith("tfdist launch") and "process" in " ".join(step.shown):
                self.kill_a_worker(step, next(steps))
            else:
                code, output = self.run(step)
                assert missing_from(output, step.shown) == [], f"{step.line}\n{output}"
                assert code == (1 if step.line.startswith("tfdist check") else 0), f"{step.line}\n{output}"

    def start(self, step):
        process = subprocess.Popen(
            [*self.prefix, "sh", "-c", f"exec {step.line}"], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        return process, watchdog

    def run(self, step):
        process, watchdog = self.start(step)
        output, _ = process.communicate()
        watchdog.cancel()
        return process.returncode, output

    def kill_a_worker(self, launch, kill):
        """Kill the process whose number the worker prints, when the last line is printed that the page shows before."""
        process, watchdog = self.start(launch)
        output = ""
        with process:
            for line in process.stdout:
                output += line
                if line.rstrip() == launch.shown[-1]:
                    break
            pid = int(re.search(r"^\[worker-1\] process (\d+)$", output, re.MULTILINE)[1])
            os.kill(pid, signal.SIGKILL)
            output += process.stdout.read()
        code = process.returncode
        watchdog.cancel()
        assert re.fullmatch(r"kill -9 \d+", kill.line)
        assert missing_from(output, kill.shown) == [], output
        assert code == (0 if "--max-restarts" in launch.line else 128 + signal.SIGKILL), output


@pytest.fixture
def reader(tmp_path):
    """A reader in an empty folder. h1 and h2 are namespaces with an sshd; without root, ssh leads to this machine."""
    programs, folder = tmp_path / "bin", tmp_path / "it's mine"
    programs.mkdir()
    folder.mkdir()
    (programs / "tfdist").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tfdist.cli "$@"\n')
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_", "SLURM_"))}
    path = f"{programs}:{Path(sys.executable).parent}:{SYSTEM_PATH}"
    environment = {**kept, "PATH": path, "BROWSER": "true"}
    if missing():
        (programs / "ssh").write_text(SSH)
        for program in programs.iterdir():
            program.chmod(0o755)
        yield TutorialReader(folder, (), environment)
        return
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net", 2) as net:
        client = shutil.which("ssh", path=SYSTEM_PATH)
        (programs / "ssh").write_text(f'#!/bin/sh\nexec {client} -F "{net.folder}/config" "$@"\n')
        for program in programs.iterdir():
            program.chmod(0o755)
        yield TutorialReader(folder, tuple(net.in_hub()), environment)
        deadline = time.monotonic() + CLEAN_S
        while (left := net.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []


def test_the_page_has_a_command_for_each_output():
    steps = commands()
    assert len(steps) == 12
    assert all(step.shown or not step.line.startswith("tfdist") or "two hosts" in step.section for step in steps)
    assert missing_from("[worker-0] Epoch 12/60\nother", ("[worker-1]  Epoch 1/6", "Epoch 1/6")) == ["Epoch 1/6"]


@pytest.mark.thorough
def test_two_processes(reader):
    reader.play(step for step in commands() if step.section.startswith("2."))


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # its last command alone trains for a minute on a busy machine
def test_all_steps(reader):
    reader.play(commands())
