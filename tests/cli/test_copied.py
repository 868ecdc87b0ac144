"""`--copy` on the command line, in a job file and in a variable; nothing is started."""

from pathlib import Path

import pytest

from tfdist.cli.command import run

DRY = ["launch", "--dry-run", "--strategy", "one-device"]
PROGRAM = ["--", "python", "train.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    Path("other").mkdir()
    Path("other/train.py").write_text("1")
    Path("other/job.sh").write_text("1")
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part", "files"),
    [
        (["--copy"], "", "3 files"),
        (["--copy", "."], "", "3 files"),
        (["--copy=other"], "/other", "2 files"),
        (["--copy", "other"], "/other", "2 files"),
        (["--copy", "--quiet"], "", None),
    ],
)
def test_without_a_name_it_is_this_folder(
    words: list[str], part: str, files: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*DRY, *words, *PROGRAM]) == 0
    out = capsys.readouterr().out
    assert f"in a copy of {folder}{part}\n" in out
    assert (f"copy of {folder}{part}: {files}, " in out) == (files is not None)


def test_a_job_file_and_a_variable_name_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.toml").write_text("copy = 'other'\nstrategy = 'one-device'\ncommand = ['python', 'train.py']\n")
    assert run(["launch", "--dry-run", "--config", "job.toml"]) == 0
    assert f"copy of {folder}/other: 2 files" in capsys.readouterr().out
    monkeypatch.setenv("TFDIST_COPY", "other")
    assert run([*DRY, *PROGRAM]) == 0
    assert f"copy of {folder}/other: 2 files" in capsys.readouterr().out


def test_a_program_of_the_folder_that_is_no_script_is_looked_up_in_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*DRY, "--copy", "other", "--", "./job.sh"]) == 0
    assert "'./job.sh' is not in the copy" in refused([*DRY, "--copy", ".", "--", "./job.sh"], capsys)
    assert "'no.py' is not in the copy of" in refused([*DRY, "--copy", "--", "python", "no.py"], capsys)


@pytest.mark.usefixtures("folder")
def test_what_has_no_effect_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--copy .: copies the folder of your own program; give it after --" in refused([*DRY, "--copy"], capsys)
    hosts = ["launch", "--hosts", "192.0.2.1", "--chdir", "/data", "--copy"]
    assert "--chdir /data: tasks run in the copy of " in refused([*hosts, *PROGRAM], capsys)
    limit = [*DRY, "--set", "copy_limit=1K", *PROGRAM]
    assert "--set copy_limit: has no effect without --copy; omit it" in refused(limit, capsys)
    assert "--copy none: no such folder; give another" in refused([*DRY, "--copy", "none", *PROGRAM], capsys)
