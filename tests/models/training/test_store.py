"""Checkpoints in a folder: whole or not at all, with fake snapshots; and which of them is read."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.disks import small_disk
from tfdist.launch.errors import TfdistError
from tfdist.models.checkpoints import CheckpointList, Manifest, list_checkpoints
from tfdist.models.spec import TrainingSpec

SPEC = json.loads(json.dumps(TrainingSpec().to_json()))


@pytest.fixture
def store(monkeypatch):
    """The module, with a snapshot of two small files in memory."""
    import tensorflow as tf

    from tfdist.models.training import store

    monkeypatch.setattr(store, "MEMORY", "ram://test/snapshot")
    for ending, size in ((".index", 7), (".data-00000-of-00001", 20)):
        with tf.io.gfile.GFile(store.MEMORY + ending, "w") as file:
            file.write("x" * size)
    yield store
    store.drop_snapshot()


@pytest.fixture
def full_disk(tmp_path):
    """A file system with 64 KiB."""
    with small_disk(tmp_path, 64) as folder:
        yield folder


def manifest(step):
    return Manifest(step, 8 * step, SPEC, {})


def steps(folder: Path) -> list[int]:
    listing = list_checkpoints(str(folder))
    assert not listing.problems
    return [found.step for found in listing.complete]


def test_the_newest_are_kept(store, tmp_path):
    for step in (10, 20, 30, 40):
        store.store(str(tmp_path), manifest(step), 2)
    assert steps(tmp_path) == [40, 30]
    assert len(list(tmp_path.iterdir())) == 6


def test_what_a_killed_save_has_left_is_removed(store, tmp_path):
    (tmp_path / "step-00000010.index").write_text("part")
    (tmp_path / "step-00000010.json.partial").write_text("{")
    (tmp_path / "step-00000010_temp").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    store.store(str(tmp_path), manifest(20), 3)
    assert steps(tmp_path) == [20]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_step_that_is_saved_again_replaces_the_damaged_one(store, tmp_path):
    store.store(str(tmp_path), manifest(20), 3)
    (tmp_path / "step-00000020.index").write_text("damaged")
    store.store(str(tmp_path), manifest(20), 3)
    assert steps(tmp_path) == [20]
    assert (tmp_path / "step-00000020.index").read_text() == "x" * 7


def test_what_was_just_saved_stays_beside_later_ones_which_may_be_damaged(store, tmp_path):
    for step in (90, 100, 95):
        store.store(str(tmp_path), manifest(step), 1)
    assert steps(tmp_path) == [100, 95]
    store.store(str(tmp_path), manifest(105), 1)
    assert steps(tmp_path) == [105]


def test_a_newer_damaged_one_stays(store, tmp_path):
    for step in (10, 40):
        store.store(str(tmp_path), manifest(step), 3)
    (tmp_path / "step-00000040.index").unlink()
    store.store(str(tmp_path), manifest(20), 1)
    assert [found.step for found in list_checkpoints(str(tmp_path)).complete] == [20]
    assert list(list_checkpoints(str(tmp_path)).problems) == [40]


def test_a_full_disk_fails_the_save_and_keeps_the_last_one(store, full_disk):
    store.store(str(full_disk), manifest(10), 1)
    with (full_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    with pytest.raises(OSError, match="space"):
        store.store(str(full_disk), manifest(20), 1)
    assert steps(full_disk) == [10]
    assert len(list(full_disk.iterdir())) == 1 + 3, "the failed one is removed"
    (full_disk / "filler").unlink()
    store.store(str(full_disk), manifest(90), 1)
    assert steps(full_disk) == [90]


def test_a_folder_that_cannot_be_written_is_refused(store, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/checkpoints")):
        with pytest.raises(TfdistError, match=f"--checkpoint-dir {folder}: cannot be written .*use another folder"):
            store.check_writable(str(folder))
    store.check_writable(str(tmp_path / "new" / "folder"))
    assert list((tmp_path / "new" / "folder").iterdir()) == []


KILLED = """
import os, signal, sys
import tensorflow as tf
from tfdist.models.checkpoints import Manifest
from tfdist.models.training import store

moves = []
def rename(source, target, overwrite=False):
    moves.append(target)
    if len(moves) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    original(source, target, overwrite)

original, tf.io.gfile.rename = tf.io.gfile.rename, rename
with tf.io.gfile.GFile(store.MEMORY + ".index", "w") as file:
    file.write("x")
for step in (10, 20):
    store.store(sys.argv[1], Manifest(step, step, {}, {}), 3)
"""


@pytest.mark.slow
def test_a_kill_before_the_manifest_is_in_place_leaves_the_last_one(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert steps(tmp_path) == [10]
    assert (tmp_path / "step-00000020.index").exists()


def test_the_last_checkpoint_is_marked_as_final(store, tmp_path):
    for step in (10, 20):
        store.store(str(tmp_path), manifest(step), 3)
    store.mark_final(str(tmp_path), 20)
    assert [found.final for found in list_checkpoints(str(tmp_path)).complete] == [True, False]
    store.mark_final(str(tmp_path / "missing"), 20)


def newest(damaged, problems=()):
    listing = CheckpointList(tuple(manifest(step) for step in (40, 30, 20)), dict.fromkeys(problems, "no index"))
    return listing.newest_intact(lambda name: "checksum" if int(name[-2:]) in damaged else "")


def test_the_newest_intact_checkpoint_is_read_and_what_is_wrong_with_newer_ones_is_listed():
    assert newest(()) == (manifest(40), [])
    assert newest((), problems=[50, 10]) == (manifest(40), ["no index"])
    found, problems = newest((40, 30), problems=[50])
    assert found == manifest(20)
    assert problems == [
        "no index", "step-00000040 is damaged (checksum)", "step-00000030 is damaged (checksum)",
    ]  # fmt: skip
    assert newest((20, 30, 40))[0] is None


@pytest.fixture
def saved(tmp_path):
    import tensorflow as tf

    tf.train.Checkpoint(value=tf.Variable(tf.random.stateless_uniform((1000,), (1, 2)))).write(str(tmp_path / "saved"))
    return tmp_path / "saved"


@pytest.mark.parametrize("file", ["saved.index", "saved.data-00000-of-00001"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_every_harm_to_a_file_is_noticed(saved, file, harm):
    from tfdist.models.training.restore import damage

    assert damage(str(saved)) == ""
    path = saved.parent / file
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content[: len(content) // 2] if harm == "truncate" else content)
    assert damage(str(saved))
