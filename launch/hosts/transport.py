"""How a host's agent is reached: an argv prefix, then the same line of Python everywhere."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfdist.launch.errors import Problem, TfdistError
from tfdist.launch.hosts.host import Host

CONNECT_TIMEOUT_S = 8


@dataclass(frozen=True)
class Reach:
    """How the user wants hosts to be reached."""

    transport: str = "ssh"
    """`ssh`, `srun`, or `exec:` and a command with {host} in it."""
    ssh: str = "ssh"
    ssh_options: tuple[str, ...] = ()
    """As behind ssh's -o."""
    identity: str = ""
    ssh_port: int | None = None
    python: str = ""
    chdir: str = ""


def ssh(host: Host, reach: Reach) -> tuple[str, ...]:
    """The system's OpenSSH client. It never asks for a password, and checks host keys as the user's own set-up says."""
    ours, unless_told = ("BatchMode=yes", "RemoteCommand=none"), (f"ConnectTimeout={CONNECT_TIMEOUT_S}",)
    options = (*ours, *reach.ssh_options, *unless_told)  # of two of a kind ssh takes the first
    return (*ssh_client(reach), "-T", *(word for one in options for word in ("-o", one)), "--", host.target)


def ssh_client(reach: Reach) -> tuple[str, ...]:
    """The client with what says where it connects, as `ssh -G` needs it too."""
    port = ("-p", str(reach.ssh_port)) if reach.ssh_port else ()
    return (reach.ssh, *port, *(("-i", reach.identity) if reach.identity else ()))


def srun(host: Host, reach: Reach) -> tuple[str, ...]:
    """A step beside others in the present Slurm allocation, with all that the allocation has on that node."""
    step = ("--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet", "--job-name=tfdist")
    return ("srun", *step, f"--nodelist={host.name}")


def execute(host: Host, reach: Reach) -> tuple[str, ...]:
    """A command of the user's, as `kubectl exec -i {host} --`."""
    return tuple(word.replace("{host}", host.name) for word in shlex.split(reach.transport.removeprefix("exec:")))


@dataclass(frozen=True)
class Transport:
    """One way to run a command on a host."""

    prefix: Callable[[Host, Reach], tuple[str, ...]]
    quoted: bool = False
    """It hands the command to a shell there, as one text."""
    machines: bool = True
    """Its hosts are machines, so one of them may be this one; False: pods and the like."""
    aliases: bool = False
    """A host's name may be an alias, whose address only the client knows."""
    users: bool = False
    """It can be told as whom to connect."""


TRANSPORTS: Mapping[str, Transport] = {
    "ssh": Transport(ssh, quoted=True, aliases=True, users=True),
    "srun": Transport(srun),
    "exec": Transport(execute, machines=False),
}


def transport_of(reach: Reach) -> Transport:
    """The row of the table.

    Raises:
        TfdistError: there is none of that name, or `exec:` has no usable command.
    """
    kind, colon, command = reach.transport.partition(":")
    if kind not in TRANSPORTS or (kind == "exec") != bool(colon):
        raise TfdistError(
            f"--transport {reach.transport}: choose ssh, srun, or a command as in exec:'kubectl exec -i {{host}} --'"
        )
    if kind == "exec":
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise TfdistError(f"--transport {reach.transport}: {error}; close the quote") from None
        if not any("{host}" in word for word in words):
            raise TfdistError(f"--transport {reach.transport}: write {{host}} where the host's name belongs")
    return TRANSPORTS[kind]


_Fault = tuple[str, str, str]
"""A pattern in what a shell or another program printed, the cause, and the fix."""

_SSH_FAULTS: tuple[_Fault, ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key differs from the one in known_hosts",
        "if the host was reinstalled, run 'ssh-keygen -R {name}' and 'ssh {target}' once; otherwise do not connect",
    ),
    (r"Host key verification failed", "the host key is unknown", "run 'ssh {target}' once and check the key"),
    (
        r"Permission denied \(",
        "login denied for {user}",
        "run 'ssh-copy-id {target}', pass --identity, or name another user: USER@{name}",
    ),
    (
        r"Could not resolve",
        "the name cannot be resolved",
        "correct the name, or add it to ~/.ssh/config or /etc/hosts",
    ),
    (r"Connection refused", "nothing listens on the SSH port", "start sshd on the host, or pass --ssh-port"),
    (
        r"timed out|No route to host|[Uu]nreachable|did not say hello",
        "the host does not answer",
        "check that it is up and that no firewall blocks SSH: 'ssh -v {target}'",
    ),
)
_FAULTS: tuple[_Fault, ...] = (
    (r"did not say hello", "the host does not answer", "run this to see why: {trial}"),
    (
        r"\[Errno \d+\] .*tfdist-[0-9a-f]{12}",
        "the temporary folder is not writable",
        "free some space, or set TMPDIR for the user that connects",
    ),
    (r"\(NotFound\)|Invalid node name", "there is no such host", "correct the name"),
    (
        r"not found|No such file|Permission denied",
        "a program cannot be run",
        "name the Python with --python, or python= in the hostfile",
    ),
    (r"too old", "the Python is too old", "name a newer one with --python, or python= in the hostfile"),
)


def connection_problem(host: Host, output: str) -> Problem:
    """Why no agent could be started on `host`: the likely cause, from what ssh, a shell or the agent printed."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip("@ \t\r")]
    last = lines[-1].rstrip(".") if lines else "its stream ended without output"
    trial = shlex.join((*host.reach, "true"))
    for pattern, cause, fix in (*(_SSH_FAULTS if host.quoted else ()), *_FAULTS):
        if re.search(pattern, output):
            values = {"name": host.name, "target": host.target, "user": host.user or "you", "trial": trial}
            return Problem(f"{cause.format(**values)} ({last})", fix.format(**values), host.name)
    fix = f"run this to see why: {trial}" if host.reach else "check that the folder for temporary files is writable"
    return Problem(f"no agent could be started ({last})", fix, host.name)
