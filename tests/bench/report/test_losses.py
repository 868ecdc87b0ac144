import math

import pytest

from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.losses import wrong_arms
from tfdist.models.record import Record

from .rows import codes, folder, rows_of, three, with_losses

TWO = {"strategy": "mirrored", "devices": 2}
THREE = {"strategy": "mirrored", "devices": 3}


def wrong(*arms: list[Record]) -> dict[str, str]:
    return dict(wrong_arms(arms_of([folder([record for arm in arms for record in arm])])))


def arm(name: str, first: float, later: float, **spec: object) -> list[Record]:
    return with_losses(three(name, **{**TWO, **spec}), first, later)


def test_losses_seen_on_two_cpu_devices_are_the_same() -> None:
    """MobileNetV2, 96 px: two threads in one process, and one in each of two."""
    assert wrong(arm("mirrored", 7.00031, 0.326741), arm("multiworker", 7.0003, 0.348487)) == {}


def test_a_lost_gradient_is_found() -> None:
    """Measured: the gradients of one of three replicas left out."""
    right, lost = (6.9263, 0.56682), (6.9263, 2.6838)
    found = wrong(arm("a", *right, **THREE), arm("b", *right, **THREE), arm("lost", *lost, **THREE))
    assert found == {"lost": "its loss in step 5 is 2.684, but 0.5668 in a, which computes the same"}


def test_other_data_are_found_in_the_first_step() -> None:
    found = wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), arm("other", 7.1, 1.0))
    assert found == {"other": "its loss in step 1 is 7.1, but 7 in a, which computes the same"}


def test_of_two_arms_both_are_wrong() -> None:
    assert set(wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 3.0))) == {"a", "b"}


def test_a_training_that_diverges_alone_is_wrong() -> None:
    diverged = arm("nan", 7.0, math.nan)
    assert set(wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), diverged)) == {"nan"}
    assert wrong(diverged, arm("other", 7.0, math.nan)) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"devices": 4},
        {"batch_size": 20},
        {"seed": 1},
        {"precision": "mixed_float16"},
        {"strategy": "parameter-server", "workers": 2, "devices": 1, "ps": 1},
        {"strategy": "independent", "workers": 2, "devices": 1},
    ],
)
def test_arms_that_compute_something_else_are_not_compared(other: dict[str, object]) -> None:
    assert wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), arm("other", 7.0, 5.0, **other)) == {}


def test_records_without_those_steps_are_not_compared() -> None:
    assert wrong(arm("a", 7.0, 1.0), three("b", **TWO)) == {}


def test_a_wrong_arm_is_a_row_with_its_figures_and_a_warning() -> None:
    made = [*arm("a", 7.0, 1.0), *arm("b", 7.0, 1.0), *arm("lost", 7.0, 3.0)]
    row = rows_of(made)["lost"]
    assert row.status == "wrong"
    assert row.images_per_s is not None
    assert codes(made)[0] == "wrong-losses"
