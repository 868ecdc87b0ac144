"""Fixtures of the tests of jobs."""

import pytest

from .jobs import FORKED


@pytest.fixture(params=["executed", "forked"])
def started_both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with tasks that are executed, and with tasks that are forked from a template if there are several."""
    if request.param == "forked":
        monkeypatch.setenv(FORKED, "1")
