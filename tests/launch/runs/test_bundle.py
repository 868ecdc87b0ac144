"""The archive for a bug report: which files, how much of each, and what is masked."""

import getpass
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.runs import bundle
from tfdist.launch.runs.bundle import DOCTOR, bundled_files, redactor, write_bundle


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a run; the current folder is an empty one."""
    folder = tmp_path / "20260101T120000Z-launch"
    log = folder / "attempt-0" / "worker-0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\n")
    hosts = {"localhost": {"host": "here-1"}, "n1": {"host": "node17.cluster"}, "gpu": {"host": "gpu"}, "bad": 3}
    (folder / "hosts.json").write_text(json.dumps(hosts))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def written(path):
    """The texts of an archive, by name."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert {(each.uname, each.gname, each.isreg()) for each in members} == {("", "", True)}
        return {each.name: archive.extractfile(each).read().decode() for each in members}


def packed(folder, **environ):
    texts = written(write_bundle(folder, bundled_files(folder), "", redactor(folder, environ)))
    return {name.partition("/")[2]: text for name, text in texts.items()}


def test_text_files_are_kept_and_models_pictures_links_and_files_of_the_program_are_not(folder):
    for name in ("events.jsonl", "outcome.json", "commands.txt", "attempt-0/worker-0/stacks.txt", "report.md"):
        (folder / name).write_text("x" * 10)
    for name in ("checkpoints/checkpoint.json", "files/mine.txt", "report.png", "control.sock", "trace/t.json.gz"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "private.txt").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.log")
    found = bundled_files(folder)
    assert sorted(found) == [
        "attempt-0/worker-0/stacks.txt", "attempt-0/worker-0/stdout.log", "commands.txt", "events.jsonl", "hosts.json",
        "outcome.json", "report.md",
    ]  # fmt: skip
    assert found["events.jsonl"] == 10


def test_of_a_long_log_the_last_whole_lines_are_kept(folder, monkeypatch):
    monkeypatch.setattr(bundle, "KEPT_BYTES", 100)
    log = folder / "attempt-0" / "worker-0" / "stdout.log"
    log.write_text("a secret at the edge\n" + "x" * 80 + "\nthe end\n")
    assert bundled_files(folder)["attempt-0/worker-0/stdout.log"] == 100
    text = packed(folder)["attempt-0/worker-0/stdout.log"]
    assert text == f"[tfdist: without the first 21 bytes]\n{'x' * 80}\nthe end\n"
    log.write_text("x" * 108)
    assert packed(folder)["attempt-0/worker-0/stdout.log"] == "[tfdist: without the first 108 bytes]\n"


def test_a_file_that_is_deleted_meanwhile_is_named(folder):
    files = [*bundled_files(folder), "gone.log"]
    texts = written(write_bundle(folder, files, "", str))
    assert texts[f"tfdist-{folder.name}/gone.log"] == "[tfdist: cannot be read: No such file or directory]"


def test_json_stays_json_without_its_secrets(folder):
    value = {"env": {"API_TOKEN": "hunter2", "A": "--token hunter2"}, "texts": ["password=hunter2", "x"], "step": 1.5}
    (folder / "cluster.json").write_text(json.dumps(value, indent=1))
    (folder / "events.jsonl").write_text(json.dumps(value) + '\n{"token": "hunter2", "torn')
    texts = packed(folder)
    expected = {"env": {"API_TOKEN": "***", "A": "--token ***"}, "texts": ["password=***", "x"], "step": 1.5}
    assert json.loads(texts["cluster.json"]) == expected
    first, second = texts["events.jsonl"].split("\n")
    assert json.loads(first) == expected
    assert second == '{"token": "***", "torn'


def test_an_archive_is_for_this_user_only_and_never_overwritten(folder):
    name = f"tfdist-{folder.name}"
    Path(f"{name}-2.tar.gz").symlink_to("/nonexistent")
    first, third = (write_bundle(folder, [DOCTOR], "fine", str) for _ in range(2))
    assert (str(first), str(third)) == (f"{name}.tar.gz", f"{name}-3.tar.gz")
    assert first.stat().st_mode & 0o777 == 0o600
    assert written(third) == {f"{name}-3/doctor.txt": "fine"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=str)
def test_an_interrupt_leaves_nothing(error, folder):
    def redact(line):
        if line == "step 1":
            raise error
        return line

    with pytest.raises(type(error)):
        write_bundle(folder, [DOCTOR, *bundled_files(folder)], "fine", redact)
    assert list(Path().iterdir()) == []


def test_secrets_of_the_environment_are_masked_wherever_they_stand(folder):
    environ = {"MY_TOKEN": 'hunter"22', "KEY_PASSWORD": "first line\nsecond", "TOKENIZERS": "false", "PATH": "/usr/bin"}
    redact = redactor(folder, environ)
    assert redact('hunter"22 and {"a": "hunter\\"22"} are false') == '*** and {"a": "***"} are false'
    assert redact('first line, {"a": "first line\\nsecond"}') == '***, {"a": "***"}'
    assert redact("/usr/bin second-hand --password abc") == "/usr/bin ***-hand --password ***"


def test_home_user_and_hosts_are_masked_and_words_that_look_like_them_are_not(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")
    monkeypatch.setattr(socket, "gethostname", lambda: "desk-7")
    redact = redactor(folder, {})
    assert redact("/home/anna/train.py /home/annab /data/anna/x") == "~/train.py /home/annab /data/USER/x"
    assert redact('anna@node17.cluster "anna" anna says') == 'USER@HOST-2 "USER" anna says'
    assert redact("desk-7 here-1 n1:2222 n10 n1.x") == "HOST-1 HOST-1 HOST-2:2222 n10 HOST-2.x"
    assert redact("gpu localhost worker-0") == "gpu localhost worker-0"


def test_nobody_and_nowhere_are_no_error(folder, monkeypatch):
    def unknown():
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.setattr(bundle.Path, "home", lambda: Path("/"))
    assert redactor(folder, {})("a/b") == "a/b"


@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_of_the_environment_is_in_no_line(tmp_path_factory, secret, before, after):
    folder = tmp_path_factory.getbasetemp()
    redact = redactor(folder, {"API_KEY": secret})
    for line in secret.splitlines():
        if len(line) >= 6:
            assert line not in redact(f"{before}{line}{after}").replace("***", "")
