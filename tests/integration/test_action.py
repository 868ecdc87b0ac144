"""The script of the GitHub action, as the runner would start it, on two commits of a program whose steps sleep."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PROGRAM = Path(__file__).with_name("turns_program.py").read_text(encoding="utf-8")
SUITE = """
name = "steps"
incarnations = 1
rounds = 4
turn = 0.1
warmup = 0.1
window = 0.05
timeout = 60
arms = [{ name = "one|device", strategy = "one-device" }]
"""


class Runner:
    """What the runner of GitHub gives to the step, in a repository with two commits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repository = folder, folder / "it's; a repository"
        self.summary, self.outputs = folder / "summary.md", folder / "outputs"
        (folder / "temp").mkdir()

    def commit(self, *steps_s: float) -> None:
        """A commit for each duration of a step."""
        self.repository.mkdir()
        self.git("init", "--quiet")
        (self.repository / "steps.toml").write_text(SUITE)
        for number, step_s in enumerate(steps_s):
            text = PROGRAM.replace("STEP_S, BATCH = 0.01, 8", f"STEP_S, BATCH = {step_s}, 8  # {number}")
            assert text != PROGRAM
            (self.repository / "train.py").write_text(text)
            self.git("add", ".")
            self.git("commit", "--quiet", "--message", str(number))

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.repository, check=True)

    def measure(self, **inputs: str) -> int:
        """Run the step with these inputs; its exit code."""
        (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "measure"]
        values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        env = {
            name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: values[found[1]], text)
            for name, text in step["env"].items()
        }
        files = {"GITHUB_STEP_SUMMARY": self.summary, "GITHUB_OUTPUT": self.outputs}
        paths = {**files, "GITHUB_ACTION_PATH": ROOT, "RUNNER_TEMP": self.folder / "temp"}
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_CONFIG", "GIT_"))
        }
        path = f"{self.programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        return subprocess.run(  # as https://docs.github.com/actions/reference/workflow-syntax-for-github-actions has it
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.repository,
            env={**inherited, **env, **{name: str(value) for name, value in paths.items()}, "PATH": path},
            check=False,
            timeout=300,
        ).returncode

    def programs(self) -> Path:
        """A folder with the `tfdist` of this Python."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "tfdist"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tfdist.cli "$@"\n')
        program.chmod(0o755)
        return folder

    def output(self) -> dict[str, str]:
        """The outputs; a name that is written twice has its last value."""
        return dict(line.split("=", 1) for line in self.outputs.read_text().splitlines())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


OPTIONS = "--suite steps.toml --rounds 4"
COMMAND = "python train.py 'two words' '$(touch run)'"


def test_a_slower_commit_fails_and_says_so(runner: Runner) -> None:
    runner.commit(0.01, 0.02)
    assert runner.measure(command=COMMAND, options=OPTIONS) == 1
    outputs = runner.output()
    assert (outputs["verdict"], outputs["exit-code"]) == ("slower", "1")
    assert (Path(outputs["folder"]) / "report.html").is_file()
    text = runner.summary.read_text()
    assert text.startswith("### tfdist: slower than the base\n")
    assert re.search(r"(?m)^\| one\\\|device \| 0\.[45]\d\d \| 0\.\d+ to 0\.\d+ \| slower than the bound \|$", text)
    assert re.search(r"(?m)^one\|device +-*o-* +: +\|$", text)
    assert "## Results" in text
    assert "![" not in text
    assert not (runner.repository / "run").exists()


def test_a_commit_that_changes_nothing_passes(runner: Runner) -> None:
    runner.commit(0.02, 0.02)
    assert runner.measure(command=COMMAND, options=OPTIONS, fail_slower="50%", artifact="") == 0
    assert runner.output()["verdict"] == "not-slower"
    assert "artifact" not in runner.summary.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"command": ""}, "compares versions of your own program; give it after --"),
        ({"command": "python train.py 'x"}, "command: python train.py 'x: a quote is not closed"),
        ({"command": COMMAND, "against": "nowhere"}, "--against nowhere: neither a folder nor a git revision"),
        ({"command": COMMAND, "fail_slower": "5"}, "--fail-slower 5: give a share"),
    ],
)
def test_wrong_input_is_in_the_summary(inputs: dict[str, str], sentence: str, runner: Runner) -> None:
    runner.commit(0.01, 0.01)
    assert runner.measure(**{"options": OPTIONS, **inputs}) == 2
    outputs = runner.output()
    assert (outputs["verdict"], outputs["exit-code"]) == ("failed", "2")
    assert not Path(outputs["folder"]).exists()
    assert sentence in runner.summary.read_text()
