"""The archive for a bug report: which files, how much of each, and what is masked."""

import getpass
import json
import os
import socket
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.runs import bundle
from tfdist.launch.runs.bundle import DOCTOR, open_source, write_bundle
from tfdist.launch.runs.bundle_masks import Redactor


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


def bundled_files(folder):
    with open_source(folder) as source:
        return source.files()


def redactor(folder, environ):
    """What masks a text in the bundle of the folder."""
    with open_source(folder) as source:
        return Redactor(source.hosts(source.files()), environ).text


class Unchanged(Redactor):
    """Masks nothing."""

    def __init__(self):
        pass

    def text(self, text):
        return text

    def file(self, name, text):
        return text


def write(folder, files, doctor="", redact=None):
    with open_source(folder) as source:
        return write_bundle(source, files, doctor, redact or Unchanged())


def packed(folder, before_reading=lambda: None, **environ):
    """The texts of the archive of the folder, with something that happens between the listing and the reading."""
    with open_source(folder) as source:
        files = source.files()
        before_reading()
        texts = written(write_bundle(source, files, "", Redactor(source.hosts(files), environ)))
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
    texts = written(write(folder, files))
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
    first, third = (write(folder, [DOCTOR], "fine") for _ in range(2))
    assert (str(first), str(third)) == (f"{name}.tar.gz", f"{name}-3.tar.gz")
    assert first.stat().st_mode & 0o777 == 0o600
    assert written(third) == {f"{name}-3/doctor.txt": "fine"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=str)
def test_an_interrupt_leaves_nothing(error, folder):
    class Failing(Unchanged):
        def file(self, name, text):
            if text == "step 1\n":
                raise error
            return text

    with pytest.raises(type(error)):
        write(folder, [DOCTOR, *bundled_files(folder)], "fine", Failing())
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


def test_hosts_are_masked_however_many_there_are(folder):
    """hosts.json is longer than what the bundle keeps of a file."""
    names = [f"gpunode-{number:04}" for number in range(2000)]
    (folder / "hosts.json").write_text(json.dumps({name: {"host": name, "note": "x" * 600} for name in names}))
    assert (folder / "hosts.json").stat().st_size > bundle.KEPT_BYTES
    assert "gpunode" not in redactor(folder, {})("lost gpunode-0007 and gpunode-1999")


def test_nobody_and_nowhere_are_no_error(folder, monkeypatch):
    def unknown():
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert redactor(folder, {})("a/b") == "a/b"


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_of_the_environment_is_in_no_line(secret, before, after):
    redact = Redactor([], {"API_KEY": secret}).text
    for line in secret.splitlines():
        if len(line) >= 6:
            assert line not in redact(f"{before}{line}{after}").replace("***", "")


PRIVATE = "private of the user"


@pytest.fixture
def private(tmp_path):
    """A private file of the user, which no bundle may have, in a folder with the names of a run."""
    file = tmp_path / "home" / "worker-0" / "stdout.log"
    file.parent.mkdir(parents=True)
    file.write_text(PRIVATE)
    return file


def test_a_link_in_place_of_a_listed_file_is_not_followed(folder, private):
    def exchange():
        (folder / "attempt-0/worker-0/stdout.log").unlink()
        (folder / "attempt-0/worker-0/stdout.log").symlink_to(private)

    texts = packed(folder, exchange)
    assert texts["attempt-0/worker-0/stdout.log"].startswith("[tfdist: cannot be read: ")
    assert PRIVATE not in str(texts)


def test_a_link_in_place_of_a_listed_folder_is_not_followed(folder, private):
    def exchange():
        (folder / "attempt-0").rename(folder / "attempt-1")
        (folder / "attempt-0").symlink_to(private.parents[1])

    texts = packed(folder, exchange)
    assert texts["attempt-0/worker-0/stdout.log"].startswith("[tfdist: cannot be read: ")
    assert PRIVATE not in str(texts)


def test_a_link_in_place_of_the_folder_changes_nothing(folder, private):
    def exchange():
        folder.rename(folder.with_name("moved"))
        (private.parents[1] / "attempt-0").symlink_to(".")
        folder.symlink_to(private.parents[1])

    texts = packed(folder, exchange)
    assert texts["attempt-0/worker-0/stdout.log"] == "step 1\n"
    with pytest.raises(NotADirectoryError), open_source(folder):
        pass


def test_a_file_with_another_name_elsewhere_is_neither_listed_nor_read(folder, private):
    """Whoever may write to the folder may have linked it here."""
    log = folder / "attempt-0/worker-0/stdout.log"

    def exchange():
        log.unlink()
        os.link(private, log)

    os.link(private, folder / "listed.log")
    texts = packed(folder, exchange)
    assert "listed.log" not in texts
    assert texts["attempt-0/worker-0/stdout.log"].startswith("[tfdist: cannot be read: it belongs to another user")
    assert PRIVATE not in str(texts)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_and_folders_of_another_owner_are_neither_listed_nor_read(folder, private):
    (folder / "moved.log").write_text(PRIVATE)
    (folder / "moved").mkdir()
    (folder / "moved" / "a.log").write_text(PRIVATE)
    for path in (folder / "moved.log", folder / "moved"):
        os.chown(path, 12345, -1)
    log = folder / "attempt-0/worker-0/stdout.log"
    texts = packed(folder, lambda: os.chown(log, 12345, -1))
    assert {"moved.log", "moved/a.log"}.isdisjoint(texts)
    assert texts["attempt-0/worker-0/stdout.log"].startswith("[tfdist: cannot be read: it belongs to another user")
    assert PRIVATE not in str(texts)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root can make devices")


@pytest.mark.parametrize(
    "make", [os.mkfifo, make_socket, make_device, os.mkdir], ids=["fifo", "socket", "device", "folder"]
)
def test_what_is_no_file_is_neither_listed_nor_waited_for(make, folder, monkeypatch):
    monkeypatch.chdir(folder)  # the path of a socket must be short
    log = Path("attempt-0/worker-0/stdout.log")

    def exchange():
        log.unlink()
        make(log)

    make(Path("listed.log"))
    texts = packed(folder, exchange)
    assert "listed.log" not in texts
    assert texts["attempt-0/worker-0/stdout.log"].startswith("[tfdist: cannot be read: ")


def test_folders_deeper_than_those_of_tfdist_are_left_out(folder):
    deep = folder.joinpath(*"d" * 300)
    deep.mkdir(parents=True)
    (deep / "a.log").write_text("x")
    assert sorted(bundled_files(folder)) == ["attempt-0/worker-0/stdout.log", "hosts.json"]


def test_members_are_called_as_their_hosts_are_in_the_texts(folder):
    (folder / "node17.cluster").mkdir()
    (folder / "node17.cluster" / "n1.log").write_text("node17.cluster")
    (folder / "node17.cluster" / "node17.log").write_text("n1")
    texts = packed(folder)
    assert {name: text for name, text in texts.items() if "HOST" in name} == {
        "HOST-2/HOST-2.log": "HOST-2",
        "HOST-2/HOST-2-2.log": "HOST-2",
    }
