"""Transports: how a command is run on a host, as an argv prefix; and why that fails, with the fix."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfdist.launch.errors import Problem, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.redact import redact_command
from tfdist.launch.schedulers.table import BATCH_SYSTEMS, BatchSystem

CONNECT_TIMEOUT_S = 8
_LONGEST = 200  # characters of a line in a message
_COMMAND = re.compile(r"\{command(?::([1-5]))?\}")  # the quoted text grows fivefold with each shell


@dataclass(frozen=True)
class TransportOptions:
    """The user's choices for all hosts."""

    transport: str = "ssh"
    """`ssh`, that of a scheduler, or `exec:` or `shell:` and a command that contains {host}."""
    ssh: str = "ssh"
    """The ssh client, with options of its own."""
    remote_prefix: str = ""
    """Shell words before the command on each host, for ssh."""
    python: str = ""
    """Default of `Host.python`."""
    chdir: str = ""
    """Default of `Host.chdir`."""
    unset: tuple[str, ...] = ()
    """Variables of our environment that no step of a scheduler's job may see."""


def ssh(host: Host, options: TransportOptions) -> tuple[str, ...]:
    """The system's OpenSSH client. It never prompts, and checks host keys as the user has configured.

    It forwards nothing unless the options of `--ssh` ask for it: root on a host could use a forwarded agent or display.
    """
    client, *words = ssh_words(options.ssh)
    no_forwarding = ("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes")
    defaults = (*no_forwarding, "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}")  # the first value of an option wins
    fixed = ("-T", "-o", "BatchMode=yes", "-o", "RemoteCommand=none")
    return (client, *fixed, *words, *defaults, "--", host.target)


def ssh_words(text: str) -> list[str]:
    """The words of `--ssh`: a path, which may have spaces, or a command.

    Raises:
        ValueError: an open quote.
    """
    return [text] if os.path.isfile(text) else shlex.split(text)  # noqa: PTH113 - Path raises if a command is too long for a name


def custom(host: Host, options: TransportOptions) -> tuple[str, ...]:
    """The user's own command, for example `kubectl exec -i {host} --` after `exec:`."""
    command = options.transport.partition(":")[2]
    return tuple(word.replace("{host}", host.name) for word in shlex.split(command))


def command_on(host: Host, command: Sequence[str]) -> tuple[str, ...]:
    """What to run here so that `command` runs on `host`.

    For a shell on the host, the command is one word, quoted once for each shell that parses it: {command} for one,
    {command:2} for two.
    """
    if not host.needs_quoting:
        return (*host.prefix, *command)
    words = host.prefix if any(map(_COMMAND.search, host.prefix)) else (*host.prefix, "{command}")
    text = f"{host.remote_prefix} {shlex.join(command)}".strip()
    return tuple(_COMMAND.sub(lambda match: _quoted(text, int(match[1] or 1)), word) for word in words)


def _quoted(text: str, shells: int) -> str:
    return text if shells == 1 else shlex.quote(_quoted(text, shells - 1))


@dataclass(frozen=True)
class Transport:
    """One way to run a command on a host, and what it supports."""

    prefix: Callable[[Host, TransportOptions], tuple[str, ...]]
    has_template: bool = False
    """The user writes the command after its name and a colon. Its hosts may be pods, so none is this machine."""
    needs_quoting: bool = False
    """It passes the command to a shell on the host, as one string."""
    is_ssh: bool = False
    """Hosts may have users, and their names may be aliases in the ssh configuration."""
    needs_shield: bool = False
    """`Host.needs_shield` of its hosts."""


def _steps(system: BatchSystem) -> Transport:
    """A step of the scheduler's current job on each host."""
    return Transport(
        lambda host, options: system.step(host.name, host.het_group, options.unset),
        needs_shield=system.STEP_DIES_ON_SIGTERM,
    )


TRANSPORTS: Mapping[str, Transport] = {
    "ssh": Transport(ssh, needs_quoting=True, is_ssh=True),
    **{system.TRANSPORT: _steps(system) for system in BATCH_SYSTEMS},
    "exec": Transport(custom, has_template=True),
    "shell": Transport(custom, has_template=True, needs_quoting=True),
}


def transport_of(options: TransportOptions) -> Transport:
    """The row of TRANSPORTS for `options.transport`.

    Raises:
        TfdistError: the transport is unknown, or the command of `exec:` or `shell:` is invalid.
    """
    kind, colon, command = options.transport.partition(":")
    flag = f"--transport {options.transport}"
    if kind not in TRANSPORTS or TRANSPORTS[kind].has_template != bool(colon):
        names = ", ".join(name for name, transport in TRANSPORTS.items() if not transport.has_template)
        raise TfdistError(
            f"{flag}: unknown transport; use {names}, a command like exec:'kubectl exec -i {{host}} --', "
            "or one for a shell on the host like shell:'ssh {host} apptainer exec tf.sif {command}'"
        )
    if not colon:
        return TRANSPORTS[kind]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TfdistError(f"{flag}: {error}; correct the quotes") from None
    if not any("{host}" in word for word in words):
        raise TfdistError(f"{flag}: no {{host}} in the command; write {{host}} in place of the host's name")
    for name in re.findall(r"\{(?!host\})[a-z]+(?::\w*)?\}", command):
        if kind == "exec":
            raise TfdistError(f"{flag}: {name} is for shell:; omit it, or write shell: instead of exec:")
        if not _COMMAND.fullmatch(name):
            raise TfdistError(
                f"{flag}: {name} is unknown; use {{host}}, and {{command}}, {{command:2}} to {{command:5}}"
            )
    return TRANSPORTS[kind]


_Fault = tuple[str, str, str]
"""A pattern in what a shell or another program printed, the cause, and the fix.

A host may print anything: several `.*` in one expression would take minutes for 16 KiB. A lookahead has one each.
"""

SSH_FAULTS: tuple[_Fault, ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key differs from the one in known_hosts",
        "if the host was reinstalled, run 'ssh-keygen -R {name}' and 'ssh {target}' once; otherwise do not connect",
    ),
    (r"Host key verification failed", "the host key is unknown", "run 'ssh {target}' once and check the key"),
    (
        r"Permission denied \(",
        "login denied for {user}",
        "run 'ssh-copy-id {target}', pass --ssh 'ssh -i KEY', or name another user: USER@{name}",
    ),
    (r"Could not resolve", "the name cannot be resolved", "correct the name, or add it to ~/.ssh/config or /etc/hosts"),
    (
        r"kex_exchange_identification|ssh_exchange_identification|banner exchange",
        "sshd closed the connection before the login",
        "raise MaxStartups there or on the jump host, or look for the reason in its log; to try: {trial}",
    ),
    (r"Connection refused", "nothing listens on the SSH port", "start sshd on the host, or pass --ssh 'ssh -p PORT'"),
    (
        r"timed out|No route to host|[Uu]nreachable",
        "the host does not answer",
        "check that it is up and that no firewall blocks SSH: 'ssh -v {target}'",
    ),
)
SLOW_FAULTS: tuple[_Fault, ...] = (
    (
        r"did not describe itself",
        "the host is too slow",
        "check its nvidia-smi and its network file systems, or raise --start-timeout",
    ),
    (r"not connected within", "the jump host is too slow", "raise --start-timeout"),
    (r"^no message for", "the agent has stopped", "check whether the host is overloaded or was cut off, and retry"),
)
"""Failures after the login."""
FAULTS: tuple[_Fault, ...] = (
    (r"did not say hello", "the host does not answer", "run this to see why: {trial}"),
    (
        r"(?m)^(?=.*\[Errno \d+\] )(?=.*tfdist-[0-9a-f]{12})",
        "the temporary folder is not writable",
        "free some space, or set TMPDIR for the user that connects",
    ),
    (
        r"no safe folder for temporary files",
        "other users could exchange the files that tfdist runs",
        "do so for the user that connects",
    ),
    (
        r"(?m)^(?=.*sh -c )(?=.*printf)(?=.*(?:not found|No such file))",
        "--transport quotes {{command}} for more shells than parse it",
        "use {{command}}, or {{command:N}} with a smaller number N",
    ),
    (r"\(NotFound\)|Invalid node name", "there is no such host", "correct the name"),
    (
        r"not found|No such file|Permission denied",
        "a program cannot be run",
        "name the Python with --python, or python= in the hostfile",
    ),
    (
        r"Resource temporarily unavailable|can't start new thread",
        "no more processes can be started",
        "raise 'ulimit -u' there, or the limit of processes of the container or job",
    ),
    (r"too old", "the Python is too old", "name a newer one with --python, or python= in the hostfile"),
)


def connection_problem(host: Host, output: str) -> Problem:
    """Why no agent could be started on `host`: the likely cause, from what ssh, a shell or the agent printed."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip("@ \t\r")]
    last = lines[-1].rstrip(".") if lines else "its stream ended without output"
    last = last if len(last) <= _LONGEST else f"{last[: _LONGEST // 2]} ... {last[-_LONGEST // 2 :]}"
    trial = redact_command(command_on(host, ("true",)))
    for pattern, cause, fix in (*SLOW_FAULTS, *(SSH_FAULTS if host.needs_quoting else ()), *FAULTS):
        if re.search(pattern, output):
            values = {"name": host.name, "target": host.target, "user": host.user or "you", "trial": trial}
            return Problem(f"{cause.format(**values)} ({last})", fix.format(**values), host.name)
    fix = f"run this to see why: {trial}" if host.prefix else "check that the folder for temporary files is writable"
    return Problem(f"no agent could be started ({last})", fix, host.name)
