from pathlib import Path

import pytest

from tfdist.bench.report.format import labels_of


@pytest.mark.parametrize(
    ("folders", "labels"),
    [
        (["a", "b"], ["a", "b"]),
        (["20260101T120000Z-cpu"], ["cpu"]),
        (["20260101T120000Z-cpu", "20260101T120000Z-knobs", "mine"], ["cpu", "knobs", "mine"]),
        (["20260101T120000Z-cpu", "20260102T120000Z-cpu"], ["cpu 2026-01-01", "cpu 2026-01-02"]),
        (["20260101T120000Z-cpu", "20260101T133000Z-cpu"], ["cpu 12h00", "cpu 13h30"]),
        (
            ["20260101T120000Z-cpu", "20260101T133000Z-cpu", "20260102T120000Z-cpu"],
            ["cpu 2026-01-01 12h00", "cpu 2026-01-01 13h30", "cpu 2026-01-02 12h00"],
        ),
        (["20260101T120000Z-cpu", "20260101T120001Z-cpu"], ["20260101T120000Z-cpu", "20260101T120001Z-cpu"]),
        (["a/20260101T120000Z-cpu", "b/20260101T120000Z-cpu"], ["a/20260101T120000Z-cpu", "b/20260101T120000Z-cpu"]),
        (["a/run", "b/run"], ["a/run", "b/run"]),
    ],
)
def test_labels_are_unique_and_as_short_as_they_can_be(folders: list[str], labels: list[str], tmp_path: Path) -> None:
    assert labels_of([tmp_path / folder for folder in folders]) == labels
