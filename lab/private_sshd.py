"""A private sshd on a free port of 127.0.0.1, with its own keys and configuration."""

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
"""Aliases of this machine in the configuration of the client."""
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
    """The sshd cannot run on this machine."""


@contextmanager
def private_sshd(folder: Path) -> Iterator[Path]:
    """Run an sshd; yield the path of a client for --ssh that knows the hosts NAMES.

    Raises:
        NoSshdError: OpenSSH is not installed, or login fails.
    """
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if server is None or shutil.which("ssh") is None:
        raise NoSshdError("openssh-server and openssh-client are not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = write_configuration(folder, port)
    if os.geteuid() == 0:
        # sshd requires it for privilege separation; its package creates it only at boot.
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([server, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_for(client, process)
        yield client
    finally:
        process.terminate()
        process.wait()


def write_configuration(folder: Path, port: int) -> Path:
    """Create keys and the configurations of server and client; the path of the client."""
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    values = {"port": port, "folder": folder, "names": " ".join(NAMES)}
    (folder / "sshd_config").write_text(SERVER.format(**values))
    (folder / "ssh_config").write_text(CLIENT.format(**values))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    client = folder / "ssh"
    client.write_text(f'#!/bin/sh\nexec ssh -F "{folder}/ssh_config" "$@"\n')
    client.chmod(0o700)
    return client


def wait_for(client: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a command runs through ssh.

    Raises:
        NoSshdError: the sshd has exited, or no login succeeds within START_S.
    """
    deadline = time.monotonic() + START_S
    while True:
        done = subprocess.run([client, "-o", "BatchMode=yes", NAMES[0], "true"], capture_output=True, text=True)
        if done.returncode == 0:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise NoSshdError(f"login to a private sshd failed: {done.stderr.strip()}")
        time.sleep(0.05)
