"""The locked requirements; the wheel and the sdist, and the wheel installed in an empty virtual environment."""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CLEAN = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "TF_CONFIG")}
PYTHONS = ("3.10.13", "3.11.7", "3.12.1", "3.13.0")
LOCKED_LINE = r"#.*|(?P<package>[a-z0-9-]+==\S+( ; .+)?) \\|    --hash=sha256:[0-9a-f]{64}( \\)?"


def run(*argv: object, cwd: Path, umask: int = 0o22) -> str:
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=CLEAN, capture_output=True, text=True, umask=umask)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def locked_lines(name: str) -> list[re.Match[str] | None]:
    return [re.fullmatch(LOCKED_LINE, line) for line in (ROOT / f"requirements/{name}.txt").read_text().splitlines()]


def applies(requirement: Requirement, python: str) -> bool:
    """Whether a Python of this version on Linux needs it."""
    marks = {"python_version": python.rpartition(".")[0], "python_full_version": python, "sys_platform": "linux"}
    return requirement.marker is None or requirement.marker.evaluate(marks)


@pytest.mark.parametrize("name", ["build", "run", "cuda", "dev"])
def test_locked_requirements_are_versions_with_hashes_and_nothing_else(name: str) -> None:
    lines = locked_lines(name)
    assert None not in lines
    packages = [bool(line and line["package"]) for line in lines]
    assert any(packages)
    assert all(packages[i] + packages[i + 1] < 2 for i in range(len(packages) - 1))
    assert not packages[-1]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("extra", ["run", "cuda", "dev"])
def test_each_dependency_of_the_project_is_locked_in_one_version_that_it_allows(extra: str, python: str) -> None:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for name in dict.fromkeys(("run", extra)) for line in locked_lines(name)]
    packages = [Requirement(line["package"]) for line in lines if line and line["package"]]
    wanted = map(Requirement, [*project["dependencies"], *project["optional-dependencies"].get(extra, [])])
    for each in filter(lambda one: applies(one, python), wanted):
        found = [one for one in packages if one.name == canonicalize_name(each.name) and applies(one, python)]
        assert len(found) == 1, f"{each} is locked {len(found)} times; run make lock"
        (version,) = (one.version for one in found[0].specifier)
        assert each.specifier.contains(version), f"{each} is locked as {version}; run make lock"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with the wheel and the sdist, built from two clones by users with another umask."""
    outputs = []
    for name, umask in (("it's; one", 0o077), ("two", 0o002)):
        clone = tmp_path_factory.mktemp("built") / name
        run("git", "clone", "--quiet", ROOT, clone, cwd=ROOT, umask=umask)
        (clone / ".venv").symlink_to(sys.prefix)
        (clone / "launch" / "left_over.py").touch()
        run("make", "--old-file=install", "build", "DIST=out put", cwd=clone, umask=umask)
        outputs.append(clone / "out put")
    return outputs


def test_two_builds_of_a_commit_are_the_same_bytes(built: list[Path]) -> None:
    first, second = ({each.name: each.read_bytes() for each in folder.iterdir()} for folder in built)
    assert first.keys() == second.keys()
    assert len(first) == 2
    assert [name for name in first if first[name] != second[name]] == []


def test_the_sdist_is_as_old_as_its_commit_and_names_no_user(built: list[Path]) -> None:
    commit = int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    with tarfile.open(next(built[0].glob("tfdist-*.tar.gz"))) as sdist:
        members = sdist.getmembers()
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {(commit, 0, 0, "", "")}
    assert {oct(each.mode) for each in members} == {"0o755", "0o644"}
    assert not any("left_over" in each.name for each in members)


def test_the_wheel_names_the_licences_of_all_its_files(built: list[Path]) -> None:
    with zipfile.ZipFile(next(built[0].glob("tfdist-*.whl"))) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(path))
        names = {name.partition(".dist-info/licenses/")[2] for name in wheel.namelist()}
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    files = metadata.get_all("License-File")
    assert files == ["LICENSE", "models/datasets/digits/LICENSE"]
    assert set(files) <= names


@pytest.mark.thorough
def test_the_wheel_installs_in_an_empty_environment_and_runs(built: list[Path], tmp_path: Path) -> None:
    (wheel,) = built[1].glob("tfdist-*.whl")  # pip takes a semicolon in a path for a marker
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"tfdist"}
    data = (
        "py.typed",
        "bench/suites/smoke.toml",
        "bench/report/html/page.html.j2",
        "models/datasets/digits/digits.npz",
        "launch/agent_program/agent.py",
    )
    assert {f"tfdist/{name}" for name in data} <= set(names)

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps")
    locked = ("--require-hashes", "--requirement")
    run(*install, *locked, ROOT / "requirements/build.txt", cwd=tmp_path)
    run(*install, "--no-build-isolation", *locked, ROOT / "requirements/run.txt", cwd=tmp_path)
    run(*install, wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    tfdist = python.with_name("tfdist")
    assert "launch" in run(tfdist, "--help", cwd=tmp_path)
    assert "central-storage" in run(tfdist, "strategies", cwd=tmp_path)
    assert run(tfdist, "--version", cwd=tmp_path).startswith("tfdist 0.")
    assert "arm" in run(python, "-m", "tfdist.cli", "bench", "--suite", "smoke", "--dry-run", cwd=tmp_path)
    assert "worker-1" in run(python, "-m", "tfdist.cli", "launch", "--dry-run", "--workers", "2", cwd=tmp_path)
