from datetime import datetime, timezone

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.rundir import create_run_dir

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=timezone.utc)


def test_two_runs_in_the_same_second_get_two_folders(tmp_path):
    first, second = (create_run_dir(tmp_path / "it's; new", "my run", NOON) for _ in range(2))
    assert first.path.name == "20260102T120000Z-my-run"
    assert second.path.name == "20260102T120000Z-my-run-2"


@pytest.mark.parametrize(("name", "folder"), [("../../x", "x"), ("a/b", "a-b"), ("", "run"), (";$HOME", "HOME")])
def test_a_name_cannot_escape_the_runs_folder(tmp_path, name, folder):
    path = create_run_dir(tmp_path, name, NOON).path
    assert path.parent == tmp_path
    assert path.name.endswith(f"Z-{folder}")


def test_a_file_as_runs_folder_is_refused(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(TfdistError, match="--runs-dir"):
        create_run_dir(tmp_path / "runs", "x")
    with pytest.raises(TfdistError, match="--runs-dir"):
        create_run_dir(tmp_path / "runs" / "below", "x")
