"""Named hosts become reachable ones: which is this machine, how others are reached, where peers find them."""

import ipaddress
import os
import pwd
import socket
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import replace

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.hosts.transport import Reach, ssh_client, transport_of

ASK_S = 10.0
"""For `ssh -G`, which only reads files; a `Match exec` in them may take its time."""
AT_ONCE = 64
"""So many of them."""
DISCARD = 9
"""Any port will do to ask the kernel for a route; nothing is sent."""


def locate(hosts: Sequence[Host], reach: Reach) -> tuple[Host, ...]:
    """The hosts with all that it takes to reach them, and for their tasks to be reached. No connection is made.

    Raises:
        TfdistError: an unknown transport, no ssh client, a user where none can be told, or this machine under two
            names or as another user.
    """
    transport = transport_of(reach)
    stray = next((host for host in hosts if host.user and not transport.users), None)
    if stray is not None:
        raise TfdistError(f"{stray.target}: --transport {reach.transport} takes no user: leave {stray.user}@ away")
    names = own_names() if transport.machines else frozenset()
    known = [replace(host, local=is_local(host.name, names)) for host in hosts]
    check_here([host for host in known if host.local])
    others = [host for host in known if not host.local]
    found = addresses(others, reach) if transport.aliases else {host.name: host.name for host in others}
    located = [
        replace(
            host,
            address=host.address or found.get(host.name, ""),
            reach=() if host.local else transport.prefix(host, reach),
            quoted=transport.quoted and not host.local,
            python=host.python or ("" if host.local else reach.python),
            chdir=host.chdir or reach.chdir,
        )
        for host in known
    ]
    peer = next((host.address for host in located if not host.local), None)
    return tuple(host if host.address else replace(host, address=address_towards(peer)) for host in located)


def check_here(here: Sequence[Host]) -> None:
    """This machine can be in a job once, and as the present user.

    Raises:
        TfdistError: it is not so.
    """
    if len(here) > 1:
        one, other = here[0].name, here[1].name
        raise TfdistError(f"{one} and {other} are both this machine: name it once, as {one}:2 for two")
    for host in here:
        if host.user not in ("", own_user()):
            raise TfdistError(
                f"{host.target} is this machine, where tasks run as you do: leave {host.user}@ away, "
                f"or run tfdist as {host.user}"
            )


def slurm_hosts() -> tuple[Host, ...]:
    """The hosts of the present Slurm allocation, in Slurm's order.

    Source: SLURM_JOB_NODELIST (https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES).

    Raises:
        TfdistError: there is no allocation.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise TfdistError(
            "--transport srun takes its hosts from a Slurm allocation, and this is none: "
            "begin with 'salloc' or 'sbatch', or give --hosts"
        )
    return parse_hosts(nodes, "SLURM_JOB_NODELIST")


def own_names() -> frozenset[str]:
    """What this machine is called, and its addresses."""
    import psutil  # only a job that names hosts needs it

    name = socket.gethostname()
    own = {entry.address.partition("%")[0] for card in psutil.net_if_addrs().values() for entry in card}
    return frozenset(each.lower() for each in ("localhost", name, name.partition(".")[0], *own))


def own_user() -> str:
    """Who we are; empty where the number has no name, as in some containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def is_local(name: str, names: Collection[str]) -> bool:
    """Whether `name` is this machine, which has these names and addresses."""
    if name.lower() in names:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return bool(names) and (address.is_loopback or str(address) in names)


def addresses(hosts: Sequence[Host], reach: Reach) -> dict[str, str]:
    """The host name that the user's ssh configuration has for each, by name: what `ssh -G` prints.

    Raises:
        TfdistError: there is no such client, or it takes no such options.
    """
    found: dict[str, str] = {}
    for first in range(0, len(hosts), AT_ONCE):
        asked = {host.name: _asked(host, reach) for host in hosts[first : first + AT_ONCE]}
        found |= {name: _answer(name, process) for name, process in asked.items()}
    return found


def _asked(host: Host, reach: Reach) -> "subprocess.Popen[str]":
    options = (word for one in reach.ssh_options for word in ("-o", one))
    try:
        return subprocess.Popen(
            [*ssh_client(reach), *options, "-G", "--", host.target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise TfdistError(
            f"--ssh {reach.ssh}: {error.strerror}; install the OpenSSH client, or give its path"
        ) from None


def _answer(name: str, process: "subprocess.Popen[str]") -> str:
    try:
        out, err = process.communicate(timeout=ASK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise TfdistError(
            f"ssh -G {name} said nothing for {ASK_S:g} s: look at ~/.ssh/config", ExitCode.HOST_LOST
        ) from None
    if process.returncode != 0:
        said = err.strip().splitlines() or ["it said nothing"]
        raise TfdistError(f"ssh does not take these options for {name}: {said[-1]}")
    return next((line.split(" ", 1)[1] for line in out.splitlines() if line.startswith("hostname ")), name)


def address_towards(peer: str | None) -> str:
    """This machine's address as `peer` sees it; the loopback address without one."""
    if peer is None:
        return "127.0.0.1"
    try:
        family, kind, _, _, where = socket.getaddrinfo(peer, DISCARD, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):  # the latter: a name that cannot be one in DNS
        return socket.gethostname()
