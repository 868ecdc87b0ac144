"""Specs with another number of workers."""

from tfdist.jobs.resize import effect, resized
from tfdist.launch.restarts import SavedState
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

MULTI = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=3, batch_size=32, steps=300, learning_rate=0.1)
SAVED = SavedState(step=33, examples=33 * 96)


def test_the_remaining_examples_stay_and_so_do_batch_and_learning_rate():
    fewer = resized(MULTI, 2, 0, SAVED)
    assert (fewer.workers, fewer.batch_size, fewer.learning_rate) == (2, 32, 0.1)
    assert fewer.examples == 300 * 96
    assert fewer.steps == 33 + 401  # 267 steps of 96 examples are 400.5 of 64
    assert effect(MULTI, fewer, SAVED) == "global batch 64 instead of 96, 401 steps left instead of 267"


def test_back_to_the_first_number_of_workers():
    fewer = resized(MULTI, 2, 0, SAVED)
    later = SavedState(step=133, examples=33 * 96 + 100 * 64)
    again = resized(fewer, 3, 0, later)
    assert again.examples == fewer.examples
    assert again.steps == 133 + 201
    assert effect(fewer, again, later) == "global batch 96 instead of 64, 201 steps left instead of 301"


def test_from_the_start_without_a_checkpoint():
    assert resized(MULTI, 1, 0, SavedState()).steps == 900


def test_the_steps_of_a_parameter_server_training_stay():
    spec = TrainingSpec(strategy=StrategyName.PARAMETER_SERVER, workers=3, ps=2, steps=600)
    fewer = resized(spec, 2, 1, SavedState(200, 200 * 64))
    assert (fewer.workers, fewer.ps, fewer.steps, fewer.examples) == (2, 1, 600, None)
    assert effect(spec, fewer, SavedState()) == ""


def test_a_program_of_the_user_has_no_steps():
    choice = StrategyChoice(strategy=StrategyName.MULTI_WORKER, workers=3)
    assert resized(choice, 2, 0, SavedState()) == StrategyChoice(strategy=StrategyName.MULTI_WORKER, workers=2)
    assert effect(choice, resized(choice, 2, 0, SavedState()), SavedState()) == ""
