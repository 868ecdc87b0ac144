import pytest

from tfdist.bench.report.claims import Claim, ClaimResult, above, below
from tfdist.bench.statistics import Interval


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        (Interval(0.7, 0.9, 0.95), ClaimResult.HELD_UP),
        (Interval(1.1, 1.2, 0.95), ClaimResult.NOT_HELD_UP),
        (Interval(0.9, 1.1, 0.95), ClaimResult.CANNOT_TELL),
        (None, ClaimResult.CANNOT_TELL),
    ],
)
def test_an_interval_on_one_side_decides(interval, outcome):
    assert below(interval, 1.0) is outcome
    mirrored = interval and Interval(2 - interval.high, 2 - interval.low, 0.95)
    assert above(mirrored, 1.0) is outcome


def test_one_contradiction_is_enough():
    outcomes = (ClaimResult.HELD_UP, ClaimResult.CANNOT_TELL, ClaimResult.NOT_HELD_UP)
    claim = Claim("Sync is slow", ("a: 1", "b: 2", "c: 3"), outcomes)
    assert claim.sentence == '"Sync is slow": not held up. a: 1; b: 2; c: 3.'
    assert Claim("", ("a", "b"), outcomes[:2]).outcome is ClaimResult.CANNOT_TELL
