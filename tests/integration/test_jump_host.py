"""Logins through a jump host that drops some of them: an sshd closes connections above its MaxStartups."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tfdist.launch.agents.connect import connect
from tfdist.launch.hosts.locate import locate
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.hosts.transport import TransportOptions

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
LogLevel VERBOSE
MaxStartups {startups}
"""
CLIENT = """\
Host gate
  Port {gate}
Host n*
  Port {target}
  ProxyJump gate
Host *
  HostName 127.0.0.1
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known_hosts
"""


@contextmanager
def sshd(folder: Path, name: str, startups: str) -> Iterator[int]:
    """An sshd; its port."""
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server and openssh-client are not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd requires it for privilege separation
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / name).write_text(SERVER.format(port=port, folder=folder, startups=startups))
    command = [server, "-D", "-f", str(folder / name), "-E", str(folder / f"{name}.log")]
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + 10
        while "listening" not in ((folder / f"{name}.log").read_text() if (folder / f"{name}.log").exists() else ""):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def behind_jump_host(folder: Path, startups: str) -> Iterator[Path]:
    """A client for --ssh that reaches the hosts n* through a jump host with this MaxStartups."""
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with ExitStack() as stack:
        gate, target = (stack.enter_context(sshd(folder, *each)) for each in (("gate", startups), ("target", "100")))
        (folder / "config").write_text(CLIENT.format(gate=gate, target=target, folder=folder))
        client = folder / "ssh"
        client.write_text(f'#!/bin/sh\nexec ssh -F "{folder}/config" "$@"\n')
        client.chmod(0o700)
        known = subprocess.run([str(client), "n1", "true"], capture_output=True, text=True)  # accepts the host keys
        if known.returncode:
            pytest.skip(f"login to a private sshd failed: {known.stderr.strip()}")
        yield client


@pytest.mark.parametrize(
    ("number", "startups", "drops"),
    [(12, "3:100:3", True), pytest.param(64, "10:30:100", False, marks=pytest.mark.thorough)],
    ids=["small", "default"],
)
def test_all_hosts_are_connected_through_a_jump_host_with_few_startups(number, startups, drops, tmp_path, survivors):
    with behind_jump_host(tmp_path, startups) as client:
        hosts = locate(parse_hosts(f"n[1-{number}]"), TransportOptions(ssh=str(client)))
        assert {host.gateway for host in hosts} == {"gate"}
        with connect(hosts) as fleet:
            assert list(fleet.hellos) == list(hosts)
        assert ("drop connection" in (tmp_path / "gate.log").read_text()) is drops
    assert survivors() == []
