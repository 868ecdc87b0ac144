"""How a host's agent is reached: an argv prefix, then the same line of Python everywhere."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfdist.launch.errors import TfdistError
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


_SSH_MENDS: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is another one than in known_hosts",
        "if the host was set up anew, run 'ssh-keygen -R {name}' and 'ssh {target}' once; else beware",
    ),
    (r"Host key verification failed", "its host key is not known", "run 'ssh {target}' once and look at the key"),
    (
        r"Permission denied \(",
        "it does not let {user} in",
        "run 'ssh-copy-id {target}', or give --identity, or the right user, as in user@{name}",
    ),
    (r"Could not resolve", "its name is not resolved", "correct the name, or add it to ~/.ssh/config or /etc/hosts"),
    (r"Connection refused", "nothing listens at its SSH port", "start sshd there, or give --ssh-port"),
    (
        r"timed out|No route to host|[Uu]nreachable|did not say hello",
        "it does not answer",
        "see that it is up and that no firewall keeps SSH out: 'ssh -v {target}'",
    ),
)
_MENDS = (
    (r"did not say hello", "it does not answer", "try it yourself: {trial}"),
    (
        r"\[Errno \d+\] .*tfdist-[0-9a-f]{12}",
        "nothing can be written into its temporary folder",
        "make room there, or set TMPDIR for who connects",
    ),
    (r"\(NotFound\)|Invalid node name", "it is not there", "correct its name"),
    (
        r"not found|No such file|Permission denied",
        "a program cannot be run there",
        "name its Python with --python, or python= in the hostfile",
    ),
    (r"too old", "its Python is too old", "name a newer one with --python, or python= in the hostfile"),
)
"""What ssh, or a shell or another program, says; the cause; and the mend."""


def explain(host: Host, words: str) -> str:
    """Why an agent could not be had on `host`: what was said there, the likely cause and the mend, in one sentence."""
    why, mend = cause_and_mend(host, words)
    return f"{host.name}: {why}; {mend}" if mend else f"{host.name}: {why}"


def cause_and_mend(host: Host, words: str) -> tuple[str, str]:
    """The two halves of `explain`; the second is empty for this machine where there is no telling."""
    said = [line.strip() for line in words.strip().splitlines() if line.strip("@ \t\r")]
    last = said[-1].rstrip(".") if said else "its stream ended without a word"
    trial = shlex.join((*host.reach, "true"))
    for pattern, cause, mend in (*(_SSH_MENDS if host.quoted else ()), *_MENDS):
        if re.search(pattern, words):
            told = {"name": host.name, "target": host.target, "user": host.user or "you", "trial": trial}
            return f"{cause.format(**told)} ({last})", mend.format(**told)
    return f"no agent could be started there ({last})", f"try it yourself: {trial}" if host.reach else ""
