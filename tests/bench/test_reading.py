import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.bench.folder import BenchPaths, slug
from tfdist.bench.reading import read_folder, read_record
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]
SaveAll = Callable[[Path, Sequence[Record]], Path]


def test_a_record_survives_its_file(tmp_path: Path, make_record: MakeRecord) -> None:
    made = make_record("an arm", [[0.1, 0.2], [0.3, 0.4]], strategy="multiworker", workers=2)
    save_json(tmp_path / "r.json", made.to_json())
    assert read_record(tmp_path / "r.json") == made


@pytest.mark.parametrize("name", ["../../etc", "a b", "it's", 'quo"te', "semi;colon", "", "...", "ü/中", "x" * 300])
def test_no_arm_name_escapes_the_folder(tmp_path: Path, make_record: MakeRecord, name: str) -> None:
    path = BenchPaths(tmp_path).record(make_record(name))
    assert path.parent == tmp_path / "records"
    assert slug(name).isascii()
    assert 0 < len(slug(name)) <= 60


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ('{"format": 1, "arm": "a', "truncated"),
        ("[1]", "incomplete record"),
        ('{"format": 3}', "format 3"),
        ('{"format": 1, "arm": "a"}', "incomplete record"),
    ],
)
def test_unreadable_files_are_listed_and_the_rest_is_kept(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll, text: str, reason: str
) -> None:
    root = save_all(tmp_path, [make_record()])
    (root / "records" / "broken.json").write_text(text)
    folder = read_folder(root, "here")
    assert len(folder.records) == 1
    (bad,) = folder.unreadable
    assert bad.file == "records/broken.json"
    assert re.search(reason, bad.reason)


@pytest.mark.parametrize(
    "change",
    [{"ranks": []}, {"round": "one"}, {"order": None}, {"arm": 3}, {"spec": {}}, {"spec": {"strategy": "magic"}}],
)
def test_an_ok_record_without_usable_data_is_refused(
    tmp_path: Path, make_record: MakeRecord, change: dict[str, object]
) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**make_record().to_json(), **change}))
    with pytest.raises(TfdistError, match="incomplete record"):
        read_record(path)


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
    assert paths.last_number() == 0
    made = replace(make_record(), order=7)
    save_json(paths.record(made), made.to_json())
    assert paths.last_number() == 7
    paths.run(12, "arm", 1).mkdir(parents=True)
    assert paths.last_number() == 12
