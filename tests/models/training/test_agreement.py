"""The barrier before the exit of a task: what it waits for. That of several launchers is in tests/integration."""

import threading

import pytest
import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import agreement
from tfdist.models.training.agreement import wait_before_exit, wait_for_sum
from tfdist.models.training.context import TrainingContext

LONG_S = 60.0


def test_it_opens_when_the_sum_is_complete():
    arrived, complete, left = threading.Event(), threading.Event(), threading.Event()

    def summed(values):
        arrived.set()
        complete.wait(LONG_S)
        return values

    def leave():
        wait_for_sum(summed, LONG_S)
        left.set()

    threading.Thread(target=leave, daemon=True).start()
    assert arrived.wait(LONG_S)
    assert not left.wait(0.2)
    complete.set()
    assert left.wait(LONG_S)


def test_it_opens_without_a_worker_that_never_arrives():
    never = threading.Event()
    sums = []
    wait_for_sum(lambda _: sums.append(never.wait(LONG_S)), 0.1)
    assert sums == []
    never.set()


def test_it_opens_when_another_worker_has_exited():
    def failed(_):
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    wait_for_sum(failed, LONG_S)


@pytest.mark.parametrize(("inherited", "workers", "sums"), [(True, 2, 1), (True, 1, 0), (False, 2, 0)])
def test_only_workers_of_several_launchers_take_a_sum(inherited, workers, sums, monkeypatch):
    taken = []
    monkeypatch.delenv("TFDIST_INHERITED", raising=False)
    if inherited:
        monkeypatch.setenv("TFDIST_INHERITED", "1")
    monkeypatch.setattr(agreement, "make_sum", lambda strategy, workers: taken.append)
    job = TrainingContext(TrainingSpec(workers=workers), tf.distribute.get_strategy(), Task("worker", 0), workers)
    wait_before_exit(job)
    assert len(taken) == sums
