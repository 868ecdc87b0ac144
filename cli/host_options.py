"""The options that say on which hosts, and how they are reached; the same for launch, bench and doctor."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from tfdist.cli.options import HOSTS, gather, option

_OPTIONS: Mapping[str, Any] = {
    "hosts": Annotated[
        list[str] | None,
        option("--hosts", "[user@]host[:slots],... or node[01-04], or localhost; may be repeated.", HOSTS, ("-H",)),
    ],
    "hostfile": Annotated[
        Path | None,
        option(
            "--hostfile",
            "A host a line: [user@]host [slots=N] [role=ps] [addr=A] [port=P] [gpus=0,1] [python=P] [chdir=D].",
            HOSTS,
        ),
    ],
    "include": Annotated[
        list[str] | None, option("--include", "Only hosts that match, as 'node0*'; may be repeated.", HOSTS)
    ],
    "exclude": Annotated[list[str] | None, option("--exclude", "No host that matches; may be repeated.", HOSTS)],
    "workers_per_host": Annotated[
        int | None, option("--workers-per-host", "Workers a host takes. Default: one a GPU, or 1.", HOSTS)
    ],
    "transport": Annotated[
        str | None, option("--transport", "ssh (default), srun, or exec:'kubectl exec -i {host} --'.", HOSTS)
    ],
    "ssh": Annotated[str | None, option("--ssh", "The OpenSSH client (default: ssh).", HOSTS)],
    "ssh_option": Annotated[
        list[str] | None, option("--ssh-option", "For ssh -o, as 'ProxyJump=gate'; may be repeated.", HOSTS)
    ],
    "identity": Annotated[Path | None, option("--identity", "A private key, as ssh -i.", HOSTS)],
    "ssh_port": Annotated[int | None, option("--ssh-port", "The port of sshd on the hosts.", HOSTS)],
    "python": Annotated[
        str | None,
        option(
            "--python", "Python on other hosts. Default: the path of this one, if it is there, else python3.", HOSTS
        ),
    ],
    "chdir": Annotated[
        str | None,
        option(
            "--chdir", "Working directory on the hosts. Default: the present one, if it is there, else home.", HOSTS
        ),
    ],
}


FOR_A_BENCH = tuple(name for name in _OPTIONS if name != "workers_per_host")
"""A suite's arms say how many workers they have."""


def host_options(only: tuple[str, ...] = tuple(_OPTIONS)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; it gets them as its parameter `selection`, a HostSelection."""
    return gather("selection", {name: _OPTIONS[name] for name in only}, _choose)


def _choose(given: Mapping[str, Any]) -> Any:
    from tfdist.cli.host_selection import select_hosts  # what the list of commands does not need

    return select_hosts(given)
