"""The hosts that the options of `host_options` select, located and connected; and what a changed hostfile changes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.hosts.locate import locate
from tfdist.launch.hosts.parse import read_hosts, with_groups
from tfdist.launch.hosts.transport import TransportOptions, ssh_words
from tfdist.launch.machine import WITHOUT_GPUS, Machine, Machines, assign_slots, machines_of, slots_of
from tfdist.launch.schedulers.table import leaking_variables, with_transport
from tfdist.strategies.options import option_words


def hostfile_changes(
    hosts: tuple[Host, ...], path: Path | None, read: Callable[[], tuple[Host, ...]]
) -> Callable[[], Sequence[Host]]:
    """A function that returns the hosts now. It reads the hostfile again when it has changed.

    If the file has changed and is wrong, the function raises a TfdistError. Until it changes again, the hosts stay.

    Args:
        hosts: those that were read last. A host that is known keeps the settings it was started with.
        path: None: the hosts never change.
        read: the hosts of the file, located. Raises a TfdistError if the file is wrong.
    """

    def signature() -> tuple[int, int, int] | None:
        with suppress(OSError):  # it is being replaced
            if path is not None:
                stat = path.stat()
                return stat.st_mtime_ns, stat.st_size, stat.st_ino
        return None

    seen = signature()

    def now() -> Sequence[Host]:
        nonlocal hosts, seen
        current = signature()
        if current not in (None, seen):
            seen = current
            known = {host.name: host for host in hosts}
            try:
                hosts = tuple(known.get(host.name, host) for host in read())
            except TfdistError as error:
                raise TfdistError(f"{error}; the job keeps its hosts") from None
        return hosts

    return now


MANY = 64
"""Number of cores and GPUs of an imagined host with plenty of both."""

_TAKE_NO_COMMAND = (".", "cd", "export", "ml", "module", "set", "setenv", "source", "ulimit", "umask", "unset")
"""Shell commands that run no other command, so a --remote-prefix that starts with one of them must end it."""


@dataclass(frozen=True)
class HostSelection:
    """The hosts of a job, located; none: only this machine."""

    hosts: tuple[Host, ...] = ()
    per_host: int | None = None
    """Workers per host; None: one per GPU, or 1."""
    options: tuple[str, ...] = ()
    """Command-line words that select the same hosts."""
    hostfile: Path | None = None
    read: Callable[[], tuple[Host, ...]] = field(default=tuple, compare=False, repr=False)
    """Reads the options and the hostfile again. Raises a TfdistError if the hostfile is wrong."""

    def changes(self, devices: int) -> Callable[[], Sequence[Host]]:
        """The hosts while a job runs, whose workers have this number of devices: those of the hostfile now."""

        def read() -> tuple[Host, ...]:
            hosts = self.read()
            for host in hosts:
                slots_of(host, 0, self.per_host, devices)  # raises if the file contradicts --workers-per-host
            return hosts

        return hostfile_changes(self.hosts, self.hostfile, read)

    def raw_machines(self, fleet: Fleet | None) -> Machines:
        """The machines as their agents report them, without slots for workers.

        Raises:
            TfdistError: GPUs of a host are unusable or misnamed.
        """
        return machines_of({LOCAL: describe()} if fleet is None else fleet.hellos)

    def machines(self, fleet: Fleet | None, devices: int) -> Machines:
        """The machines, on other hosts with slots for workers of `devices` devices each."""
        raw = self.raw_machines(fleet)
        return raw if fleet is None else assign_slots(raw, self.per_host, devices)

    def imagined(self, devices: int) -> Iterator[Machines]:
        """The machines before any is connected, without GPUs and with many; none for this machine, which is known."""
        for gpus in (0, MANY) if self.hosts else ():
            yield assign_slots({host: imagined(host, gpus) for host in self.hosts}, self.per_host, devices)


def imagined(host: Host, gpus: int) -> Machine:
    """A machine for `host` with plenty of cores and this number of GPUs, to plan a job without it."""
    if not gpus or host.gpus == WITHOUT_GPUS:
        return Machine(tuple(range(MANY)), ())
    ids = host.gpus or tuple(map(str, range(gpus)))
    return Machine(tuple(range(MANY)), ("",) * len(ids), ids)


def select_hosts(values: Mapping[str, Any]) -> HostSelection:
    """The hosts that the options select, by option name; None and [] count as not given. Nothing is connected.

    Raises:
        TfdistError: a value is wrong, or an option would have no effect.
    """
    values = {name: value for name, value in values.items() if value not in (None, [])}
    names = ("transport", "ssh", "remote_prefix", "python", "chdir")
    given = {name: values[name] for name in names if name in values}
    options = TransportOptions(**given, unset=leaking_variables(os.environ))
    per_host = values.get("workers_per_host")
    if per_host is not None and per_host < 1:
        raise TfdistError(f"--workers-per-host {per_host}: must be at least 1")
    _check_commands(options.ssh, values.get("remote_prefix"))
    hosts = _named_hosts(values, options)
    interface = values.get("interface", "")
    fixed = [host.name for host in hosts if interface and host.address]
    if fixed:
        raise TfdistError(f"--interface {interface} and addr= of {fixed[0]} in the hostfile: use only one of them")
    stray = [name for name in values if name not in ("hosts", "hostfile")]
    if not hosts and stray:
        raise TfdistError(f"{_written(stray[0], values)} has no effect without --hosts or --hostfile")
    for_ssh = [name for name in ("ssh", "remote_prefix") if name in values]
    if options.transport != "ssh" and for_ssh:
        raise TfdistError(f"{_written(for_ssh[0], values)} has no effect with {_written('transport', values)}: omit it")
    words = tuple(word for name, value in values.items() for word in option_words(name, value))
    if not hosts:
        return HostSelection()

    def read() -> tuple[Host, ...]:
        located = locate(_named_hosts(values, options), options)
        return tuple(replace(host, interface=interface) for host in located)

    return HostSelection(read(), per_host, words, values.get("hostfile"), read)


def _written(name: str, values: Mapping[str, Any]) -> str:
    return " ".join(option_words(name, values[name])[:2])


def _check_commands(ssh: str, prefix: str | None) -> None:
    try:
        words = ssh_words(ssh)
    except ValueError as error:
        raise TfdistError(f"--ssh {ssh}: {error}; correct the quotes") from None
    if not words:
        raise TfdistError("--ssh '': give the OpenSSH client, or omit it")
    for flag, key in pairwise(words):
        if flag == "-i" and "%" not in key and not Path(key).expanduser().is_file():
            raise TfdistError(f"--ssh {ssh!r}: no file {key}; give the path of a private key")
    words = (prefix or "").split()
    flag = f"--remote-prefix {prefix!r}"
    if prefix is not None and not words:
        raise TfdistError(f"{flag}: empty; omit it")
    if words and words[0] in _TAKE_NO_COMMAND and not words[-1].endswith(("&&", ";")):
        raise TfdistError(f"{flag}: {words[0]} would get the agent's command as arguments; end it with &&")


def _named_hosts(values: Mapping[str, Any], options: TransportOptions) -> tuple[Host, ...]:
    """Hosts of --hosts or --hostfile; with a scheduler's transport by default those of its job."""
    text = ",".join(values["hosts"]) if "hosts" in values else None
    file = values.get("hostfile")
    if text is not None and file is not None:
        raise TfdistError(f"{_written('hosts', values)} and {_written('hostfile', values)}: use only one of them")
    system = with_transport(options.transport)
    if text is None and file is None and system is not None:
        text = ",".join(system.nodes(os.environ))
    hosts = read_hosts(text, file, values.get("exclude", ()))
    return hosts if system is None else with_groups(hosts, system.groups(os.environ))
