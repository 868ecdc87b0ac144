"""docs/support.md and docs/offline.md state what the code, the package and the container have."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from lab.schemas import schemas
from tfdist.bench import folder
from tfdist.bench.collectives import results
from tfdist.bench.report import build
from tfdist.launch.runs.launcher import this_launcher
from tfdist.models import checkpoints, record
from tfdist.strategies import choice

ROOT = Path(__file__).parents[1]
SUPPORT = (ROOT / "docs/support.md").read_text(encoding="utf-8")
OFFLINE = (ROOT / "docs/offline.md").read_text(encoding="utf-8")
ROWS = re.findall(r"(?m)^\| (`.*?) \| (\d+) \|", SUPPORT)
SCHEMAS = schemas()
FORMATS = {
    "records.jsonl": record.FORMAT,
    "turns.jsonl": record.FORMAT,
    "bench.json": folder.FORMAT,
    "report.json": build.FORMAT,
    "collectives.json": results.FORMAT,
    "step-N.json": checkpoints.FORMAT,
    "spec.json": choice.FORMAT,
    "TFDIST_STRATEGY_CHOICE": choice.FORMAT,
    "events.jsonl": SCHEMAS["events.schema.json"]["oneOf"][0]["properties"]["format"]["const"],
    "outcome.json": SCHEMAS["outcome.schema.json"]["properties"]["format"]["const"],
    "launcher.json": this_launcher().to_json()["format"],
}


def test_formats_of_files_are_those_of_the_code():
    named = {name: int(number) for names, number in ROWS for name in re.findall(r"`([^`]+)`", names)}
    assert named == FORMATS


def project():
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_pythons_and_tensorflows_are_those_of_the_package():
    low, high = re.search(r"\| Python \| 3\.(\d+) to 3\.(\d+) \|", SUPPORT).groups()
    assert project()["requires-python"] == f">=3.{low},<3.{int(high) + 1}"
    low, high = re.search(r"\| TensorFlow \| 2\.(\d+) and 2\.(\d+) \|", SUPPORT).groups()
    assert f"tensorflow>=2.{low},<2.{int(high) + 1}" in [
        each.split(";")[0].strip() for each in project()["dependencies"]
    ]


@pytest.mark.parametrize("name", ["build", "run", "cuda"])
def test_what_is_installed_without_internet_is_locked(name):
    assert f"requirements/{name}.txt" in OFFLINE
    assert (ROOT / f"requirements/{name}.txt").is_file()


def test_the_apptainer_image_has_the_base_of_the_container():
    (base,) = re.findall(r"(?m)^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert f"    Bootstrap: docker\n    From: {base}\n" in OFFLINE
    assert f"docker save --output base.tar {base}" in OFFLINE
