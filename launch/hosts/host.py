"""A host of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfdist.launch.errors import TfdistError


@dataclass(frozen=True)
class Host:
    """One host of a job: its name, how to run commands on it, and which tasks it takes."""

    name: str
    """The name as the user writes it."""
    address: str = field(default="", compare=False)
    """Address at which tasks on other hosts connect to its tasks; empty until `locate` has run."""
    interface: str = ""
    """The network interface whose address that is, known once its agent has described the host; empty: any."""
    local: bool = False
    """It is this machine, so its agent is started without a prefix."""
    user: str = ""
    slots: int | None = None
    """Number of workers; None: as --workers-per-host."""
    role: str = ""
    """The only role of its tasks; empty: any role."""
    port: int | None = None
    """Port of its first task; None: as --port."""
    gpus: tuple[str, ...] = ()
    """GPUs that tasks may use, as in CUDA_VISIBLE_DEVICES; empty: all."""
    python: str = ""
    chdir: str = ""
    prefix: tuple[str, ...] = ()
    """The argv prefix that runs a command on the host; empty for this machine."""
    needs_quoting: bool = False
    """The command is passed to a shell on the host as one word, as ssh does: in place of {command} in the prefix, or at
    its end."""
    remote_prefix: str = ""
    """Shell words before the command, if it `needs_quoting`."""
    needs_shield: bool = False
    """Whether SIGTERM makes the program that runs the command on the host kill it (`agents/channel.py`)."""
    het_group: int | None = None
    """Group of a heterogeneous Slurm job; None in any other job."""
    gateway: str = ""
    """The jump host or proxy command of ssh; empty: none."""

    @property
    def target(self) -> str:
        """`user@name`, or `name` if there is no user."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def needs_package(self) -> bool:
        """Whether tfdist must be sent to the host, since its Python may not have it."""
        return not self.local or bool(self.python)

    def at_interface(self, hello: Mapping[str, Any]) -> "Host":
        """The host at the address of its interface, from its description.

        Raises:
            TfdistError: it has no such interface, or that has no address.
        """
        if not self.interface:
            return self
        addresses = hello["interfaces"]
        if not addresses.get(self.interface):
            others = ", ".join(f"{name} ({each[0]})" for name, each in addresses.items() if each) or "none"
            raise TfdistError(
                f"--interface {self.interface}: {self.name} has no such interface with an address; it has {others}"
            )
        return replace(self, address=addresses[self.interface][0])

    def endpoint(self, port: int) -> str:
        """`address:port` as in TF_CONFIG, with an IPv6 address in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


LOCAL = Host("localhost", "127.0.0.1", local=True)
