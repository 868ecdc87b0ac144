"""The options that select hosts and how to reach them, shared by launch, bench and doctor."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from tfdist.cli.options import HOSTS, gather, option

_OPTIONS: Mapping[str, Any] = {
    "hosts": Annotated[
        list[str] | None,
        option(
            "--hosts",
            "Hosts: [user@]host[:slots],... or node[01-04], or localhost. Repeatable.",
            HOSTS,
            short=("-H",),
            metavar="<hosts>",
        ),
    ],
    "hostfile": Annotated[
        Path | None,
        option(
            "--hostfile",
            "File with one host per line: "
            "[user@]host [slots=N] [role=ps] [addr=A] [port=P] [gpus=0,1] [python=P] [chdir=D].",
            HOSTS,
        ),
    ],
    "include": Annotated[
        list[str] | None,
        option("--include", "Use only hosts that match, for example 'node0*'. Repeatable.", HOSTS, metavar="<pattern>"),
    ],
    "exclude": Annotated[
        list[str] | None, option("--exclude", "Do not use hosts that match. Repeatable.", HOSTS, metavar="<pattern>")
    ],
    "workers_per_host": Annotated[
        int | None, option("--workers-per-host", "Number of workers per host. Default: one per GPU, or 1.", HOSTS)
    ],
    "transport": Annotated[
        str | None, option("--transport", "ssh (default), srun, or exec:'kubectl exec -i {host} --'.", HOSTS)
    ],
    "ssh": Annotated[str | None, option("--ssh", "OpenSSH client. Default: ssh.", HOSTS)],
    "ssh_option": Annotated[
        list[str] | None,
        option(
            "--ssh-option",
            "Option for ssh -o, for example 'ProxyJump=gate'. Repeatable.",
            HOSTS,
            metavar="<key=value>",
        ),
    ],
    "identity": Annotated[Path | None, option("--identity", "Private key, as ssh -i.", HOSTS)],
    "ssh_port": Annotated[int | None, option("--ssh-port", "Port of sshd on the hosts.", HOSTS)],
    "python": Annotated[
        str | None,
        option(
            "--python", "Python on other hosts. Default: the path of this one if it exists there, else python3.", HOSTS
        ),
    ],
    "chdir": Annotated[
        str | None,
        option(
            "--chdir", "Working directory on the hosts. Default: the current one if it exists there, else home.", HOSTS
        ),
    ],
}


FOR_A_BENCH = tuple(name for name in _OPTIONS if name != "workers_per_host")
"""A suite sets the number of workers of each arm."""


def host_options(only: tuple[str, ...] = tuple(_OPTIONS)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `selection` is the HostSelection that they mean."""
    return gather("selection", {name: _OPTIONS[name] for name in only}, _select)


def _select(values: Mapping[str, Any]) -> Any:
    from tfdist.cli.host_selection import select_hosts  # not needed by --help

    return select_hosts(values)
