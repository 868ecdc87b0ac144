"""The scripts of the GitHub action, as the runner would start them, on two commits of a program whose steps sleep."""

import json
import os
import re
import shlex
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
        self.variables, self.path = folder / "env", folder / "path"  # for later steps
        self.log = ""
        (folder / "temp").mkdir()

    def commit(self, *steps_s: float) -> None:
        """A commit for each duration of a step."""
        self.repository.mkdir(exist_ok=True)
        self.git("init", "--quiet")
        (self.repository / "steps.toml").write_text(SUITE)
        for number, step_s in enumerate(steps_s):
            (self.repository / "train.py").write_text(program(step_s, f"# {number}"))
            self.git("add", ".")
            self.git("commit", "--quiet", "--message", str(number))

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.repository, check=True)

    def measure(self, variables: dict[str, str] | None = None, **inputs: str) -> int:
        """Run the step that measures with these inputs, and variables of the job; its exit code."""
        (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "measure"]
        values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}

        def replaced(text: str) -> str:
            return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: values[found[1]], text)

        env = {name: replaced(text) for name, text in step["env"].items()}
        return self.run(
            step["run"], self.repository / replaced(step["working-directory"]), {**env, **(variables or {})}
        )

    def install(self, action: Path, **variables: str) -> int:
        """Run the step that installs the action in this folder, with these variables of the job; its exit code."""
        step = next(step for step in ACTION["runs"]["steps"] if "install" in step.get("if", ""))
        return self.run(step["run"], self.repository, {"GITHUB_ACTION_PATH": str(action), **variables})

    def run(self, script: str, cwd: Path, env: dict[str, str]) -> int:
        """Run a step; its exit code. What it prints is in `log`."""
        paths = {
            "GITHUB_STEP_SUMMARY": self.summary,
            "GITHUB_OUTPUT": self.outputs,
            "GITHUB_ENV": self.variables,
            "GITHUB_PATH": self.path,
            "GITHUB_WORKSPACE": self.repository,
            "GITHUB_ACTION_PATH": ROOT,
            "RUNNER_TEMP": self.folder / "temp",
        }
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_CONFIG", "GIT_"))
        }
        path = f"{self.programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        file = self.folder / "step.sh"
        file.write_text(script)
        done = subprocess.run(  # as https://docs.github.com/actions/reference/workflow-syntax-for-github-actions has it
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
            cwd=cwd,
            env={**inherited, **{name: str(value) for name, value in paths.items()}, "PATH": path, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            check=False,
            timeout=300,
        )
        self.log = done.stdout
        return done.returncode

    def programs(self) -> Path:
        """A folder with the `tfdist` of this Python."""
        folder = self.folder / "bin"
        program = folder / "tfdist"
        if folder.exists():
            return folder
        folder.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tfdist.cli "$@"\n')
        program.chmod(0o755)
        return folder

    def output(self) -> dict[str, str]:
        """The outputs; a name that is written twice has its last value."""
        return dict(line.split("=", 1) for line in self.outputs.read_text().splitlines())

    def commands(self) -> list[str]:
        """The lines of the log that the runner would obey."""
        found, stopped = [], ""
        for line in self.log.splitlines():
            if stopped:
                stopped = "" if line == f"::{stopped}::" else stopped
            elif line.startswith("::stop-commands::"):
                stopped = line.removeprefix("::stop-commands::")
                assert re.fullmatch(r"[0-9a-f]{32}", stopped)
            elif re.match(r"\s*::|.*##\[", line):
                found.append(line)
        assert not stopped
        return found


def program(step_s: float, more: str = "") -> str:
    text = PROGRAM.replace("STEP_S, BATCH = 0.01, 8", f"STEP_S, BATCH = {step_s}, 8  {more}")
    assert text != PROGRAM
    return text


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
    assert re.search(
        r"(?m)^\| <code>one&#124;device</code> \| 0\.[45]\d\d \| 0\.\d+ to 0\.\d+ \| slower than the bound \|$", text
    )
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
        ({"command": COMMAND, "against": "nowhere"}, "against: nowhere: not a git revision in the checkout; fetch it"),
        ({"command": COMMAND, "against": ""}, "against: : not a git revision in the checkout"),
        ({"command": COMMAND, "against": "--branches=*"}, "against: --branches=*: not a git revision"),
        ({"command": COMMAND, "env": "A B=c"}, "env: B=c: not the name of a variable"),
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


def test_a_folder_of_the_pull_request_does_not_become_the_base(runner: Runner) -> None:
    slow = runner.repository / "HEAD^1" / "train.py"
    slow.parent.mkdir(parents=True)
    slow.write_text(program(0.02))
    runner.commit(0.01, 0.02)
    assert runner.measure(command=COMMAND, options=OPTIONS) == 1
    assert runner.output()["verdict"] == "slower"


def test_a_repository_within_that_of_the_pull_request_does_not_have_the_base(runner: Runner) -> None:
    runner.commit(0.01, 0.02)
    before = f"{runner.repository}-before"
    runner.git("clone", "--quiet", ".", before)
    runner.git("clone", "--quiet", "--bare", ".", "bare")
    runner.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", before, "submodule")
    (runner.repository / "link").symlink_to(before)
    for folder, sentence in {
        "bare": "against: HEAD^1: not a git revision in the checkout (cannot use bare repository ",
        "submodule": "working-directory: submodule: a submodule, whose earlier commits are not the base",
        "link": f"working-directory: link: a symbolic link leads to {before}; give that folder itself",
    }.items():
        assert runner.measure(command=COMMAND, options=OPTIONS, working_directory=folder) == 2
        assert sentence in runner.summary.read_text()


def test_a_program_gets_no_file_and_no_secret_of_the_runner(runner: Runner) -> None:
    seen = runner.folder / "seen.json"
    runner.commit(0.01)
    text = program(0.01, f"; open({str(seen)!r}, 'w').write(json.dumps({{**os.environ}}))")
    text += "    for name in ('GITHUB_ENV', 'GITHUB_PATH', 'GITHUB_OUTPUT', 'GITHUB_STEP_SUMMARY'):\n"
    text += "        if name in os.environ:\n"
    text += "            print('verdict=not-slower', file=open(os.environ[name], 'a'))\n"
    (runner.repository / "train.py").write_text(text)
    runner.git("commit", "--quiet", "--all", "--message", "new")
    secret = dict.fromkeys(
        ("GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "WANDB_API_KEY", "TF_VAR_key", "TF_TOKEN_x"), "s3cret"
    )
    proxies = {"https_proxy": "http://u:s3cret@proxy", "http_proxy": "http://proxy"}
    common = {"TF_CPP_MIN_LOG_LEVEL": "2", "LC_TIME": "C", "DATA": "here", "PYTHONPATH": "."}
    variables = {**secret, **proxies, **common}
    assert runner.measure(variables, command=COMMAND, options=OPTIONS, fail_slower="", env="DATA\n  MISSING") == 0
    env = json.loads(seen.read_text())
    assert {name: env.get(name) for name in (*common, *proxies)} == {**common, **proxies, "https_proxy": None}
    assert "s3cret" not in env.values()
    assert not [name for name in env if name.startswith(("GITHUB_", "RUNNER_", "ACTIONS_", "INPUT_"))]
    assert not runner.variables.exists()
    assert not runner.path.exists()
    assert "verdict=not-slower" not in runner.outputs.read_text()


@pytest.mark.thorough
def test_modules_of_the_repository_are_not_those_of_the_action(runner: Runner) -> None:
    runner.commit(0.01)
    for name in ("secrets", "shlex", "typer", "pip/__init__", "pip/__main__", "tfdist/__init__"):
        file = runner.repository / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"raise SystemExit({name!r})")
    runner.git("add", ".")
    runner.git("commit", "--quiet", "--message", "modules")
    paths = f".:{runner.repository}"
    code = runner.measure({"PYTHONPATH": paths}, command=COMMAND, options=OPTIONS, fail_slower="")
    assert (code, runner.output()["verdict"]) == (0, "inconclusive"), runner.log
    action = runner.folder / "action"
    action.mkdir()
    (action / "setup.py").write_text("import setuptools; setuptools.setup(name='tiny', py_modules=['tiny'])")
    (action / "tiny.py").touch()
    offline = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_TARGET": str(runner.folder / "target"), "PIP_NO_INDEX": "1"}
    for path in ("", paths):
        assert runner.install(action, **offline, PYTHONPATH=path) == 0, runner.log
        assert "Successfully installed tiny" in runner.log


HOSTILE = {
    "reason": "a\n```\n<img src=x>\n@all ````\n",
    "versions": [
        {"arm": "<b>|\n@all `x` [y](z) #1", "ratio": 1.0, "low": 0.9, "high": 1.1, "verdict": "x", "too_slow": False}
    ],
}


def test_what_the_bench_prints_is_no_command_no_output_and_no_markdown(runner: Runner) -> None:
    lines = (
        "::error::1\n  ::add-mask::2\n##[group]3\n::stop-commands::4\n::4::\n::set-output name=verdict::5\n::error::6"
    )
    (runner.programs() / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # it has no tfdist
    (runner.programs() / "python").chmod(0o755)
    program = f"import sys\nsys.stderr.write({lines!r})\nprint({lines!r})\nprint({json.dumps(HOSTILE)!r})\n"
    call = shlex.join([sys.executable, "-c", program])  # a #! line takes no path with a space
    (runner.programs() / "tfdist").write_text(f"#!/bin/sh\nexec {call}\n")
    runner.commit(0.01, 0.01)
    assert runner.measure(command=COMMAND) == 0
    assert "::error::6" in runner.log
    assert runner.commands() == []
    assert runner.output().keys() == {"folder", "verdict", "exit-code"}
    assert len(runner.outputs.read_text().splitlines()) == 3
    assert runner.measure(command="python 'x\n::error::7") == 2
    assert "\n::error::7" in runner.log
    assert runner.commands() == []
    text = runner.summary.read_text()
    assert "`````\na\n```\n" in text
    arm = "&#60;b&#62;&#124;&#10;&#64;all &#96;x&#96; &#91;y&#93;&#40;z&#41; &#35;1"
    assert f"| <code>{arm}</code> | 1.000 |" in text
