"""Which host is this machine, how the others are reached, and at which addresses tasks find each other."""

import ipaddress
import os
import pwd
import socket
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import Transport, TransportOptions, ssh_words, transport_of

SSH_CONFIG_S = 10.0
"""Timeout of `ssh -G`. It only reads files, but a `Match exec` in them may be slow."""
MAX_PROCESSES = 64
"""`ssh -G` processes at the same time."""
DISCARD_PORT = 9
"""Any port would do: the socket is only used to find a route, and nothing is sent."""


def locate(hosts: Sequence[Host], options: TransportOptions) -> tuple[Host, ...]:
    """The hosts with prefixes, addresses and defaults filled in. Makes no connection.

    Raises:
        TfdistError: the transport is unknown or does not support users, ssh is missing or rejects its options, or this
            machine is listed twice or as another user.
    """
    transport = transport_of(options)
    with_user = next((host for host in hosts if host.user and not transport.is_ssh), None)
    if with_user is not None:
        raise TfdistError(
            f"{with_user.target}: --transport {options.transport} does not support users; remove {with_user.user}@"
        )
    marked = _marked(hosts, frozenset() if transport.has_template else local_names())
    configs = _ssh_configs([host for host in marked if not host.local], options) if transport.is_ssh else {}
    located = [
        replace(host, chdir=host.chdir or options.chdir)
        if host.local
        else _reached(host, transport, options, configs.get(host.name, {}))
        for host in marked
    ]
    peer = next((host.address for host in located if not host.local), None)
    return tuple(host if host.address else replace(host, address=address_towards(peer)) for host in located)


def _marked(hosts: Sequence[Host], names: Collection[str]) -> list[Host]:
    """The hosts, of which at most one, with the current user, is this machine."""
    marked = [replace(host, local=is_local(host.name, names)) for host in hosts]
    here = [host for host in marked if host.local]
    if len(here) > 1:
        first, second = here[0].name, here[1].name
        raise TfdistError(f"{first} and {second} are both this machine; list it once, with {first}:2 for two workers")
    for host in here:
        if host.user not in ("", current_user()):
            raise TfdistError(
                f"{host.target} is this machine, where tasks run as the current user; "
                f"remove {host.user}@, or run tfdist as {host.user}"
            )
    return marked


def _reached(host: Host, transport: Transport, options: TransportOptions, config: Mapping[str, str]) -> Host:
    """Another host, with how to reach it; `config` is its ssh configuration."""
    gateway = config.get("proxyjump", "") or config.get("proxycommand", "")
    return replace(
        host,
        address=host.address or config.get("hostname", host.name),
        gateway="" if gateway == "none" else gateway,
        prefix=transport.prefix(host, options),
        needs_quoting=transport.needs_quoting,
        needs_shield=transport.needs_shield,
        remote_prefix=options.remote_prefix,
        python=host.python or options.python,
        chdir=host.chdir or options.chdir,
    )


def local_names() -> frozenset[str]:
    """Names and addresses of this machine, in lower case."""
    import psutil  # only jobs with named hosts need it

    name = socket.gethostname()
    addresses = {entry.address.partition("%")[0] for card in psutil.net_if_addrs().values() for entry in card}
    return frozenset(each.lower() for each in ("localhost", name, name.partition(".")[0], *addresses))


def current_user() -> str:
    """The name of the effective user; empty if it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def is_local(name: str, names: Collection[str]) -> bool:
    """Whether `name` is this machine, given `local_names()`; never if `names` is empty."""
    if name.lower() in names:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return bool(names) and (address.is_loopback or str(address) in names)


def _ssh_configs(hosts: Sequence[Host], options: TransportOptions) -> Mapping[str, Mapping[str, str]]:
    """The ssh configuration of each host, by name."""
    from concurrent.futures import ThreadPoolExecutor  # only jobs on other hosts need it

    with ThreadPoolExecutor(MAX_PROCESSES) as pool:
        found = pool.map(lambda host: _ssh_config(host, options), hosts)  # the first failure cancels the others
        return dict(zip((host.name for host in hosts), found, strict=True))


def _ssh_config(host: Host, options: TransportOptions) -> dict[str, str]:
    # `ssh -G` prints what the user's ssh configuration has for an alias: hostname, proxyjump, ...
    command = [*ssh_words(options.ssh), "-G", "--", host.target]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SSH_CONFIG_S
        )
    except OSError as error:
        raise TfdistError(
            f"--ssh {options.ssh}: {error.strerror}; install the OpenSSH client, or set --ssh to its path"
        ) from None
    except subprocess.TimeoutExpired:
        raise TfdistError(
            f"ssh -G {host.name}: no answer within {SSH_CONFIG_S:g} s; check ~/.ssh/config", ExitCode.HOST_LOST
        ) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise TfdistError(f"ssh -G {host.name}: {lines[-1]}; check --ssh and ~/.ssh/config")
    return {name: value for name, _, value in (line.partition(" ") for line in done.stdout.splitlines())}


def address_towards(peer: str | None) -> str:
    """The address of this machine on the route to `peer`; the loopback address for None, the host name on failure."""
    if peer is None:
        return "127.0.0.1"
    try:
        family, kind, _, _, address = socket.getaddrinfo(peer, DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as udp:
            udp.connect(address)
            return str(udp.getsockname()[0])
    except (OSError, UnicodeError):  # UnicodeError: not a valid DNS name
        return socket.gethostname()
