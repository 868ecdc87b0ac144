"""Fixtures of the tests of jobs."""

import pytest

from .jobs import FORKED


@pytest.fixture(params=["forked", pytest.param("executed", marks=pytest.mark.thorough)])
def started_both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with tasks that are forked from a template if there are several, and with executed tasks."""
    if request.param == "forked":
        monkeypatch.setenv(FORKED, "1")
