import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from tfdist.launch.agents.bootstrap import agent_argv, agent_source
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.hosts.transport import (
    CONNECT_TIMEOUT_S,
    TRANSPORTS,
    TransportOptions,
    command_on,
    connection_problem,
    custom,
    ssh,
    transport_of,
)
from tfdist.launch.schedulers import slurm

# --- prefixes


def ssh_options(argv):
    """The values of all -o flags, in order."""
    return [value for flag, value in pairwise(argv) if flag == "-o"]


def test_ssh_never_prompts_has_a_timeout_and_ends_its_options_before_the_host():
    argv = ssh(Host("h1", user="me"), TransportOptions())
    assert argv[0] == "ssh"
    assert argv[-2:] == ("--", "me@h1")
    assert "-T" in argv
    assert "BatchMode=yes" in ssh_options(argv)
    assert f"ConnectTimeout={CONNECT_TIMEOUT_S}" in ssh_options(argv)


def test_options_of_ssh_may_be_longer_than_a_file_name():
    options = TransportOptions(ssh="ssh " + "-o SetEnv=A=b " * 100)
    assert ssh(Host("h1", "h1"), options).count("SetEnv=A=b") == 100


def test_host_key_checking_is_left_to_the_users_configuration():
    words = " ".join(ssh(Host("h1"), TransportOptions())).lower()
    for word in ("stricthostkeychecking", "knownhosts", "-f "):
        assert word not in words


def test_user_options_cannot_override_batch_mode_but_override_the_timeout():
    options = TransportOptions(
        ssh="/opt/ssh -p 2222 -i '/my key' -o ProxyJump=gate -o BatchMode=no -o ConnectTimeout=30"
    )
    argv = ssh(Host("h1"), options)
    assert argv[0] == "/opt/ssh"
    assert "-p 2222 -i /my key -o ProxyJump=gate" in " ".join(argv)
    values = ssh_options(argv)
    assert values.index("BatchMode=yes") < values.index("BatchMode=no")
    assert values.index("BatchMode=yes") < values.index("ProxyJump=gate") < values.index("ConnectTimeout=30")
    assert values.index("ConnectTimeout=30") < values.index(
        f"ConnectTimeout={CONNECT_TIMEOUT_S}"
    )  # ssh takes the first


@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        ((), {"forwardagent no", "forwardx11 no", "clearallforwardings yes"}),
        (("ForwardAgent=yes",), {"forwardagent yes", "forwardx11 no", "clearallforwardings yes"}),
        (("ClearAllForwardings=no", "ForwardX11=yes"), {"forwardagent no", "forwardx11 yes", "clearallforwardings no"}),
    ],
)
def test_nothing_is_forwarded_to_a_host_unless_the_command_line_asks_for_it(tmp_path, asked, printed):
    config = tmp_path / "config"
    config.write_text("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  LocalForward 5000 other:5000\n")
    argv = ssh(Host("h1"), TransportOptions(ssh=" ".join(["ssh", *(f"-o {one}" for one in asked)])))
    values = [value.lower().replace("=", " ") for value in ssh_options(argv)]
    first = {name: next(value for value in values if value.startswith(f"{name} ")) for name in (
        "forwardagent", "forwardx11", "clearallforwardings"
    )}  # fmt: skip
    assert set(first.values()) == printed
    if shutil.which("ssh"):
        shown = subprocess.run([argv[0], "-G", "-F", config, *argv[1:]], capture_output=True, text=True, check=True)
        assert printed <= set(shown.stdout.splitlines())


def test_the_transport_of_a_scheduler_starts_a_step_in_the_group_of_the_host():
    options = TransportOptions(transport="srun", unset=("SLURM_EXACT",))
    host = Host("cpu7", het_group=1)
    assert transport_of(options).prefix(host, options) == slurm.step("cpu7", 1, ("SLURM_EXACT",))
    assert transport_of(options).needs_shield


def test_a_custom_command_gets_the_host_name_in_place_of_host():
    options = TransportOptions(transport="exec:kubectl exec -i 'pod/{host}' -c main --")
    assert custom(Host("p 1"), options) == ("kubectl", "exec", "-i", "pod/p 1", "-c", "main", "--")


@pytest.mark.parametrize(
    "transport",
    [
        "rsh",
        "",
        "exec",
        "exec:",
        "exec:kubectl exec --",
        "exec:sh '{host}",
        "ssh:x",
        "SSH",
        "shell:ssh h1",
        "shell:",
        "shell",
    ],
)
def test_an_unknown_transport_is_an_error_with_the_value(transport):
    with pytest.raises(TfdistError, match="--transport") as caught:
        transport_of(TransportOptions(transport=transport))
    assert transport in str(caught.value)


@pytest.mark.parametrize(
    ("transport", "says"),
    [
        ("exec:ssh {host} {command}", "{command} is for shell:; omit it, or write shell: instead of exec:"),
        ("shell:ssh {host} {comand}", "{comand} is unknown; use {host}, and {command}, {command:2} to {command:5}"),
        (
            "shell:ssh {host} {command:9}",
            "{command:9} is unknown; use {host}, and {command}, {command:2} to {command:5}",
        ),
        ("shell:ssh {host} {command:0}", "{command:0} is unknown"),
    ],
)
def test_a_wrong_placeholder_is_an_error(transport, says):
    with pytest.raises(TfdistError) as caught:
        transport_of(TransportOptions(transport=transport))
    assert str(caught.value).startswith(f"--transport {transport}: {says}")


def on(transport, command, **options):
    """What runs `command` on the host h1."""
    choice = TransportOptions(transport=transport)
    host = Host("h1", prefix=custom(Host("h1"), choice), needs_quoting=transport_of(choice).needs_quoting, **options)
    return command_on(host, command)


COMMAND = ("sh", "-c", "echo it's; exit", "a b")


def test_a_shell_gets_the_command_as_one_word_at_the_end_or_in_place():
    quoted = shlex.join(COMMAND)
    assert on("shell:ssh {host} apptainer exec tf.sif", COMMAND)[-2:] == ("tf.sif", quoted)
    assert on("shell:gcloud compute ssh {host} --command={command} -q", COMMAND)[-2:] == (f"--command={quoted}", "-q")
    assert on("shell:ssh gate ssh {host} {command:2}", COMMAND)[-1] == shlex.quote(quoted)
    assert on("exec:kubectl exec -i {host} --", COMMAND) == ("kubectl", "exec", "-i", "h1", "--", *COMMAND)


def test_the_words_of_the_remote_prefix_come_before_the_command():
    host = Host("h1", prefix=("ssh", "--", "h1"), needs_quoting=True, remote_prefix="module load cuda &&")
    assert command_on(host, ("true", "a b")) == ("ssh", "--", "h1", "module load cuda && true 'a b'")


def test_every_transport_has_a_row():
    assert transport_of(TransportOptions()) is TRANSPORTS["ssh"]
    assert transport_of(TransportOptions(transport="srun")) is TRANSPORTS["srun"]
    assert transport_of(TransportOptions(transport="exec:x {host}")) is TRANSPORTS["exec"]
    assert transport_of(TransportOptions(transport="shell:x {host}")) is TRANSPORTS["shell"]


# --- a real agent behind a prefix

STAND_IN = """#!/bin/sh
# Like sshd: the arguments after the target, joined by spaces, are a command for the login shell.
while [ "$1" != -- ]; do shift; done
shift 2
exec {shell} -c "$*"
"""


def hello(host, cwd="/"):
    """The host description that an agent on `host` sends."""
    messages = [json.loads(line) for line in conversation(host, cwd) if line.strip()]
    assert host.local or messages[0] == {"kind": "logged_in"}
    return messages[-1]["description"]


def conversation(host, cwd="/"):
    """The lines that an agent sends until it has described the host; end of file on stdin ends it then."""
    with subprocess.Popen(agent_argv(host), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd) as process:
        process.stdin.write(agent_source(host))
        process.stdin.flush()
        lines = []
        while not lines or (lines[-1] and b'"hello"' not in lines[-1]):
            lines.append(process.stdout.readline())
        process.stdin.close()
    return lines


def behind(prefix, *, needs_quoting, python=""):
    return Host("far", prefix=tuple(prefix), needs_quoting=needs_quoting, python=python)


def test_the_local_agent_has_no_prefix():
    assert agent_argv(LOCAL)[0] == sys.executable
    assert hello(LOCAL)["executable"] == sys.executable


@pytest.mark.parametrize("shell", ["sh", "bash", "bash --posix"])
def test_the_bootstrap_survives_the_login_shell(tmp_path, shell):
    client = tmp_path / "ssh"
    client.write_text(STAND_IN.format(shell=shell))
    client.chmod(0o755)
    options = TransportOptions(ssh=str(client))
    description = hello(Host("far", prefix=ssh(Host("far"), options), needs_quoting=True))
    assert description["executable"] == sys.executable


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    "prefix", ["env A=1", "cd / &&", "A=1; export A;", "exec nice -n 1", "bash -c 'exec \"$@\"' x"]
)
def test_the_agent_runs_behind_a_remote_prefix(tmp_path, shell, prefix):
    client = tmp_path / "ssh"
    client.write_text(STAND_IN.format(shell=shell))
    client.chmod(0o755)
    words = ssh(Host("far"), TransportOptions(ssh=str(client)))
    assert hello(Host("far", prefix=words, needs_quoting=True, remote_prefix=prefix))["executable"] == sys.executable


@pytest.mark.parametrize(
    "template",
    [
        "sh -c {command} {host}",
        "env HOST={host} sh -c",
        "sh -c 'echo {host} >&2; '{command}",
        "sh -c 'sh -c '{command:2} {host}",
        "sh -c 'exec bash -c \"bash -c \"'{command:3} {host}",
    ],
)
def test_the_agent_runs_behind_one_shell_and_several(template):
    options = TransportOptions(transport=f"shell:{template}")
    assert transport_of(options).needs_quoting
    assert hello(behind(custom(Host("far"), options), needs_quoting=True))["executable"] == sys.executable


def test_a_command_that_takes_an_argv_works_without_quoting():
    prefix = custom(Host("far"), TransportOptions(transport="""exec:sh -c 'exec "$@"' {host}"""))
    assert hello(behind(prefix, needs_quoting=False))["executable"] == sys.executable


def test_the_configured_python_runs_the_agent(tmp_path):
    python = tmp_path / "a 'python'; of $HOME"
    python.symlink_to(sys.executable)
    for needs_quoting, prefix in ((False, ["env"]), (True, ["sh", "-c"])):
        description = hello(behind(prefix, needs_quoting=needs_quoting, python=str(python)))
        assert description["executable"] == str(python)


def test_a_missing_python_is_explained():
    host = behind(["sh", "-c"], needs_quoting=True, python="/no/such/python")
    done = subprocess.run(agent_argv(host), input=b"", capture_output=True, text=False, timeout=30)
    assert done.returncode != 0
    sentence = str(connection_problem(host, done.stderr.decode()))
    assert "/no/such/python" in sentence
    assert "--python" in sentence


def test_python3_is_the_fallback(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # as if the other host did not have it
    assert b'"kind": "hello"' in conversation(behind(["env"], needs_quoting=False))[-1]


def test_modules_in_the_working_directory_do_not_shadow_the_standard_library(tmp_path):
    for name in ("json.py", "socket.py", "selectors.py"):
        (tmp_path / name).write_text("raise SystemExit('shadowed')")
    assert hello(LOCAL, tmp_path)["executable"] == sys.executable


def test_the_bootstrap_has_no_character_that_any_login_shell_interprets():
    bootstrap = agent_argv(Host("h", local=True, python="python3"))[-1]
    assert not set("'\n!\\") & set(bootstrap)  # csh interprets !, fish interprets \
    assert shlex.split(shlex.join(["x", bootstrap])) == ["x", bootstrap]


def test_a_launcher_that_dies_at_once_causes_no_traceback():
    done = subprocess.run(agent_argv(LOCAL), input="", capture_output=True, text=True, timeout=30)
    assert "Traceback" not in done.stderr
    assert "went away" in done.stderr


# --- connection problems

FAR = Host("h1", user="me", prefix=("ssh", "--", "me@h1"), needs_quoting=True)
POD = Host("pod", prefix=("kubectl", "exec", "-i", "pod", "--"))
SHELL = Host("vm", prefix=("gcloud", "ssh", "vm", "{command:2}"), needs_quoting=True)

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key for h1 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("host", "words", "texts"),
    [
        (FAR, CHANGED, ["differs from the one in known_hosts", "ssh-keygen -R h1", "ssh me@h1"]),
        (FAR, "No ED25519 host key is known for h1\nHost key verification failed.", ["is unknown", "'ssh me@h1' once"]),
        (FAR, "me@h1: Permission denied (publickey,password).", ["denied for me", "ssh-copy-id me@h1", "--ssh"]),
        (FAR, "ssh: Could not resolve hostname h1: Name or service not known", ["cannot be resolved", "/etc/hosts"]),
        (FAR, "ssh: connect to host h1 port 22: Connection refused", ["SSH port", "--ssh 'ssh -p PORT'"]),
        (FAR, "ssh: connect to host h1 port 22: Connection timed out", ["does not answer", "firewall"]),
        (FAR, "ssh: connect to host h1 port 22: No route to host", ["does not answer", "ssh -v me@h1"]),
        (FAR, "ssh: connect to host h1 port 22: Network is unreachable", ["does not answer"]),
        (FAR, "did not say hello within 30 s", ["does not answer", "run this to see why: ssh -- me@h1 true"]),
        (FAR, "tfdist: 1: exec: /opt/py: not found", ["program cannot be run", "/opt/py", "--python"]),
        (FAR, "tfdist: 1: exec: /etc: Permission denied", ["program cannot be run", "/etc", "--python"]),
        (FAR, "PermissionError: [Errno 13] Permission denied: '/x/tfdist-0123456789ab'", ["temporary folder", "TMPDIR"]),
        (FAR, "Python 3.8 is too old: tfdist needs 3.10", ["too old", "Python 3.8", "--python"]),
        (FAR, "", ["ended without output", "run this to see why: ssh -- me@h1 true"]),
        (FAR, "@ \n\n", ["ended without output"]),
        (FAR, "kex_exchange_identification: Connection closed", ["Connection closed", "MaxStartups", "ssh -- me@h1 true"]),
        (FAR, "did not describe itself within 60 s", ["within 60 s", "nvidia-smi", "--start-timeout"]),
        (POD, "no message for 10 s", ["the agent has stopped (no message for 10 s)", "overloaded"]),
        (FAR, "not connected within 60 s: its jump host gets 8 logins at a time", ["8 logins", "--start-timeout"]),
        (POD, 'Error from server (NotFound): pods "pod" not found', ["pod: there is no such host", "correct the name"]),
        (POD, "sh: python3: not found", ["--python"]),
        (POD, "did not say hello within 30 s", ["does not answer", "run this to see why: kubectl exec -i pod -- true"]),
        (POD, "dial tcp 10.0.0.1:443: connect: Connection refused", ["Connection refused", "see why: kubectl exec"]),
        (SHELL, "did not say hello within 30 s", ["does not answer", "run this to see why: gcloud ssh vm"]),
        (SHELL, f"sh: 1: sh -c 'printf {'x' * 900}': not found", ["more shells", " ... ", "smaller number"]),
        (LOCAL, "MemoryError", ["localhost: no agent could be started (MemoryError)"]),
    ],
)  # fmt: skip
def test_each_connection_failure_has_a_cause_and_a_fix(host, words, texts):
    sentence = str(connection_problem(host, words))
    assert sentence.startswith(f"{host.name}: ")
    assert "\n" not in sentence
    assert len(sentence) < 400
    for each in texts:
        assert each in sentence


def test_a_token_of_the_transport_stays_secret():
    host = replace(POD, prefix=("kubectl", "--token=XYZ", "exec", "-i", "pod", "--"))
    sentence = str(connection_problem(host, "did not say hello within 30 s"))
    assert "kubectl --token=*** exec" in sentence.replace("'", "")


def test_fixes_for_other_transports_do_not_mention_ssh():
    for words in ("Connection refused", "timed out", "did not say hello", "Permission denied (x)", ""):
        assert "ssh" not in str(connection_problem(POD, words))
