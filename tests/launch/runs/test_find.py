"""Finding and listing runs in folders that tests write."""

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.find import find_run, list_runs

EARLY, LATE = "20260101T120000Z-launch", "20260102T120000Z-mine"


@pytest.fixture
def runs_dir(tmp_path):
    for name in (EARLY, LATE, f"{LATE}-2"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        save_json(folder / "outcome.json", {"format": 1, "status": "ok", "exit_code": 0, "reason": "", "wall_s": 2.5})
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("last", f"{LATE}-2"),
        (EARLY, EARLY),
        (LATE, LATE),
        ("20260101", EARLY),
        ("mine-2", f"{LATE}-2"),
        ("launch", EARLY),
    ],
)
def test_a_run_is_found_by_its_name_or_a_unique_part_of_it(text, name, runs_dir):
    assert find_run(text, runs_dir).path == runs_dir / name


def test_a_run_is_found_by_its_path(runs_dir, monkeypatch):
    assert find_run(str(runs_dir / EARLY), runs_dir.parent / "none").path == runs_dir / EARLY
    monkeypatch.chdir(runs_dir)
    assert find_run(EARLY, runs_dir / "runs").path.resolve() == runs_dir / EARLY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026", f"RUN 2026: 3 runs match, {LATE}-2, {LATE}, {EARLY}; give more of the name"),
        ("lunch", "RUN lunch: no such run in "),
        ("/no/such", "RUN '/no/such': not the folder of a run; 'tfdist runs' lists the runs"),
        ("/", "RUN '/': not the folder of a run; 'tfdist runs' lists the runs"),
        ("", "RUN '': not the folder of a run"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_refused(text, message, runs_dir):
    with pytest.raises(TfdistError) as refused:
        find_run(text, runs_dir)
    assert str(refused.value).startswith(message)
    assert refused.value.exit_code == 2


def test_without_runs_there_is_no_last_one(tmp_path):
    for text in ("last", "x"):
        with pytest.raises(TfdistError, match=r"no runs in .*: start one with 'tfdist launch'"):
            find_run(text, tmp_path / "runs")


def test_the_newest_run_comes_first(runs_dir):
    assert [run.name for run in list_runs(runs_dir)] == [f"{LATE}-2", LATE, EARLY]
    (runs_dir / "notes").mkdir()
    assert len(list_runs(runs_dir)) == 3
