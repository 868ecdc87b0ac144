"""The options of the gradient exchange: the same training in packs, another in a smaller type, and overflows agree."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.strategies.options import GradientDtype, Precision, StrategyName

from .training import TINY, losses, train_all

pytestmark = pytest.mark.thorough
BASE = replace(TINY, steps=5, steps_per_window=1, warmup_steps=1, learning_rate=0.01)
PROGRAM = Path(__file__).with_name("overflow.py")
OPTIONS = (
    {},
    {"bytes_per_pack": 1024},
    {"gradient_dtype": GradientDtype.BFLOAT16},
    {"gradient_dtype": GradientDtype.FLOAT16},
    {"precision": Precision.MIXED_FLOAT16},
    {"precision": Precision.MIXED_FLOAT16, "gradient_dtype": GradientDtype.FLOAT16},
)


@pytest.mark.parametrize(
    "how", [{"strategy": StrategyName.MIRRORED, "devices": 2}, {"strategy": StrategyName.MULTI_WORKER, "workers": 2}]
)
def test_options_of_the_exchange(how, tmp_path):
    """In packs the same sums are computed; in a smaller type nearly the same, and not by accident equal."""
    runs = train_all([replace(BASE, **how, **options) for options in OPTIONS], tmp_path)
    assert all(len({losses(rank)[-1] for rank in ranks}) == 1 for ranks in runs)
    default, packs, bfloat16, float16, mixed, mixed_float16 = (losses(ranks[0]) for ranks in runs)
    assert len(default) == 5
    assert packs == pytest.approx(default, rel=1e-6)
    assert bfloat16 == pytest.approx(default, rel=1e-2)
    assert float16 == pytest.approx(default, rel=1e-3)
    assert default[-1] not in (bfloat16[-1], float16[-1])
    assert mixed_float16 == pytest.approx(mixed, rel=1e-2)


@pytest.mark.parametrize("options", [["mirrored", "--devices"], ["multiworker", "--workers"]], ids=lambda each: each[0])
def test_all_replicas_skip_a_step_whose_exchange_overflows(options, tmp_path):
    strategy, count = options
    command = ["launch", "--strategy", strategy, count, "2", "--", "python", str(PROGRAM)]
    done = subprocess.run([sys.executable, "-m", "tfdist.cli", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    ranks = [json.loads(line) for line in re.findall(r"replicas (.*)$", done.stdout, re.MULTILINE)]
    replicas = [replica for rank in ranks for replica in rank["replicas"]]
    assert len(replicas) == 2
    assert [each for rank in ranks for each in rank["exchanged"]] == ["float16"] * 4  # a pack for each weight
    for replica in replicas:
        assert replica == {
            "finite": {"weight": -3.0, "scale": 32768.0, "iterations": 1},
            "overflow": {"weight": -3.0, "scale": 16384.0, "iterations": 2},
        }
