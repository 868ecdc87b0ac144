"""A host of a job: how it is called, reached and used."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """One host of a job."""

    name: str
    """As the user calls it."""
    address: str = ""
    """Where the other hosts' tasks reach its tasks; empty until it is looked up."""
    local: bool = False
    """It is this machine: its agent is started without a prefix."""
    user: str = ""
    slots: int | None = None
    """How many workers it takes; None: as many as --workers-per-host says."""
    role: str = ""
    """It takes tasks of this role only; empty: of any."""
    port: int | None = None
    """Its first task's port, in place of --port."""
    gpus: tuple[str, ...] = ()
    """Which of its GPUs may be used, as in CUDA_VISIBLE_DEVICES; empty: all."""
    python: str = ""
    chdir: str = ""
    reach: tuple[str, ...] = ()
    """The argv prefix that runs a command there; empty for this machine."""
    quoted: bool = False
    """What stands behind the prefix goes through a shell there, as with ssh."""

    @property
    def target(self) -> str:
        """`user@name`, for the program that connects."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def bare(self) -> bool:
        """Its Python may not have our package, so it is sent there."""
        return not self.local or bool(self.python)

    def endpoint(self, port: int) -> str:
        """`address:port` as TF_CONFIG has it; an IPv6 address is in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


LOCAL = Host("localhost", "127.0.0.1", local=True)
