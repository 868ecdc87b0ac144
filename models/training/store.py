"""Writing a checkpoint into its folder, whole or not at all, and removing old ones.

TensorFlow writes it into memory (its file system ram://), and from there it is copied in a thread while the training
continues. The manifest is moved into place last.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import tensorflow as tf

from tfdist.launch.errors import TfdistError
from tfdist.models.checkpoints import CheckpointList, Files, Manifest, list_checkpoints, step_of

Read = TypeVar("Read")


class GFiles(Files):
    """Reads folders through tf.io.gfile."""

    def names(self, folder: str) -> Sequence[str]:
        """`Files.names`."""
        return [name.rstrip("/") for name in _read(lambda: tf.io.gfile.listdir(folder))]

    def text(self, path: str) -> str:
        """`Files.text`."""
        with tf.io.gfile.GFile(path, "rb") as file:
            return str(_read(file.read), "utf-8")

    def size(self, path: str) -> int:
        """`Files.size`."""
        return int(_read(lambda: tf.io.gfile.stat(path)).length)


def _read(read: Callable[[], Read]) -> Read:
    """The result of `read`, whose TensorFlow errors become OSErrors."""
    try:
        return read()
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from None
    except tf.errors.OpError as error:
        raise OSError(error.message) from None


MEMORY = "ram://tfdist/snapshot"
"""The path of the snapshot in this process's memory, without the endings of its files."""


def check_writable(folder: str) -> None:
    """Create the folder and a file in it.

    Raises:
        TfdistError: that failed.
    """
    probe = f"{folder}/.tfdist-writable"
    try:
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        raise TfdistError(
            f"--checkpoint-dir {folder}: cannot be written ({error.message}); use another folder"
        ) from None


def snapshot_files() -> dict[str, int]:
    """Bytes of each file of the snapshot, by the ending of its name."""
    return {path.removeprefix(MEMORY): int(tf.io.gfile.stat(path).length) for path in tf.io.gfile.glob(f"{MEMORY}.*")}


def drop_snapshot() -> None:
    """Free its memory."""
    for ending in snapshot_files():
        tf.io.gfile.remove(MEMORY + ending)


def store(folder: str, manifest: Manifest, keep: int) -> None:
    """Copy the snapshot into the folder, then write its manifest and remove all but the newest `keep` checkpoints.

    What a failed attempt has written is removed. Older checkpoints are only removed after a success.

    Raises:
        OSError: it could not be written.
    """
    endings = snapshot_files()
    whole = replace(manifest, files={manifest.name + ending: size for ending, size in endings.items()})
    try:
        tf.io.gfile.makedirs(folder)
        remove(f"{folder}/{manifest.file}")  # before its files change
        for ending in endings:
            tf.io.gfile.copy(MEMORY + ending, f"{folder}/{manifest.name}{ending}", overwrite=True)
            _sync(f"{folder}/{manifest.name}{ending}")
        write_manifest(folder, whole)
        listing = list_checkpoints(folder, GFiles())
        if manifest.step in listing.problems:
            raise OSError(listing.problems[manifest.step])
    except (tf.errors.OpError, OSError) as error:
        for name in (manifest.file, *whole.files):
            remove(f"{folder}/{name}")
        raise OSError(error.message if isinstance(error, tf.errors.OpError) else str(error)) from None
    with suppress(OSError):  # what cannot be listed or removed is tried again after the next checkpoint
        for name in obsolete(GFiles().names(folder), listing, keep, manifest.step):
            remove(f"{folder}/{name}")


def mark_final(folder: str, step: int) -> None:
    """Note in its manifest that the checkpoint of this step is the last one of its training. Failures are ignored."""
    with suppress(OSError, tf.errors.OpError):
        for manifest in list_checkpoints(folder, GFiles()).complete:
            if manifest.step == step and not manifest.final:
                write_manifest(folder, replace(manifest, final=True))


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write the manifest to a file of another name, and move it into place."""
    partial = f"{folder}/{manifest.file}.partial"
    try:
        with tf.io.gfile.GFile(partial, "w") as file:
            file.write(manifest.to_text())
        _sync(partial)  # else the name may reach the disk before the text
        tf.io.gfile.rename(partial, f"{folder}/{manifest.file}", overwrite=True)
    finally:
        remove(partial)


def _sync(path: str) -> None:
    """Wait until a local file is on the disk; object stores keep what they have acknowledged."""
    if "://" not in path:
        with Path(path).open("rb") as file:
            os.fsync(file.fileno())


def obsolete(names: Sequence[str], listing: CheckpointList, keep: int, saved: int) -> list[str]:
    """The files of checkpoints that are not among the newest `keep`, manifests first, and of those without manifest.

    A newer one that is damaged stays: it was perhaps only unreadable for a moment. So does that of step `saved`: those
    of later steps can be damaged in a way that only TensorFlow finds.
    """
    kept = {saved, *(manifest.step for manifest in listing.complete[:keep])}
    oldest = min(kept)
    kept |= {step for step in listing.problems if step > oldest}
    old = [name for name in names if (step := step_of(name)) is not None and step not in kept]
    return sorted(old, key=lambda name: (not name.endswith(".json"), name))


def remove(path: str) -> None:
    """Remove a file or folder, if it exists and can be removed."""
    with suppress(tf.errors.OpError):
        (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
