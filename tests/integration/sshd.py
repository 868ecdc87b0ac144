"""An sshd with its own key for each host in a network namespace, and an ssh client configuration for them."""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .nethost import SYSTEM_PATH, NetHost, command

START_S = 10.0


def make_keys(folder: Path, hosts: Sequence[NetHost]) -> None:
    """Create keys for the user and the hosts, files of known hosts, and the configuration of the client."""
    names = ("id", "other", *(f"{host.name}.key" for host in hosts))
    for name in names:
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    public = {name: (folder / f"{name}.pub").read_text().strip() for name in names}
    known_hosts = "".join(f"{host.address} {public[f'{host.name}.key']}\n" for host in hosts)
    (folder / "known").write_text(known_hosts)
    (folder / "changed").write_text(f"{hosts[0].address} {public['other']}\n")
    (folder / "unknown").write_text("")
    (folder / "config").write_text(client_configuration(folder, hosts))
    (folder / "ssh").write_text(f'#!/bin/sh\nexec ssh -F "{folder}/config" "$@"\n')
    (folder / "ssh").chmod(0o755)


def client_configuration(folder: Path, hosts: Sequence[NetHost]) -> str:
    """Aliases of the hosts; `changed` and `unknown` for h1 with a wrong or missing known host key; `gone` for no host."""
    first = hosts[0].address
    names = {host.name: (host.address, "known") for host in hosts}
    names |= {"changed": (first, "changed"), "unknown": (first, "unknown"), "gone": ("10.77.0.99", "known")}
    blocks = [
        f'Host {name}\n HostName {address}\n UserKnownHostsFile "{folder}/{known}"\n'
        for name, (address, known) in names.items()
    ]
    return "".join(blocks) + (
        f'Host *\n User root\n IdentityFile "{folder}/id"\n IdentitiesOnly yes\n GlobalKnownHostsFile /dev/null\n'
    )


def start_sshd(host: NetHost, core: int) -> None:
    """Start the sshd of a host, pinned to one core with all its children, and wait until it listens."""
    Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd requires it for privilege separation
    settings = {
        "ListenAddress": host.address,
        "HostKey": f'"{host.folder}/{host.name}.key"',
        "PidFile": f'"{pid_file(host)}"',
        "AuthorizedKeysFile": f'"{host.folder}/id.pub"',
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "LogLevel": "ERROR",
    }
    configuration = host.folder / f"{host.name}.sshd"
    configuration.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    sshd = shutil.which("sshd", path=SYSTEM_PATH)
    assert sshd is not None
    log = host.folder / f"{host.name}.log"
    host.run("taskset", "--cpu-list", str(core), sshd, "-f", str(configuration), "-E", str(log))
    until = time.monotonic() + START_S
    while not pid_file(host).exists():  # written when it listens
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.02)


def pid_file(host: NetHost) -> Path:
    """The PID file of the host's sshd."""
    return host.folder / f"{host.name}.pid"


def stop_sshd(host: NetHost) -> None:
    """Stop the host's sshd, if it was started."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid_file(host).read_text()), signal.SIGTERM)
