"""The order in which an evaluator takes checkpoints, and when it ends."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tfdist.models.checkpoints import CheckpointList, Manifest
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.evaluate import new_checkpoints

pytestmark = pytest.mark.slow

SPEC = TrainingSpec(steps=300)


def saved(*steps, final=None, attempt=0):
    """The listing of a folder with checkpoints of these steps."""
    manifests = [Manifest(step, step * 64, {}, {}, attempt, final=step == final) for step in steps]
    return CheckpointList(tuple(reversed(manifests)), {})


def evaluated(*listings, spec=SPEC):
    """The steps that are evaluated if the evaluator sees these listings one after the other, and how often it waits."""
    left, waits = list(listings), []

    def look():
        if len(left) > 1:
            return left.pop(0)
        return left[0]

    def wait():
        waits.append(None)
        assert len(waits) < 10, "it does not end"

    return [manifest.step for manifest in new_checkpoints(spec, look, wait)], len(waits)


def test_it_waits_for_the_first_checkpoint_and_ends_after_the_final_one():
    none, first, both = saved(), saved(100), saved(100, 300, final=300)
    assert evaluated(none, none, none, first, first, both) == ([100, 300], 3)


def test_the_oldest_is_evaluated_first_and_deleted_ones_are_skipped():
    three, later = saved(100, 200, 300), saved(300, 400, 500, final=500)
    assert evaluated(three, three, later, spec=replace(SPEC, steps=500))[0] == [100, 300, 400, 500]


def test_a_step_that_is_saved_again_after_a_restart_is_evaluated_again():
    before = saved(100)
    after = CheckpointList((*saved(300, final=300, attempt=1).complete, *saved(100, attempt=1).complete), {})
    assert evaluated(before, before, after)[0] == [100, 100, 300]


def test_the_end_of_a_shorter_training_is_not_the_end_of_a_resumed_one():
    short, resumed = saved(200, final=200), saved(200, 300, final=300)
    final_of_short = CheckpointList((*saved(300, final=300).complete, *short.complete), {})
    assert evaluated(short, short, final_of_short)[0] == [200, 300]
    assert evaluated(resumed, resumed)[0] == [200, 300]


@pytest.mark.parametrize(("examples", "steps"), [(200 * 64, [200]), (300 * 64, [200, 300])])
def test_after_a_change_of_workers_the_number_of_examples_counts(examples, steps):
    short = saved(200, final=200)
    longer = CheckpointList((*saved(300, final=300).complete, *short.complete), {})
    assert evaluated(short, short, longer, spec=replace(SPEC, examples=examples))[0] == steps


def test_a_final_checkpoint_that_appears_is_the_end_even_with_fewer_steps_than_planned():
    assert evaluated(saved(), saved(150, final=150))[0] == [150]


PRIORITY = """
import os, sys
from tfdist.models.training.evaluate import lower_priority
lower_priority()
sys.stdout.write(str(os.nice(0)))
"""


@pytest.mark.thorough
def test_an_evaluator_has_a_lower_priority():
    result = subprocess.run([sys.executable, "-c", PRIORITY], capture_output=True, text=True, start_new_session=True)
    assert int(result.stdout) == min(19, os.nice(0) + 10)
