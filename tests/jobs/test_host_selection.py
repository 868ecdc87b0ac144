"""The options that select hosts, and what is refused before any host is connected."""

import json
import shlex
import socket
import sys

import pytest

from tfdist.cli.command import run
from tfdist.jobs.host_selection import HostSelection, select_hosts
from tfdist.jobs.plan import check_before_connecting
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

CLIENT = """#!/bin/sh
# A fake ssh: resolves every name to this machine and runs the command as sshd does.
printf '%s\\n' "$*" >> "$0.log"
for last; do :; done
case " $* " in *" -G "*) echo "hostname 127.0.0.1"; exit ;; esac
exec sh -c "$last"
"""


def has_ipv6():
    """Whether the loopback has an IPv6 address; in containers it often has none."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)


@pytest.fixture
def client(tmp_path):
    path = tmp_path / "stand-in"
    path.write_text(CLIENT)
    path.chmod(0o755)
    return path


def chosen(**given):
    return select_hosts(given)


# --- the selected hosts


def test_without_options_only_this_machine_is_selected():
    assert chosen() == chosen(hosts=None, exclude=None) == HostSelection()


def test_a_selection_has_the_options_that_repeat_it(client):
    selection = chosen(hosts=["h1", "h2"], ssh=str(client))
    assert selection.options == ("--hosts", "h1", "--hosts", "h2", "--ssh", str(client))


def test_the_options_are_applied_to_each_host(client):
    selection = chosen(
        hosts=["a,b:2", "c"], exclude=["c"], ssh=f"{shlex.quote(str(client))} -o User=x -p 2222", python="/py", chdir="/w",
        workers_per_host=2,
    )  # fmt: skip
    assert selection.per_host == 2
    first, second = selection.hosts
    assert (first.name, first.slots, second.name, second.slots) == ("a", None, "b", 2)
    assert {host.address for host in selection.hosts} == {"127.0.0.1"}
    assert {(host.python, host.chdir) for host in selection.hosts} == {("/py", "/w")}
    assert first.prefix[0] == str(client)
    assert {"2222", "User=x"} <= set(first.prefix)


def test_srun_uses_the_allocation_unless_hosts_are_given(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[07-08]")
    assert [host.name for host in chosen(transport="srun").hosts] == ["gpu07", "gpu08"]
    assert [host.name for host in chosen(transport="srun", hosts=["gpu08"]).hosts] == ["gpu08"]
    assert [host.name for host in chosen(transport="srun", exclude=["gpu07"]).hosts] == ["gpu08"]


def test_srun_knows_the_groups_of_a_heterogeneous_job_and_not_the_options_of_its_batch_script(monkeypatch):
    variables = {
        "JOB_NODELIST": "gpu1",
        "HET_SIZE": "2",
        "JOB_NODELIST_HET_GROUP_0": "gpu1",
        "JOB_NODELIST_HET_GROUP_1": "cpu7",
    }
    for name, value in (*variables.items(), ("EXACT", "1")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    for hosts in (chosen(transport="srun").hosts, chosen(transport="srun", hosts=["gpu1", "cpu7"]).hosts):
        assert [host.prefix[:5] for host in hosts] == [
            ("env", "-u", "SLURM_EXACT", "srun", "--het-group=0"),
            ("env", "-u", "SLURM_EXACT", "srun", "--het-group=1"),
        ]


def test_a_plan_that_no_hardware_could_run_is_refused_before_connecting():
    imagined = HostSelection((Host("a", slots=1), Host("b", slots=1))).imagined(1)
    three = Request({"strategy": "multiworker", "workers": 3}, ("true",))
    with pytest.raises(TfdistError, match="3 worker tasks for 2 slots"):
        check_before_connecting(three, imagined)
    check_before_connecting(three, HostSelection().imagined(1))  # this machine is known, so nothing is imagined


def test_a_plan_that_needs_gpus_is_not_refused_before_connecting():
    imagined = HostSelection((Host("a"),)).imagined(1)
    without, many = (machine for machines in imagined for machine in machines.values())
    assert len(without.gpus) == 0 < len(many.gpus)
    check_before_connecting(Request({"strategy": "mirrored", "cross_device": "nccl"}, ("true",)), imagined)


# --- refusals

WRONG = [
    (["--exclude", "a"], ["--exclude a"]),
    (["--workers-per-host", "2"], ["--workers-per-host 2", "without --hosts"]),
    (["--transport", "ssh"], ["--transport ssh", "without --hosts"]),
    (["--ssh", "/x"], ["--ssh /x", "without --hosts"]),
    (["--python", "/x"], ["--python /x", "without --hosts"]),
    (["--chdir", "/x"], ["--chdir /x", "without --hosts"]),
    (["--transport", "srun"], ["--transport srun", "salloc"]),
    (["-H", "a", "--hostfile", "f"], ["--hosts a", "--hostfile f", "one of them"]),
    (["-H", ""], ["--hosts ''", "no hosts"]),
    (["-H", "a,-b"], ["'-b'", "invalid name"]),
    (["--hosts=-oProxyCommand=x"], ["invalid name"]),
    (["-H", "a:0"], ["a:0", "slots"]),
    (["--hostfile", "none.txt"], ["none.txt", "No such file"]),
    (["-H", "a", "--exclude", "a*"], ["--exclude a*", "no host is left of a"]),
    (["-H", "a", "--workers-per-host", "0"], ["--workers-per-host 0", "at least 1"]),
    (["-H", "a", "--ssh", "ssh '-p 2"], ["--ssh ssh", "correct the quotes"]),
    (["-H", "a", "--ssh", "ssh -i /no/key"], ["--ssh 'ssh -i /no/key'", "no file /no/key"]),
    (["-H", "a", "--ssh", "/no/ssh"], ["--ssh /no/ssh", "OpenSSH"]),
    (["-H", "a", "--transport", "rsh"], ["--transport rsh", "srun"]),
    (["-H", "a", "--transport", "exec:kubectl"], ["exec:kubectl", "{host}"]),
    (["-H", "a", "--transport", "srun", "--ssh", "s"], ["--ssh s", "--transport srun"]),
    (["-H", "a", "--transport", "exec:x {host}", "--ssh", "s"], ["--ssh s", "no effect"]),
    (["-H", "a", "--transport", "exec:x {host} {command}"], ["{command}", "shell: instead of exec:"]),
    (["-H", "a", "--transport", "shell:x {host}", "--remote-prefix", "nice"], ["--remote-prefix nice", "no effect"]),
    (["-H", "a", "--remote-prefix", " "], ["--remote-prefix ' '", "empty; omit it"]),
    (["-H", "a", "--remote-prefix", "module load cuda"], ["'module load cuda'", "end it with &&"]),
    (["--remote-prefix", "nice"], ["--remote-prefix nice", "without --hosts"]),
    (["-H", "localhost,127.0.0.1"], ["localhost and 127.0.0.1 are both this machine"]),
    (["-H", "localhost:2", "--workers-per-host", "3"], ["--workers-per-host 3", "localhost has slots=2"]),
    (["-H", "localhost:2", "--strategy", "multiworker", "--workers", "3"], ["3 worker tasks", "2 slots", "localhost:2"]),
    (["-H", "localhost", "--inherit", "tf-config"], ["--inherit", "tf-config"]),
    (["-H", "a", "-H", "b,a"], ["--hosts a,b,a", "duplicate host a"]),
    (["-H", "me@a", "--transport", "exec:x {host}"], ["me@a", "remove me@"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=lambda value: " ".join(value))
def test_wrong_options_are_refused_in_one_sentence(arguments, says, tmp_path, capsys):
    assert run(["launch", *arguments, "--", "true"]) == 2
    out, err = capsys.readouterr()
    assert (out, err[:8], err.count("\n")) == ("", "tfdist: ", 1)
    for words in says:
        assert words in err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_hostfile_line_is_named(tmp_path, capsys):
    (tmp_path / "hosts").write_text("# mine\nh1\nh2 solts=2\n")
    assert run(["launch", "--hostfile", "hosts", "--", "true"]) == 2
    assert "--hostfile hosts, line 3: 'solts=2': unknown setting; use slots=" in capsys.readouterr().err


# --- environment variables


def test_hosts_and_transport_are_read_from_the_environment(client, monkeypatch, capsys):
    monkeypatch.setenv("TFDIST_HOSTS", "one,two")
    monkeypatch.setenv("TFDIST_SSH", str(client))
    monkeypatch.setenv("TFDIST_PYTHON", sys.executable)
    monkeypatch.setenv("TFDIST_EXCLUDE", "two three")
    assert run(["launch", "--dry-run", "--json", "--workers", "1", "--strategy", "multiworker", "--", "true"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["tasks"]
    assert plan["host"] == "one"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"HOSTS": "a", "HOSTFILE": "f"},
            "--hosts a and --hostfile f: use only one of them (set by TFDIST_HOSTS, TFDIST_HOSTFILE)",
        ),
        ({"SSH": "s"}, "--ssh s has no effect without --hosts or --hostfile (set by TFDIST_SSH)"),
        ({"HOSTFILE": "none.txt"}, "none.txt: No such file"),
        ({"HOSTS": "a:x"}, "invalid number of slots 'x'"),
    ],
)
def test_a_wrong_environment_variable_is_named(variables, says, monkeypatch, capsys):
    for name, value in variables.items():
        monkeypatch.setenv(f"TFDIST_{name}", value)
    assert run(["launch", "--", "true"]) == 2
    assert says in capsys.readouterr().err


# --- with a fake ssh


def test_a_job_on_two_hosts_prints_their_lines_and_puts_no_secret_on_a_command_line(client, tmp_path, capsys):
    command = ["--ssh", str(client), "-H", "h1,h2", "-x", "MY_TOKEN=hunter2", "--strategy", "multiworker"]
    show = "echo $TFDIST_TASK has ${#MY_TOKEN} letters"
    assert run(["launch", *command, "--", "sh", "-c", show]) == 0
    out = capsys.readouterr().out
    assert "[worker-0] worker-0 has 7 letters\n" in out
    assert "[worker-1] worker-1 has 7 letters\n" in out
    asked = client.with_name("stand-in.log").read_text().splitlines()
    assert len(asked) == 4  # each is resolved, then reached
    texts = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [path for path, text in texts.items() if b"hunter2" in text] == []


def test_tasks_on_all_hosts_see_the_variables_of_tensorflow_and_nccl(tmp_path, monkeypatch, capsys):
    connect = tmp_path / "connect.sh"
    connect.write_text('shift; unset NCCL_DEBUG TF_X; exec "$@"')
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TF_X", "shell")
    hosts = ["-H", "localhost,127.0.0.2", "--transport", f"exec:sh {connect} {{host}}", "--strategy", "multiworker"]
    show = "echo $NCCL_DEBUG $TF_X"
    assert run(["launch", *hosts, "--python", sys.executable, "-x", "TF_X=mine", "--", "sh", "-c", show]) == 0
    out = capsys.readouterr().out
    assert all(f"[worker-{index}] INFO mine\n" in out for index in range(2))
    (commands,) = tmp_path.rglob("commands.txt")
    environment = commands.read_text().splitlines()[1].split()
    assert environment[0] == "environment:"
    assert {"NCCL_DEBUG=INFO", "TF_X=shell"} <= set(environment)


def test_unreachable_hosts_end_with_exit_code_69_and_all_are_named(client, capsys):
    client.write_text(CLIENT.replace('exec sh -c "$last"', 'echo "connect to host: Connection refused" >&2; exit 255'))
    assert run(["launch", "--ssh", str(client), "-H", "h1,h2", "--", "true"]) == 69
    out, err = capsys.readouterr()
    lines = err.removeprefix("tfdist: ").splitlines()
    assert out == ""
    assert [line.partition(":")[0] for line in lines] == ["h1, h2"]
    assert all("nothing listens on the SSH port" in line and "--ssh" in line for line in lines)
    assert run(["launch", "--json", "--ssh", str(client), "-H", "h1,h2", "--", "true"]) == 69
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["status"], result["exit_code"], err) == ("refused", 69, f"tfdist: {result['reason']}\n")


def test_the_help_keeps_brackets(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["launch", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "[user@]host[:slots],... or node[01-04]" in out
    for key in ("[slots=N]", "[role=ps]", "[addr=A]", "[port=P]", "[gpus=0,1]", "[python=P]", "[chdir=D]"):
        assert key in out


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_ipv6_addresses_have_brackets_in_tf_config(client, capsys):
    script = client.with_name("hosts.txt")
    script.write_text("[::1]:1 # this machine\n[2001:db8::2] addr=[::1]\n")
    command = ["--ssh", str(client), "--hostfile", str(script), "--exclude", "::1", "--strategy", "multiworker"]
    show = "import os; print(os.environ['TF_CONFIG'])"
    assert run(["launch", *command, "--workers-per-host", "2", "--", sys.executable, "-c", show]) == 0
    out = capsys.readouterr().out
    (result,) = [json.loads(line.partition("] ")[2]) for line in out.splitlines() if line.startswith("[worker-0] {")]
    assert [address.rpartition(":")[0] for address in result["cluster"]["worker"]] == ["[::1]", "[::1]"]
