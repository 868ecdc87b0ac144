"""An sshd of our own on 127.0.0.1, at a free port, with keys of its own: nothing of this machine's set-up is used."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 10.0
NAMES = ("tfdist-h1", "tfdist-h2")
"""Both are this machine, as far as ssh knows."""
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
"""
CLIENT = """\
Host {names}
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""


class NoSshdError(Exception):
    """Why there can be none here."""


@contextmanager
def private_sshd(folder: Path) -> Iterator[Path]:
    """The client to give to --ssh while this lasts; it knows the hosts of NAMES.

    Raises:
        NoSshdError: it is not installed, or lets us not in.
    """
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if server is None or shutil.which("ssh") is None:
        raise NoSshdError("openssh-server and openssh-client are not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = write_set_up(folder, port)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives up its rights; its package makes it at boot only
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([server, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_for(client, process)
        yield client
    finally:
        process.terminate()
        process.wait()


def write_set_up(folder: Path, port: int) -> Path:
    """Keys and both configurations; the client that uses them."""
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    told = {"port": port, "folder": folder, "names": " ".join(NAMES)}
    (folder / "sshd_config").write_text(SERVER.format(**told))
    (folder / "ssh_config").write_text(CLIENT.format(**told))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    client = folder / "ssh"
    client.write_text(f'#!/bin/sh\nexec ssh -F "{folder}/ssh_config" "$@"\n')
    client.chmod(0o700)
    return client


def wait_for(client: Path, process: "subprocess.Popen[bytes]") -> None:
    """Until a command runs through it.

    Raises:
        NoSshdError: none does in time.
    """
    until = time.monotonic() + START_S
    while True:
        asked = subprocess.run([client, "-o", "BatchMode=yes", NAMES[0], "true"], capture_output=True, text=True)
        if asked.returncode == 0:
            return
        if process.poll() is not None or time.monotonic() > until:
            raise NoSshdError(f"a private sshd does not let us in: {asked.stderr.strip()}")
        time.sleep(0.05)
