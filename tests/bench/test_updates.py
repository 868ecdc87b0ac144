"""Staleness and shares from known counts."""

from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.updates import Updates, updates_of
from tfdist.models.record import Record


def counted(*rows: list[int]) -> Record:
    return replace(record(), observed={"chief-0": {"updates": list(rows)}})


def test_all_turns_are_added_up_by_worker():
    updates = updates_of([counted([1, 2], [3]), counted([], [1, 0, 4]), record()])
    assert updates.counts == ((1, 2), (4, 0, 4))
    assert updates.shares == (pytest.approx(3 / 11), pytest.approx(8 / 11))
    assert updates_of([record()]) is None


def test_staleness_of_known_counts():
    staleness = Updates(((90, 5, 0, 1), (0, 0, 4))).staleness
    assert (staleness.mean, staleness.p95, staleness.largest, staleness.updates) == (0.16, 1, 3, 100)
    assert Updates(((90, 5, 0, 1), (0, 0, 4))).of_worker(1).mean == 2.0


def test_one_worker_has_no_staleness():
    assert Updates(((7,),)).staleness.mean == 0
    assert Updates(((7,),)).staleness.largest == 0
    assert Updates(((), ())).staleness is None
