import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.conftest import save_record
from tfdist.bench.folder import BenchPaths, slug
from tfdist.bench.reading import last_number, read_folder, read_records
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import append_line
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]
SaveAll = Callable[[Path, Sequence[Record]], Path]


def test_a_record_survives_its_file(tmp_path: Path, make_record: MakeRecord) -> None:
    made = make_record("an arm", [[0.1, 0.2], [0.3, 0.4]], strategy="multiworker", workers=2)
    save_record(tmp_path, made)
    assert read_records(tmp_path / "records.jsonl") == ([made], [])


def test_a_refused_arm_that_was_started_later_is_no_longer_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    refused = replace(make_record("a", status="refused", reason="no GPUs"), order=0)
    for one in (refused, replace(refused, arm="b"), make_record("a"), refused):
        save_record(tmp_path, one)
    assert [(one.arm, one.status) for one in read_folder(tmp_path, "").records] == [("b", "refused"), ("a", "ok")]


@pytest.mark.parametrize("name", ["../../etc", "a b", "it's", 'quo"te', "semi;colon", "", "...", "ü/中", "x" * 300])
def test_no_arm_name_escapes_the_folder(tmp_path: Path, name: str) -> None:
    assert BenchPaths(tmp_path).run(1, name, 1).parent == tmp_path / "runs"
    assert slug(name).isascii()
    assert 0 < len(slug(name)) <= 60


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 2, "arm": "a', "truncated"),
        ("[1]", "incomplete record"),
        ('{"format": 3}', "format 3"),
        ('{"format": 2, "arm": "a"}', "incomplete record"),
    ],
)
def test_unreadable_files_are_listed_and_the_rest_is_kept(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll, text: str, reason: str
) -> None:
    root = save_all(tmp_path, [make_record()])
    append_line(root / "records.jsonl", text)
    folder = read_folder(root, "here")
    assert len(folder.records) == 1
    (bad,) = folder.unreadable
    assert bad.file == "records.jsonl, line 2"
    assert re.search(reason, bad.reason)


@pytest.mark.parametrize(
    "change",
    [{"ranks": []}, {"round": "one"}, {"order": None}, {"arm": 3}, {"spec": {}}, {"spec": {"strategy": "magic"}}],
)
def test_an_ok_record_without_usable_data_is_refused(
    tmp_path: Path, make_record: MakeRecord, change: dict[str, object]
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({**make_record().to_json(), **change}))
    records, (bad,) = read_records(path)
    assert records == []
    assert "incomplete record" in bad.reason


def test_the_last_record_of_an_arm_and_round_counts(tmp_path: Path, make_record: MakeRecord, save_all: SaveAll) -> None:
    failed = make_record(status="failed", reason="it died")
    save_all(tmp_path, [failed, make_record(round=2), make_record()])
    folder = read_folder(tmp_path, "")
    assert [(one.round, one.status) for one in folder.records] == [(2, "ok"), (1, "ok")]
    assert [one.reason for one in folder.replaced] == ["it died"]


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TfdistError, match="has no records"):
        read_folder(tmp_path, "")
    with pytest.raises(TfdistError, match="missing: no such folder"):
        read_folder(tmp_path / "missing", "")


def test_numbers_continue_after_the_highest(tmp_path: Path, make_record: MakeRecord) -> None:
    paths = BenchPaths(tmp_path)
    assert last_number(tmp_path) == 0
    made = replace(make_record(), order=7)
    save_record(tmp_path, made)
    assert last_number(tmp_path) == 7
    paths.run(12, "arm", 1).mkdir(parents=True)
    assert last_number(tmp_path) == 12
