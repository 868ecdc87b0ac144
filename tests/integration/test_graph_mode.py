"""between-graph and in-graph: the same training as tf.distribute's, every update counted, and what restarts keep."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.models.training.moving_averages import saved
from tfdist.strategies.options import Placement, StrategyName

from .test_checkpoints import EVERY, LONG, SPEC, killed_at, run, succeeded, updates
from .training import MOBILE, TINY, losses, train_all

pytestmark = pytest.mark.thorough

FIVE: dict[str, Any] = {"steps": 5, "steps_per_window": 1, "warmup_steps": 1, "learning_rate": 0.01}
ASYNC: dict[str, Any] = {"strategy": StrategyName.BETWEEN_GRAPH, "workers": 2, "ps": 1}
SYNC = {**ASYNC, "sync": True}
IN_GRAPH: dict[str, Any] = {"strategy": StrategyName.IN_GRAPH, "workers": 2}
MULTI_WORKER: dict[str, Any] = {"strategy": StrategyName.MULTI_WORKER, "workers": 2}


def losses_of(specs: list[TrainingSpec], folder) -> list[list[float]]:
    return [losses(ranks[0]) for ranks in train_all(specs, folder)]


@pytest.mark.core
def test_synchronous_graphs_compute_the_losses_of_multiworker(tmp_path):
    base = replace(TINY, **FIVE)
    specs = [replace(base, **how) for how in (MULTI_WORKER, SYNC, IN_GRAPH)]
    multi, sync, in_graph = losses_of(specs, tmp_path)
    assert sync == pytest.approx(multi, rel=1e-4)
    assert in_graph == pytest.approx(multi, rel=1e-4)
    assert len({round(loss, 6) for loss in multi}) > 1


def test_they_do_so_with_sgd_too(tmp_path):
    base = replace(TINY, **FIVE)
    specs = [replace(base, **SYNC, optimizer=Optimizer.SGD), replace(base, **MULTI_WORKER, optimizer=Optimizer.SGD)]
    sync, multi, other = losses_of([*specs, replace(base, **MULTI_WORKER)], tmp_path)
    assert sync == pytest.approx(multi, rel=1e-4)
    assert sync[-1] != pytest.approx(other[-1], rel=1e-4)  # the tolerance above is tight enough


def test_mobilenet_v2_and_shards_compute_them_too(tmp_path):
    """Everywhere a replica normalizes its own part of the batch."""
    base = replace(MOBILE, **{**FIVE, "learning_rate": 0.001}, evaluate=True)
    greedy = {**SYNC, "ps": 2, "placement": Placement.GREEDY}
    shards = {**IN_GRAPH, "ps": 2, "variable_partitioner": "fixed:2"}
    specs = [replace(base, **how) for how in (MULTI_WORKER, greedy, shards)]
    multi, sync, in_graph = losses_of(specs, tmp_path)
    assert sync == pytest.approx(in_graph, rel=1e-4)
    assert sync[:4] == pytest.approx(multi[:4], rel=1e-3)  # Adam makes large steps of small rounding errors


def test_every_asynchronous_step_is_applied_once(tmp_path):
    base = replace(TINY, **ASYNC, steps=200, steps_per_window=20, warmup_steps=20, evaluate=True, count_updates=True)
    specs = [base, replace(base, workers=3, ps=2, variable_partitioner="min-size:256"), replace(base, workers=1)]
    for (chief,) in train_all(specs, tmp_path):
        assert chief.task == "chief-0"
        assert (chief.updates_applied, chief.examples_applied) == (200, 200 * base.batch_size)
        assert chief.accuracy is not None


def test_a_step_does_not_wait_for_a_slow_backup_worker(tmp_path):
    slow = {**SYNC, "workers": 3, "slow_worker": 2, "slow_ms": 150.0}
    base = replace(TINY, steps=40, steps_per_window=10, warmup_steps=2)
    specs = [replace(base, **slow), replace(base, **slow, backup_workers=1)]
    (all_three,), (fastest_two,) = train_all(specs, tmp_path)
    assert (all_three.updates_applied, all_three.examples_applied) == (40, 40 * 3 * 8)
    assert (fastest_two.updates_applied, fastest_two.examples_applied) == (40, 40 * 2 * 8)
    seconds = [sum(window.elapsed_s for window in rank.windows) for rank in (all_three, fastest_two)]
    assert seconds[0] > 38 * 0.15
    assert seconds[1] < seconds[0] / 2


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory):
    """The losses of a training that loses no task, by step; trained once for each way."""

    @cache
    def losses_by_step(spec: TrainingSpec) -> dict[int, float]:
        folder = tmp_path_factory.mktemp("plain")
        saving = Checkpointing(str(folder / "saved"), every_steps=EVERY)
        return succeeded(run(spec, folder / "runs", saving)).losses

    return losses_by_step


@pytest.mark.parametrize(
    ("how", "victim"),
    [
        pytest.param(ASYNC, "chief-0", id="async-chief", marks=pytest.mark.core),
        pytest.param(SYNC, "chief-0", id="sync-chief"),
        pytest.param(SYNC, "ps-0", id="sync-ps"),
        pytest.param(IN_GRAPH, "worker-1", id="in-graph-worker"),
    ],
)
def test_a_job_that_loses_a_task_continues_from_its_checkpoint(how, victim, tmp_path, plain_losses):
    spec = replace(SPEC, steps=LONG, **how)
    saving = Checkpointing(str(tmp_path / "saved"), every_steps=EVERY)
    done = succeeded(run(spec, tmp_path / "runs", saving, killed_at("chief-0", 14, victim), restarts=1))
    (resumed,) = done.named("resumed")
    assert resumed["step"] in range(12, LONG, EVERY)
    batch = spec.global_batch_size if spec.synchronous else spec.batch_size
    assert updates(done) == {(LONG, LONG * batch)}
    assert done.saved[-1] == LONG
    if spec.synchronous:
        plain = plain_losses(spec)
        compared = plain.keys() & done.losses.keys()
        assert LONG in compared
        for step in compared:
            assert done.losses[step] == pytest.approx(plain[step], rel=1e-4), step


@pytest.mark.parametrize("how", [ASYNC, SYNC], ids=["async", "sync"])
def test_a_worker_that_was_killed_rejoins(how, tmp_path):
    spec = replace(SPEC, steps=400, **how)
    saving = Checkpointing(str(tmp_path / "saved"))
    done = succeeded(run(spec, tmp_path / "runs", saving, killed_at("chief-0", 40, "worker-1", saved=0), restarts=1))
    assert done.named("resumed") == []
    assert done.outcome is not None
    assert len(done.outcome.attempts) == 2
    ((applied, _),) = updates(done)
    assert applied == 400 if spec.synchronous else applied in (400, 401)


def test_moving_averages_are_those_of_multiworker(tmp_path):
    averages = {}
    for name, how in {"multi": MULTI_WORKER, "sync": {**SYNC, "ps": 2}, "in-graph": IN_GRAPH, "async": ASYNC}.items():
        spec = replace(SPEC, steps=10, ema=0.9, **how)
        done = succeeded(run(spec, tmp_path / f"{name}-runs", Checkpointing(str(tmp_path / name))))
        averages[name] = saved(done.named("checkpoint")[-1]["path"])
    for name in ("sync", "in-graph"):
        for one, other in zip(averages[name], averages["multi"], strict=True):
            assert one == pytest.approx(other, abs=1e-5)
    shapes = [average.shape for average in averages["multi"]]
    assert [average.shape for average in averages["async"]] == shapes
