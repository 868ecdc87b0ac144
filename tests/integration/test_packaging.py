"""The wheel, installed in an empty virtual environment."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "TF_CONFIG")}


def run(*argv: object, cwd: Path) -> str:
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=CLEAN, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_wheel_installs_in_an_empty_environment_and_runs(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("tfdist-*.whl")
    (sdist,) = tmp_path.glob("tfdist-*.tar.gz")
    assert sdist.stat().st_size > 0
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"tfdist"}
    data = (
        "py.typed",
        "bench/suites/smoke.toml",
        "bench/report/html/page.html.j2",
        "models/datasets/digits/digits.npz",
        "launch/agents/program/agent.py",
    )
    assert {f"tfdist/{name}" for name in data} <= set(names)

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt")
    run(python, *install, wheel, cwd=tmp_path)
    tfdist = python.with_name("tfdist")
    assert "launch" in run(tfdist, "--help", cwd=tmp_path)
    assert "central-storage" in run(tfdist, "strategies", cwd=tmp_path)
    assert run(tfdist, "--version", cwd=tmp_path).startswith("tfdist 0.")
    assert "arm" in run(python, "-m", "tfdist.cli", "bench", "--suite", "smoke", "--dry-run", cwd=tmp_path)
    assert "worker-1" in run(python, "-m", "tfdist.cli", "launch", "--dry-run", "--workers", "2", cwd=tmp_path)
