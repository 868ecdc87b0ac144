"""An evaluator beside a training: it loads what every strategy saves, and ends with it."""

from dataclasses import replace

import pytest

from tfdist.jobs.tasks import plan_training
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import create_run_dir
from tfdist.launch.runs.writer import RunWriter
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.record import Evaluation
from tfdist.models.run import run_training
from tfdist.strategies.options import Keras, StrategyName

from .training import MOBILE, TINY

LEARNING = replace(TINY, learning_rate=0.05, steps=60, evaluate=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "spec",
    [
        replace(LEARNING, strategy=StrategyName.MIRRORED, devices=2),
        replace(LEARNING, strategy=StrategyName.MULTI_WORKER, workers=2),
        replace(LEARNING, strategy=StrategyName.PARAMETER_SERVER, ps=2, variable_partitioner="fixed:2"),
        replace(LEARNING, strategy=StrategyName.PARAMETER_SERVER, ps=2, variable_partitioner="fixed:2", ema=0.9),
        replace(MOBILE, strategy=StrategyName.MIRRORED, devices=2, keras=Keras.THREE, steps=12, evaluate=True),
    ],
    ids=lambda spec: f"{spec.strategy}-keras{spec.keras}-ema{spec.ema}",
)
def test_the_last_evaluation_is_the_accuracy_that_the_training_measures(spec, tmp_path):
    checkpointing = Checkpointing(str(tmp_path / "checkpoints"), every_steps=spec.steps // 3)
    job = plan_training(spec, local_machines(), env=checkpointing.to_env(), evaluator=True)
    with RunWriter(create_run_dir(tmp_path, "run")) as writer:
        outcome, record = run_training(job, spec, writer, Policy(timeout_s=500.0), {}, arm="test")
    assert outcome.exits["evaluator-0"].code == 0, outcome.reason
    assert [each.step for each in record.evaluations] == [spec.steps // 3 * n for n in (1, 2, 3)]
    accuracy = record.ranks[0].accuracy
    assert accuracy is not None
    assert record.evaluations[-1] == Evaluation(spec.steps, pytest.approx(accuracy, abs=0.006))
