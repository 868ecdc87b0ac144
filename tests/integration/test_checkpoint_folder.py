"""Before tasks start: hosts that see different folders under one path, or cannot write there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CARRIER = """#!/bin/sh
host=$1; shift
if [ $host = h2 ]; then exec unshare --mount sh -c '{mount} && exec "$@"' sh "$@"; fi
exec "$@"
"""
"""Runs the agent of h2 with mounts of its own."""
OTHER_DISK = 'mount -t tmpfs none "{folder}"'
OPEN = 'mount -t tmpfs -o mode=0777 none "{folder}"'
READ_ONLY = 'mount --bind "{folder}" "{folder}" && mount -o remount,ro,bind "{folder}"'


@pytest.fixture(autouse=True)
def _can_mount():
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("mounts of one process need root and unshare")


def launch(tmp_path, mount):
    """Two workers, one on h1 and one on h2, with checkpoints in the folder `shared/it's`."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "carrier").write_text(CARRIER.format(mount=mount.format(folder=tmp_path / "shared")))
    (tmp_path / "carrier").chmod(0o700)
    (tmp_path / "hosts").write_text("".join(f"{host} addr=127.0.0.1 slots=1\n" for host in ("h1", "h2")))
    hosts = ["--hostfile", "hosts", "--transport", f"exec:{tmp_path}/carrier {{host}}"]
    options = ["--strategy", "multiworker", "--checkpoint-dir", "shared/it's", "--quiet"]
    command = [sys.executable, "-m", "tfdist", "launch", *hosts, *options, "--", "sh", "-c", 'echo "$TFDIST_TASK"']
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_a_shared_folder_is_used_and_left_empty(tmp_path):
    done = launch(tmp_path, "true")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["[worker-0]", "[worker-1]", "worker-0", "worker-1"])
    assert list(Path(tmp_path, "shared", "it's").iterdir()) == []


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (OTHER_DISK, "is not that of h1; choose a folder on a disk that all hosts share, with --checkpoint-dir"),
        (READ_ONLY, "cannot be written (Permission denied); choose another one with --checkpoint-dir"),
        (
            OPEN,
            "is not safe: every user may rename what is in {shared}; run 'chmod o-w' or 'chmod +t' on it; or choose "
            "another one with --checkpoint-dir",
        ),
    ],
)
def test_a_folder_that_one_host_sees_differently_is_refused(mount, why, tmp_path):
    done = launch(tmp_path, mount)
    assert (
        done.stderr.splitlines()[-1]
        == f"tfdist: h2: the checkpoint folder {tmp_path}/shared/it's {why.format(shared=tmp_path / 'shared')}"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert list(Path(tmp_path, "shared", "it's").iterdir()) == []


def test_a_host_without_a_safe_folder_for_temporary_files_is_refused(tmp_path):
    done = launch(tmp_path, "mount -t tmpfs -o mode=0777 none /tmp && export HOME=/none TMPDIR= XDG_RUNTIME_DIR=")
    assert done.stderr.splitlines()[-1] == (
        "tfdist: h2: other users could exchange the files that tfdist runs (no safe folder for temporary files: every "
        "user may rename what is in /tmp; run 'chmod o-w' or 'chmod +t' on it, or set TMPDIR to one of your own); do so "
        "for the user that connects"
    )
    assert done.stdout == ""
