"""A training task: windows, phases, precision, placement, refusals."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.launch.agent_program.template import module_command
from tfdist.launch.agents.template import VARIABLE
from tfdist.models.record import RankRecord
from tfdist.models.spec import Optimizer
from tfdist.strategies.options import Api, Keras, Placement, Precision, StrategyName

from .training import MOBILE, TINY, losses, train, train_all

PS = replace(TINY, strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=2)


def steps(windows):
    return [window.steps for window in windows]


def scheduled(spec, folder) -> RankRecord:
    (chief,) = train(spec, folder)
    return chief


@pytest.mark.parametrize(
    "spec",
    [
        replace(TINY, strategy=StrategyName.MULTI_WORKER, workers=2),
        *(
            pytest.param(replace(MOBILE, strategy=strategy, workers=2), marks=pytest.mark.thorough)
            for strategy in (StrategyName.MULTI_WORKER, StrategyName.INDEPENDENT)
        ),
    ],
)
def test_forked_and_executed_tasks_train_alike(spec, tmp_path, monkeypatch, survivors):
    forked = train(spec, tmp_path / "forked")
    monkeypatch.setenv(VARIABLE, "0")
    executed = train(spec, tmp_path / "executed")
    assert [losses(rank) for rank in forked] == [losses(rank) for rank in executed]
    of_forked, of_executed = ([rank.phases_s["import"] for rank in ranks] for ranks in (forked, executed))
    assert 2 * max(of_forked) < min(of_executed)
    same = (
        "task",
        "replicas",
        "software",
        "environment",
        "scheduling",
        "examples_applied",
        "updates_applied",
    )
    assert [[getattr(rank, name) for name in same] for rank in forked] == [
        [getattr(rank, name) for name in same] for rank in executed
    ]
    # which worker gets which core depends on what other programs use
    assert sorted(rank.affinity for rank in forked) == sorted(rank.affinity for rank in executed)
    assert survivors() == []


@pytest.mark.thorough
def test_parameter_server_applies_every_scheduled_step(tmp_path):
    chief = scheduled(replace(PS, steps=200, steps_per_window=20, warmup_steps=20, evaluate=True), tmp_path)
    assert chief.task == "chief-0"
    assert chief.updates_applied == 200
    assert chief.examples_applied == 200 * PS.batch_size
    windows = (*chief.warmup, *chief.windows)
    # the workers have steps before and after the timed windows, and take some while an edge is read
    assert 120 <= sum(steps(windows)) < 200
    assert sum(window.examples for window in windows) == sum(steps(windows)) * PS.batch_size
    assert chief.accuracy is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "spec",
    [
        replace(PS, variable_partitioner="fixed:2", placement=Placement.GREEDY, dataset="synthetic"),
        replace(PS, api=Api.FIT, variable_partitioner="min-size:256", placement=Placement.GREEDY, evaluate=True),
    ],
    ids=lambda spec: f"{spec.api}-{spec.dataset}",
)
def test_partitioned_and_greedily_placed_variables_train(spec, tmp_path):
    chief = scheduled(replace(spec, steps=20), tmp_path)
    assert chief.updates_applied == 20


@pytest.mark.thorough
def test_precisions_xla_and_optimizers_train(tmp_path):
    half = replace(
        TINY, precision=Precision.MIXED_FLOAT16, strategy=StrategyName.MIRRORED, devices=2, learning_rate=0.01
    )
    specs = [
        half,
        replace(TINY, precision=Precision.MIXED_BFLOAT16, api=Api.FIT, keras=Keras.THREE),
        replace(TINY, precision=Precision.MIXED_FLOAT16, keras=Keras.THREE, optimizer=Optimizer.SGD),
        replace(TINY, xla=True, optimizer=Optimizer.SGD, strategy=StrategyName.MIRRORED, devices=2),
        replace(TINY, optimizer=Optimizer.SGD),
        replace(TINY, dataset="synthetic", warmup_steps=0, steps=7),
    ]
    (half,), (bfloat,), (half3,), (xla,), (plain,), (cold,) = train_all(specs, tmp_path)
    for rank in (half, bfloat, half3, xla, plain):
        assert rank.updates_applied == TINY.steps
        assert all(0 < loss < 5 for loss in losses(rank))
    assert losses(plain)[0] != losses(half)[0]
    assert cold.warmup == ()
    assert steps(cold.windows) == [2, 2, 2, 1]


def refused(**values) -> tuple[str, float]:
    """The message of a manually started task with this spec, and the seconds until it exits."""
    spec = replace(TINY, **values)
    started = time.monotonic()
    command = [sys.executable, *module_command("tfdist.models.training.task")]
    done = subprocess.run(command, env={**os.environ, **spec.to_env()}, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("tfdist: ")]
    assert "Traceback" not in done.stderr
    return message, time.monotonic() - started


def test_an_impossible_training_is_refused_with_one_message(tmp_path):
    message, seconds = refused(dataset="tfds:cats_vs_dogs", data_dir=str(tmp_path))
    assert "download_and_prepare" in message
    assert seconds < 20
    assert "has 10 classes" in refused(dataset="digits", classes=3)[0]
    assert "held-out" in refused(dataset="synthetic", evaluate=True)[0]


@pytest.mark.skipif(Path("/dev/accel0").exists() or "TPU_NAME" in os.environ, reason="there is a TPU")
def test_a_missing_tpu_is_refused_with_one_message():
    message, seconds = refused(strategy=StrategyName.TPU)
    assert "no TPU here" in message
    assert seconds < 120


def test_a_spec_of_another_format_is_refused():
    command = [sys.executable, *module_command("tfdist.models.training.task")]
    env = {**os.environ, "TFDIST_SPEC": json.dumps({"format": 99})}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, "format 99" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
