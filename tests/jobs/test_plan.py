"""From options to a plan: the user's own program, inherited tasks, and warnings about the hosts."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.jobs.choice import effect, resized
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.plan import busy_warnings, output_tasks, plan
from tfdist.jobs.request import Request, Size
from tfdist.launch.cluster import Cluster
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.supervision.restarts import SavedState
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

MULTI = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=3, batch_size=32, steps=300, learning_rate=0.1)
SAVED = SavedState(step=33, examples=33 * 96)


def test_the_remaining_examples_stay_and_so_do_batch_and_learning_rate():
    fewer = resized(MULTI, Size(2, 0, SAVED))
    assert (fewer.workers, fewer.batch_size, fewer.learning_rate) == (2, 32, 0.1)
    assert fewer.examples == 300 * 96
    assert fewer.steps == 33 + 401  # 267 steps of 96 examples are 400.5 of 64
    assert effect(MULTI, fewer, SAVED) == "global batch 64 instead of 96, 401 steps left instead of 267"


def test_back_to_the_first_number_of_workers():
    fewer = resized(MULTI, Size(2, 0, SAVED))
    later = SavedState(step=133, examples=33 * 96 + 100 * 64)
    again = resized(fewer, Size(3, 0, later))
    assert again.examples == fewer.examples
    assert again.steps == 133 + 201
    assert effect(fewer, again, later) == "global batch 96 instead of 64, 201 steps left instead of 301"


def test_steps_before_with_another_batch_count_what_they_had():
    fewer = resized(replace(MULTI, workers=2), Size(1, 0, SavedState(step=100, examples=100 * 128)))
    assert fewer.examples == 100 * 128 + 200 * 64
    assert fewer.steps == 100 + 400


def test_from_the_start_without_a_checkpoint():
    assert resized(MULTI, Size(1, 0, SavedState())).steps == 900


def test_the_steps_of_a_parameter_server_training_stay():
    spec = TrainingSpec(strategy=StrategyName.PARAMETER_SERVER, workers=3, ps=2, steps=600)
    fewer = resized(spec, Size(2, 1, SavedState(200, 200 * 64)))
    assert (fewer.workers, fewer.ps, fewer.steps, fewer.examples) == (2, 1, 600, None)
    assert effect(spec, fewer, SavedState()) == ""


def test_tasks_that_others_have_started_can_be_named():
    job = plan_job(Shape({"worker": RoleShape(1)}, True), Program(("true",), {}, "/"), {LOCAL: Machine((0,), ())})
    inherited = replace(job, cluster=Cluster({"worker": ("a:1", "b:1"), "ps": ("c:1",)}))
    assert output_tasks("worker-0,worker-1,ps", inherited) == {"worker-0"}
    assert output_tasks("worker-1,ps-0", inherited) == frozenset()
    with pytest.raises(TfdistError, match="no task or role 'worker-2'"):
        output_tasks("worker-2", inherited)


def test_a_program_of_the_user_has_no_steps():
    choice = StrategyChoice(strategy=StrategyName.MULTI_WORKER, workers=3)
    assert resized(choice, Size(2, 0, SavedState())) == StrategyChoice(strategy=StrategyName.MULTI_WORKER, workers=2)
    assert effect(choice, resized(choice, Size(2, 0, SavedState())), SavedState()) == ""


H1, H2 = Host("h1"), Host("h2")


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({}, None),
        ({"busy": 0.1}, None),
        ({"busy": 0.43}, "other programs on h2 are busy (43% of all cores): end them, or expect longer steps"),
        ({"cores_in_use": (3,)}, None),
        ({"cores_in_use": (1, 3)}, "other programs on h2 are pinned to core 1, as this job is: end them, or"),
        ({"cores_in_use": (0, 1), "busy": 0.9}, "other programs on h2 are pinned to cores 0, 1, as this job is"),
    ],
)
def test_other_programs_on_a_host_of_the_job_are_a_warning(values, warning):
    machines = {H1: Machine((0, 1, 2, 3), (), slots=1), H2: Machine((0, 1, 2, 3), (), slots=1, **values)}
    shape = Shape({"worker": RoleShape(2)}, has_cluster=True, devices=2, cores_per_device=1)
    found = busy_warnings(plan_job(shape, Program(("true",), {}, "/"), machines), machines)
    assert [text.startswith(warning) for text in found] == ([] if warning is None else [True])


KERAS = "tf.keras is tf_keras (Keras 2) in the program; choose Keras 3 with --keras 3"
TWO = {"strategy": "mirrored", "devices": 2}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    Path("plain.py").write_text("import tensorflow as tf")


@pytest.mark.parametrize(
    ("command", "choices", "gpus", "notes"),
    [
        (["python", "plain.py"], TWO, (), (KERAS,)),
        (["plain.py"], TWO, (), (KERAS,)),
        (["python", "-c", "pass"], TWO, (), (KERAS,)),
        (["python", "plain.py"], {"strategy": "one-device", "keras": "2"}, (), ()),
        (["python", "-c", "import keras"], {"strategy": "one-device"}, (), ()),
        (["python", "-c", "x = 1\nfrom keras.layers import Dense"], {"strategy": "one-device"}, (), ()),
        (["python", "-c", "import keras_tuner"], {"strategy": "one-device"}, (), (KERAS,)),
        (["true"], TWO, (), ()),
    ],
)
def test_a_python_program_is_told_what_it_may_not_expect(command, choices, gpus, notes):
    planned = plan(Request(choices, tuple(command)), {LOCAL: Machine((0, 1), gpus)})
    assert planned.notes == notes


def test_the_keras_of_the_environment_needs_no_note(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    planned = plan(Request({"strategy": "one-device"}, ("python", "plain.py")), {LOCAL: Machine((0,), ())})
    assert planned.notes == ()


@pytest.mark.parametrize(
    ("cluster", "seen"),
    [
        ({"worker": ["a:1", "b:1"]}, None),
        ({"chief": ["a:1"], "worker": ["b:1"]}, {"worker": ["a:1", "b:1"]}),
        ({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, None),
        ({"worker": ["a:1"], "evaluator": ["b:1"]}, None),
    ],
)
def test_an_inherited_evaluator_runs_the_users_program_only(cluster, seen, monkeypatch):
    tf_config = {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    machines = {LOCAL: Machine((0,), ("A100",))}
    planned = plan(Request({}, ("true",), inherit=Inherit().read(os.environ)), machines)
    (only,) = planned.job.plans
    env = planned.job.environment(only)
    assert (only.task.name, json.loads(env["TF_CONFIG"])) == ("evaluator-0", {**tf_config, "cluster": seen or cluster})
    assert planned.job.leading == ("evaluator-0",)
    with pytest.raises(TfdistError, match="TF_CONFIG"):
        plan(Request({"preset": "smoke"}, inherit=Inherit().read(os.environ)), machines)


@pytest.mark.parametrize(
    ("variables", "choices", "cores", "threads"),
    [
        ({}, {}, (0,), "1"),
        ({"TF_NUM_INTRAOP_THREADS": "4"}, {}, (), None),
        ({"TF_NUM_INTRAOP_THREADS": "4"}, {"cores_per_device": 2}, (0, 1), "2"),
        ({"TF_NUM_INTRAOP_THREADS": "4"}, {"intra_op_threads": 3}, (), "3"),
    ],
)
def test_an_inherited_task_with_thread_pools_of_its_scheduler_is_not_pinned(
    variables, choices, cores, threads, monkeypatch
):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    for name, value in {"TF_CONFIG": json.dumps(config), **variables}.items():
        monkeypatch.setenv(name, value)
    options = Request({"preset": "smoke", **choices}, inherit=Inherit().read(os.environ))
    planned = plan(options, {LOCAL: Machine((0, 1, 2, 3), ())})
    (only,) = planned.job.plans
    assert only.cores == cores
    assert only.program.env.get("TF_NUM_INTRAOP_THREADS") == threads
    assert planned.spec.cores_per_device == (len(cores) or None)
