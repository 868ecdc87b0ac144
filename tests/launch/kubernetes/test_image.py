"""The Dockerfile: what pods of a manifest expect of an image, and what it is built from."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tfdist.launch.kubernetes.manifest import manifest
from tfdist.launch.kubernetes.options import VOLUME

from .kubelet import pods
from .workloads import options, workload

ROOT = Path(__file__).parents[3]
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")


def stages():
    """Instructions by stage, each with those of the stage that it is built from: `{"cpu": [("RUN", "..."), ...]}`."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif line and found:
            found[name].append((word, rest))
    return found


STAGES = stages()
IMAGES = ("cpu", "cuda")


def value(stage, word):
    """The last instruction of this kind; the one that holds."""
    return [rest for each, rest in STAGES[stage] if each == word][-1]


def pod():
    (first, *_) = pods(manifest(workload(), options(pvc="data")))
    return first


def test_an_image_without_a_target_is_for_cpus():
    assert [*STAGES][-1] == "cpu"


@pytest.mark.parametrize("image", IMAGES)
def test_the_user_is_that_of_the_pods(image):
    context = pod().spec["securityContext"]
    user, group = context["runAsUser"], context["runAsGroup"]
    assert value(image, "USER") == f"{user}:{group}"  # a name would fail runAsNonRoot
    assert STAGES[image][-1][0] == "USER"
    assert f"useradd --uid {user} --gid {group} " in value("image", "RUN")


@pytest.mark.parametrize("image", IMAGES)
def test_the_entry_point_is_the_command_of_the_pods(image):
    assert json.loads(value(image, "ENTRYPOINT")) == pod().container["command"]
    path = next(rest for word, rest in STAGES[image] if word == "ENV" and rest.startswith("PATH="))
    installed = [rest.split()[-1] for word, rest in STAGES[image] if word == "COPY" and "--from=tfdist" in rest]
    assert [path.split(":")[0]] == [f"PATH={folder}/bin" for folder in installed]


@pytest.mark.parametrize("image", IMAGES)
def test_the_working_folder_belongs_to_the_user_and_is_not_covered_by_the_volume(image):
    folder = value(image, "WORKDIR")
    user = pod().spec["securityContext"]["runAsUser"]
    assert f"install --directory --owner={user} --group={user} {folder}" in value("image", "RUN")
    targets = [rest.split()[-1] for word, rest in STAGES[image] if word == "COPY"]
    assert not any(f"{path}/".startswith(f"{VOLUME}/") for path in (folder, *targets))


@pytest.mark.parametrize("image", IMAGES)
def test_output_is_not_buffered(image):
    assert "PYTHONUNBUFFERED=1" in value(image, "ENV")


def test_only_locked_packages_are_installed():
    lines = [
        line.strip() for stage in STAGES.values() for word, rest in stage if word == "RUN" for line in rest.split("&&")
    ]
    installs = {line for line in lines if line.startswith("pip install")}
    assert len(installs) == 4
    for line in installs:
        assert "--no-cache-dir --no-deps" in line
        locked = re.search(r" -r (?:/tmp/)?(\w+\.txt)$", line)
        assert ("--require-hashes" in line) == bool(locked)
        if locked:
            assert (ROOT / "requirements" / locked[1]).is_file()
        else:
            assert line.endswith("--no-build-isolation --prefix /package .")


def is_sent(path):
    """Whether a file of the repository is part of the build's context: the last pattern that matches decides."""
    sent = True
    for pattern in filter(None, IGNORED):
        name = pattern.lstrip("!")
        if not pattern.startswith("#") and (name == "*" or path == name or path.startswith(f"{name}/")):
            sent = pattern.startswith("!")
    return sent


def test_the_context_has_what_the_package_is_built_from_and_nothing_else():
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    data = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, setuptools = data["project"], data["tool"]["setuptools"]
    needed = ["pyproject.toml", project["readme"], *project["license-files"], *setuptools["package-dir"].values()]
    needed += [f"requirements/{name}.txt" for name in ("build", "run", "cuda")]
    assert [path for path in needed if not is_sent(path)] == []
    allowed = {path.split("/")[0] for path in needed}
    assert {path.name for path in ROOT.iterdir() if is_sent(path.name)} == allowed
