"""The Tab key in real shells, with the completion that tfdist installs or shows."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .terminal import Terminal

START = {
    "bash": (".bashrc", "PS1='ready> '\n"),
    "zsh": (".zshrc", "PROMPT='ready> '\n"),
    "fish": (".config/fish/config.fish", "function fish_prompt; printf 'ready> '; end\n"),
}
"""The file that each shell reads when it starts, and its prompt there."""
Shell = Callable[[], Terminal]


@pytest.fixture(params=START)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    return name


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    return {"HOME": str(tmp_path), "PATH": path, "TERM": "xterm", "LANG": "C.UTF-8"}


@pytest.fixture
def rc(shell: str, tmp_path: Path) -> Path:
    name, prompt = START[shell]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(prompt)
    return path


@pytest.fixture
def terminal(shell: str, environment: dict[str, str], rc: Path, tmp_path: Path) -> Iterator[Shell]:
    """Starts the shell as a terminal window does, and waits for its prompt."""
    opened: list[Terminal] = []

    def start() -> Terminal:
        words = [f"{name}={value}" for name, value in environment.items()]
        opened.append(Terminal(["env", "-i", *words, shell, "-i"], tmp_path))
        opened[-1].wait_for("ready> ")
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def run(shell: str, command: str, environment: dict[str, str], folder: Path) -> str:
    """What a command prints that runs in this shell: tfdist finds the shell among its parents."""
    words = [shell, "-c", f"{command}; true"]
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout


def completes(terminal: Terminal) -> None:
    """The command, then an option and its value, are completed from their first letters."""
    terminal.wait_for("nch")
    for letters, rest in (("--cross", "-device"), ("hier", "archical-copy")):
        terminal.type(f"{letters}\t")
        terminal.wait_for(rest)
    terminal.type("\x01echo \r")  # to the start of the line
    terminal.wait_for(r"[\r\n]tfdist launch --cross-device hierarchical-copy\n")


def test_the_installed_completion_completes(
    shell: str, terminal: Shell, environment: dict[str, str], tmp_path: Path
) -> None:
    assert f"{shell} completion installed" in run(shell, "tfdist --install-completion", environment, tmp_path)
    window = terminal()
    window.type("tfdist lau\t")
    if shell == "zsh":  # the first Tab only loads what Typer has installed
        window.wait_for("\a")
        window.type("\t")
    completes(window)


def test_the_shown_completion_completes(
    shell: str, terminal: Shell, environment: dict[str, str], rc: Path, tmp_path: Path
) -> None:
    compinit = "autoload -Uz compinit; compinit\n" if shell == "zsh" else ""
    script = run(shell, "tfdist --show-completion", environment, tmp_path)
    rc.write_text(rc.read_text() + compinit + script)
    window = terminal()
    window.type("tfdist lau\t")
    completes(window)
