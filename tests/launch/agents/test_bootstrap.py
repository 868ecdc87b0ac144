import base64
import importlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tfdist
from tfdist.launch.agents.bootstrap import agent_source, package_text
from tfdist.launch.hosts.host import Host

IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib
for name in ("launch.agent_program.agent", "launch.agent_program.probe", "launch.cluster", "models.spec", "strategies.catalog", "models.record"):
    module = importlib.import_module("tfdist." + name)
    assert module.__file__.startswith(sys.argv[1]), module.__file__
import tfdist
print(tfdist.__version__)
"""


@pytest.fixture
def unpacked(tmp_path):
    """The folder of the unpacked archive."""
    folder = tmp_path / "an agent's; folder"
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(package_text()))) as archive:
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on, which Debian 12 lacks
        archive.extractall(folder, **filters)
    return folder


@pytest.mark.parametrize("name", ["cli", "launch", "strategies", "models", "bench"])
def test_the_archive_has_every_file_of_every_package(unpacked, name):
    def files(folder):
        paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(folder): path.read_bytes() for path in paths}

    archived = files(unpacked / "tfdist" / name)
    assert archived == files(Path(importlib.import_module(f"tfdist.{name}").__file__).parent)
    assert Path("__init__.py") in archived


def test_the_archive_has_data_files(unpacked):
    assert list((unpacked / "tfdist/bench/suites").glob("*.toml"))
    assert list((unpacked / "tfdist/models/datasets/digits").iterdir())


def test_the_archive_can_be_imported_where_tfdist_is_not_installed(unpacked):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT, str(unpacked)], capture_output=True, text=True, env=environ, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == tfdist.__version__


def test_the_text_has_no_whitespace_and_fits_into_a_pipe():
    assert package_text().isascii()
    assert not any(map(str.isspace, package_text()))
    assert len(package_text()) < 1 << 20


def test_the_agents_program_is_in_memory_once_for_all_hosts():
    source = agent_source(Host("h1"))
    length, _, program = source.partition(b"\n")
    assert int(length) == len(program)
    assert agent_source(Host("h2")) is source
