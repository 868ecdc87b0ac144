import pytest

from tfdist.launch.console.step_values import StepValues, number_text, step_text, step_values


def test_the_values_of_a_step():
    event = {"event": "step", "step": 3, "steps": 9, "images_per_s": 12, "loss": 0.5}
    assert step_values(event) == StepValues(3, 9, 12.0, 0.5)


@pytest.mark.parametrize("value", [None, "x", [], -1, 10**400])
def test_a_value_that_cannot_be_shown_is_left_out(value):
    assert step_values({"step": value, "steps": value})[:2] == (None, None)
    assert step_values({"step": 0, "steps": 0})[:2] == (0, None)
    if value != -1:
        assert step_values({"images_per_s": value, "loss": value})[2:] == (None, None)


def test_the_text_of_values():
    assert [step_text(*values) for values in ((3, 9), (3, None), (None, 9))] == ["3/9", "3", ""]
    assert [number_text(value, ",.1f") for value in (1234.56, None)] == ["1,234.6", ""]
