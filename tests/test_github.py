"""Workflows and issue forms, as GitHub reads them. `make release-check` validates them by their schemas."""

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
JOBS = [(f"{name}/{job}", each) for name, workflow in WORKFLOWS.items() for job, each in workflow["jobs"].items()]
STEPS = [(f"{name}/{at}", step) for name, job in JOBS for at, step in enumerate(job["steps"])]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def test_each_push_is_checked_on_the_pythons_that_the_package_names():
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [found[1] for each in project["classifiers"] if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", each))]
    allowed = SpecifierSet(project["requires-python"])
    assert named == [f"3.{minor}" for minor in range(30) if allowed.contains(f"3.{minor}.99")]
    assert WORKFLOWS["check"]["jobs"]["check"]["strategy"]["matrix"]["python"] == named
    others = (str(step["with"]["python-version"]) for _, step in STEPS if "setup-python" in step.get("uses", ""))
    assert set(others) <= {*named, "${{ matrix.python }}"}


@pytest.mark.parametrize(("name", "step"), [each for each in STEPS if "uses" in each[1]], ids=str)
def test_a_foreign_action_has_a_version(name, step):
    assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", step["uses"])


@pytest.mark.parametrize(("name", "step"), [each for each in STEPS if "run" in each[1]], ids=str)
def test_a_step_runs_a_target_a_module_or_a_program_that_exists(name, step):
    assert "${{" not in step["run"], (
        "expressions in a shell can run what a branch's name says; use an environment variable"
    )
    words = shlex.split(step["run"].removeprefix("sudo --preserve-env=PATH HOSTS_REQUIRED=1 "))
    if words[0] == ".ci/run":
        (target,) = words[1:] or ["check"]
        matrix = WORKFLOWS["nightly"]["jobs"]["tests"]["strategy"]["matrix"]["target"]
        for each in matrix if target == "$TARGET" else [target]:
            assert re.search(rf"^{each}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif "-m" in words:
        assert (ROOT / words[words.index("-m") + 1].replace(".", "/")).with_suffix(".py").is_file()
    else:
        assert words[0] in ("mkdir", "gh", "git", "apt-get")


@pytest.mark.parametrize(("name", "job"), JOBS, ids=str)
def test_a_job_has_a_time_limit_and_no_rights_but_those_it_names(name, job):
    assert job["timeout-minutes"] <= 180
    workflow = WORKFLOWS[name.partition("/")[0]]
    assert "permissions" in workflow
    assert set(workflow["permissions"].items()) <= {("contents", "read")}
    assert ("id-token" in job.get("permissions", {})) == (
        name in ("release/publish", "release/announce", "docs/deploy")
    )


def test_only_the_wheel_and_the_sdist_are_published_and_after_the_checks():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["publish"]["needs"] == ["check", "build", "release-check"]
    assert jobs["announce"]["needs"] == "publish"
    assert jobs["publish"]["environment"] == "pypi"
    moved = next(step["run"] for step in jobs["publish"]["steps"] if "run" in step)
    assert shlex.split(moved)[3:] == ["mv", "release/*.whl", "release/*.tar.gz", "dist/"]
    assert ".ci/run release-check" in [step.get("run") for step in jobs["release-check"]["steps"]]
    assert ".ci/run sbom" in [step.get("run", "").partition(" #")[0] for step in jobs["build"]["steps"]]
    assert jobs["check"]["steps"] == [
        step
        if "with" not in step or "python-version" not in step["with"]
        else {**step, "with": {"python-version": "3.11"}}
        for step in WORKFLOWS["check"]["jobs"]["check"]["steps"]
    ]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_the_fields_of_an_issue_form_have_ids_and_labels_of_their_own(path):
    """GitHub requires it, and its schema does not."""
    fields = [each for each in yaml.safe_load(path.read_text())["body"] if each["type"] != "markdown"]
    assert fields
    for values in ([each["id"] for each in fields], [each["attributes"]["label"].lower() for each in fields]):
        assert len(values) == len(set(values))
        assert not any("password" in each for each in values), "GitHub refuses this word"
