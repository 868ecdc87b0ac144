"""What the options of `host_options` mean: the hosts of a job, found and connected."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any

import typer

from tfdist.cli.options import flag_of, twin
from tfdist.launch.agents.fleet import Fleet, connect
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.locate import locate, slurm_hosts
from tfdist.launch.hosts.selection import read_hosts
from tfdist.launch.hosts.transport import TransportOptions
from tfdist.launch.machine import Machine, Machines, assign_slots, local_machines, machines_of
from tfdist.launch.policy import Policy

MANY = 64
"""Cores and GPUs of a host that is imagined to have enough."""
PATIENCE_S = 2.0
"""What takes longer is said."""


@dataclass(frozen=True)
class HostSelection:
    """The hosts of a job, located; none: this machine alone."""

    hosts: tuple[Host, ...] = ()
    per_host: int | None = None
    options: tuple[str, ...] = ()
    """The words of a command line that mean the same."""

    @contextmanager
    def connected(self, policy: Policy | None = None) -> Iterator[Fleet | None]:
        """The hosts' agents while this lasts; None for this machine alone, whose agent comes with the job."""
        if not self.hosts:
            yield None
            return
        names = ", ".join(host.name for host in self.hosts[:4]) + (", ..." if len(self.hosts) > 4 else "")
        with ExitStack() as stack:
            with said_after(PATIENCE_S, f"connecting to {names} ..."):
                fleet = stack.enter_context(connect(self.hosts, policy))
            yield fleet

    def raw_machines(self, fleet: Fleet | None) -> Machines:
        """What there is, however many workers it is to take."""
        return local_machines() if fleet is None else machines_of(fleet.hellos)

    def machines(self, fleet: Fleet | None, devices: int) -> Machines:
        """What there is, with room for workers of so many devices each."""
        raw = self.raw_machines(fleet)
        return raw if fleet is None else assign_slots(raw, self.per_host, devices)

    def try_out(self, plan: Callable[[Machines], object], devices: int) -> None:
        """Before connecting: plan for imagined hosts, so that what is wrong whatever they have is said at once.

        Raises:
            TfdistError: for hosts without GPUs and for hosts with many it cannot be planned for the same reason.
        """
        if not self.hosts:
            return
        try:
            plan(assign_slots({host: _imagined(host, 0) for host in self.hosts}, self.per_host, devices))
        except TfdistError as without_gpus:
            try:
                plan(assign_slots({host: _imagined(host, MANY) for host in self.hosts}, self.per_host, devices))
            except TfdistError as with_gpus:
                if str(with_gpus) == str(without_gpus):
                    raise with_gpus from None


def _imagined(host: Host, gpus: int) -> Machine:
    ids = host.gpus or tuple(map(str, range(gpus)))
    return Machine(tuple(range(MANY)), ("",) * len(ids) if gpus else (), ids if gpus else ())


@contextmanager
def said_after(seconds: float, words: str) -> Iterator[None]:
    """Say on stderr what is being waited for, if this takes longer than so many seconds."""
    timer = Timer(seconds, lambda: typer.echo(words, err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def select_hosts(given: Mapping[str, Any]) -> HostSelection:
    """What the options mean. No connection is made.

    Raises:
        TfdistError: one of them is wrong, or without hosts would have no effect.
    """
    chosen = {name: value for name, value in given.items() if value not in (None, [])}
    options = TransportOptions(
        transport=chosen.get("transport", "ssh"),
        ssh=chosen.get("ssh", "ssh"),
        ssh_options=tuple(chosen.get("ssh_option", ())),
        identity=str(chosen.get("identity", "")),
        ssh_port=chosen.get("ssh_port"),
        python=chosen.get("python", ""),
        chdir=chosen.get("chdir", ""),
    )
    check_values(chosen)
    hosts = named_hosts(chosen, options)
    check_used(chosen, options, hosts)
    words = tuple(word for name, value in chosen.items() for word in as_words(name, value))
    return HostSelection(locate(hosts, options), chosen.get("workers_per_host"), words) if hosts else HostSelection()


def as_words(name: str, value: Any) -> list[str]:
    """An option as it is written, once for each of its values."""
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (flag_of(name), str(one))]


def check_values(chosen: Mapping[str, Any]) -> None:
    """What can be seen to be wrong with one option by itself."""
    per_host, port, identity = (chosen.get(name) for name in ("workers_per_host", "ssh_port", "identity"))
    if per_host is not None and per_host < 1:
        raise TfdistError(f"{given('workers_per_host', chosen)}: it must be at least 1")
    if port is not None and not 1 <= port <= 65535:
        raise TfdistError(f"{given('ssh_port', chosen)}: it is not a port; sshd's is 22 as a rule")
    if identity is not None and "%" not in str(identity) and not identity.expanduser().is_file():
        raise TfdistError(f"{given('identity', chosen)}: there is no such file; give the path of a private key")


def named_hosts(chosen: Mapping[str, Any], options: TransportOptions) -> tuple[Host, ...]:
    """From --hosts or --hostfile, or for srun from the allocation."""
    text, file = ",".join(chosen["hosts"]) if "hosts" in chosen else None, chosen.get("hostfile")
    patterns = chosen.get("include", ()), chosen.get("exclude", ())
    if text is not None and file is not None:
        raise TfdistError(f"{given('hosts', chosen)} and {given('hostfile', chosen)}: give one of them")
    if text is None and file is None and options.transport == "srun":
        text = ",".join(host.name for host in slurm_hosts())
    return read_hosts(text, file, *patterns)


def check_used(chosen: Mapping[str, Any], options: TransportOptions, hosts: tuple[Host, ...]) -> None:
    """An option that would have no effect is refused."""
    stray = [name for name in chosen if name not in ("hosts", "hostfile")]
    if not hosts and stray:
        raise TfdistError(f"{given(stray[0], chosen)} has no effect without --hosts or --hostfile")
    for_ssh = [name for name in ("ssh", "ssh_option", "identity", "ssh_port") if name in chosen]
    if options.transport != "ssh" and for_ssh:
        told = given(for_ssh[0], chosen)
        raise TfdistError(f"{told} has no effect with {given('transport', chosen)}: leave it away")


def given(name: str, chosen: Mapping[str, Any]) -> str:
    """An option as it was written, or the variable that stands for it, with its value."""
    value, variable = chosen[name], twin(name)
    text = str(value[0] if isinstance(value, list) else value)
    there = os.environ.get(variable, "")
    return f"{variable if text in (there, *there.split()) else flag_of(name)} {text}"
