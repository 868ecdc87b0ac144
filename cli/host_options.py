"""The options that select hosts and how to reach them, shared by launch, bench and doctor."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfdist.cli.host_selection import select_hosts
from tfdist.cli.options import HOSTS, annotation, gather

_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("hosts", list[str], "Hosts: [user@]host[:slots],... or node[01-04], or localhost. Repeatable."),
    ("hostfile", Path, "File with one host per line: [user@]host [slots=N] [role=ps] [addr=A] [port=P] [gpus=0,1] [python=P] [chdir=D]."),
    ("include", list[str], "Use only hosts that match, for example 'node0*'. Repeatable."),
    ("exclude", list[str], "Do not use hosts that match. Repeatable."),
    ("workers_per_host", int, "Number of workers per host. Default: one per GPU, or 1."),
    ("transport", str, "ssh (default), srun, exec:'kubectl exec -i {host} --', or shell:'ssh {host} apptainer exec tf.sif {command}'."),
    ("ssh", str, "OpenSSH client. Default: ssh."),
    ("ssh_option", list[str], "Option for ssh -o, for example 'ProxyJump=gate'. Repeatable."),
    ("identity", Path, "Private key, as ssh -i."),
    ("ssh_port", int, "Port of sshd on the hosts."),
    ("remote_prefix", str, "Words before the command on other hosts, for their login shell: 'module load cuda &&', 'apptainer exec tf.sif'."),
    ("python", str, "Python on other hosts. Default: the path of this one if it exists there, else python3."),
    ("chdir", str, "Working directory on the hosts. Default: the current one if it exists there, else home."),
)  # fmt: skip
_OPTIONS: Mapping[str, Any] = {name: annotation(name, kind, HOSTS, text) for name, kind, text in _ROWS}
FOR_A_BENCH = tuple(name for name in _OPTIONS if name != "workers_per_host")
"""A suite sets the number of workers of each arm."""


def node_options() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options about hosts that a scheduler chooses; its parameter `on_nodes` maps names to values."""
    return gather("on_nodes", {name: _OPTIONS[name] for name in ("workers_per_host", "python", "chdir")}, dict)


def host_options(only: tuple[str, ...] = tuple(_OPTIONS)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `selection` is the HostSelection that they mean."""
    return gather("selection", {name: _OPTIONS[name] for name in only}, _select)


def _select(values: Mapping[str, Any]) -> Any:
    return select_hosts(values)
