"""Jobs on two hosts, each a network namespace with an sshd. tfdist is not installed on them."""

import hashlib
import json
import shlex
import subprocess
import uuid
from pathlib import Path

import pytest

ODD = 'it\'s; a "$HOME" & co'
"""A name that needs quoting in a shell."""
TWO_WORKERS = ("--strategy", "multiworker", "--hosts", "h1,h2")
"""One worker per host; the user's command follows."""


def test_the_hosts_python_has_no_tfdist(bare_python, tmp_path):
    done = subprocess.run([bare_python, "-c", "import tfdist"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'tfdist'" in done.stderr


def test_multiworker_trains_on_two_hosts(launcher):
    command = (
        "--strategy multiworker --hosts h1,h2 --preset smoke --model tiny --set learning_rate=0.01 --steps 20 --json"
    )
    done = launcher.run(*command.split(), timeout_s=240)
    assert done.code == 0, done.err[-4000:]
    outcome = json.loads(done.out.splitlines()[-1])
    assert outcome["status"] == "ok"
    assert outcome["loss"]["worker-0"] == outcome["loss"]["worker-1"] < 2.3
    assert outcome["updates_applied"] == 20
    plans = json.loads((launcher.run_dir / "cluster.json").read_text())["tasks"]
    assert [plan["host"] for plan in plans] == ["h1", "h2"]


@pytest.mark.thorough
def test_parameter_server_trains_across_hosts(launcher):
    hostfile = launcher.script("h1 role=ps\nh2 slots=1\n", "hosts.txt")
    command = f"--strategy parameter-server --hostfile {hostfile} --preset smoke --model tiny --steps 20 --json"
    done = launcher.run(*command.split(), timeout_s=240)
    assert done.code == 0, done.err[-4000:]
    outcome = json.loads(done.out.splitlines()[-1])
    assert outcome["updates_applied"] == 20
    assert outcome["tasks"].keys() >= {"ps-0", "worker-0", "chief-0"}
    plans = json.loads((launcher.run_dir / "cluster.json").read_text())["tasks"]
    assert {plan["task"]: plan["host"] for plan in plans} == {"chief-0": "h2", "worker-0": "h2", "ps-0": "h1"}


def test_another_program_on_one_host_is_named_before_the_start(launcher, tmp_path):
    for host, text in (("h1", "print('it runs')"), ("h2", "print('it is old')")):
        (tmp_path / host).mkdir()
        (tmp_path / host / "train.py").write_text(text)
    hostfile = launcher.script(f"h1 chdir={tmp_path}/h1\nh2 chdir={tmp_path}/h2\n", "hosts.txt")
    command = ("--strategy", "multiworker", "--hostfile", hostfile, "--", "python", "train.py")
    done = launcher.run(*command)
    assert done.code == 69
    assert "h2: train.py differs from that on h1; bring this folder to all hosts with --copy" in done.err
    (tmp_path / "h2" / "train.py").unlink()
    assert f"h2: train.py is missing in {tmp_path}/h2; bring this folder" in launcher.run(*command).err
    (tmp_path / "h2" / "train.py").write_text("print('it runs')")
    done = launcher.run(*command)
    assert done.code == 0, done.err
    assert done.lines_of("worker-1", done.out) == ["it runs"]


PRINT_MARK = ("--", "sh", "-c", 'echo "mark: $MARK"')


def test_the_remote_prefix_runs_in_the_login_shell_of_each_host(launcher):
    prefix = f"export MARK={shlex.quote(ODD)} &&"
    done = launcher.run(*TWO_WORKERS, "--remote-prefix", prefix, *PRINT_MARK)
    assert done.code == 0, done.err
    assert done.lines_of("worker-0", done.out) == done.lines_of("worker-1", done.out) == [f"mark: {ODD}"]


@pytest.mark.parametrize(
    "template",
    [
        "{ssh} {host} env MARK={host}",
        "{ssh} {host} 'MARK={host}; export MARK;'{command}",
        "{ssh} {host} MARK={host} sh -c {command:2}",
    ],
)
def test_a_transport_may_end_in_a_shell_on_the_host(template, launcher, net):
    hostfile = launcher.script("".join(f"{host.name} addr={host.address}\n" for host in net.hosts), "hosts.txt")
    transport = "shell:" + template.replace("{ssh}", str(net.ssh))
    done = launcher.run("--strategy", "multiworker", "--hostfile", hostfile, "--transport", transport, *PRINT_MARK)
    assert done.code == 0, done.err
    assert [done.lines_of(f"worker-{index}", done.out) for index in (0, 1)] == [["mark: h1"], ["mark: h2"]]


def test_a_custom_program_gets_tf_config_and_can_import_tfdist(launcher, net):
    script = launcher.script(
        "import json, os, sys, tfdist.launch.cluster as cluster\n"
        "print(os.environ['TF_CONFIG'])\n"
        "print(cluster.__file__)\n"
        "print(sys.executable)\n"
    )
    done = launcher.run(*TWO_WORKERS, "--", "python", script)
    assert done.code == 0, done.err
    for index in (0, 1):
        config, module, python = done.lines_of(f"worker-{index}", done.out)
        config = json.loads(config)
        assert config["task"] == {"type": "worker", "index": index}
        assert [address.rpartition(":")[0] for address in config["cluster"]["worker"]] == [h.address for h in net.hosts]
        assert Path(python) == launcher.python
        assert "/tfdist-" in module
        assert not Path(module).exists()  # deleted with the job


def test_this_machine_can_be_one_of_the_hosts(launcher, net):
    done = launcher.run("--hosts", "localhost,h2", "--", "python", "-c", "import os; print(os.environ['TF_CONFIG'])")
    assert done.code == 0, done.err
    (config,) = done.lines_of("worker-1", done.out)
    addresses = [address.rpartition(":")[0] for address in json.loads(config)["cluster"]["worker"]]
    assert addresses == ["10.77.0.254", net.hosts[1].address]


def test_paths_and_arguments_need_no_quoting(launcher):
    script = launcher.script("import os, sys\nprint(sys.argv[0], os.getcwd(), sys.argv[1:])\n", f"{ODD}/{ODD}.py")
    python = launcher.folder / ODD / "python"
    python.symlink_to(launcher.python)
    folder = str(Path(script).parent)
    done = launcher.run(*TWO_WORKERS, "--python", str(python), "--chdir", folder, "--", "python", script, ODD, "")
    assert done.code == 0, done.err
    for task in ("worker-0", "worker-1"):
        assert done.lines_of(task, done.out) == [f"{script} {folder} {[ODD, '']}"]


def test_10_000_lines_per_second_and_task_arrive_complete_and_in_order(launcher):
    script = launcher.script(
        "import sys, time\n"
        "start = time.monotonic()\n"
        "for batch in range(200):\n"
        "    time.sleep(max(0.0, start + batch / 100 - time.monotonic()))\n"
        "    for stream in (sys.stdout, sys.stderr):\n"
        "        stream.write(''.join(f'{number} {stream.name}\\n' for number in range(batch * 100, batch * 100 + 100)))\n"
        "        stream.flush()\n"
        "open(sys.argv[1], 'a').write(f'{time.monotonic() - start}\\n')\n"
    )
    times = launcher.folder / "times"
    done = launcher.run(*TWO_WORKERS, "--", "python", script, str(times))
    assert done.code == 0, done.err[-4000:]
    for task in ("worker-0", "worker-1"):
        for name, text in (("stdout", done.out), ("stderr", done.err)):
            expected = [f"{number} <{name}>" for number in range(20_000)]
            assert done.lines_of(task, text) == expected
            log = launcher.run_dir / "attempt-0" / task / f"{name}.log"
            assert log.read_text().splitlines() == expected
    seconds = [float(line) for line in times.read_text().splitlines()]
    assert len(seconds) == 2
    assert max(seconds) < 15, "two seconds of output were delayed"


def test_a_10_mb_line_and_binary_output_are_logged_unchanged(launcher):
    script = launcher.script(
        "import os, sys\n"
        "sys.stdout.buffer.write(b'first\\n' + bytes(range(256)) + b'\\xf0\\x9f' + b'\\n' + b'\\xc3\\xa4' * 5_000_000 + b'\\n')\n"
        "os.write(int(os.environ['TFDIST_EVENTS_FD']), b'no event\\n')\n"
        "print('last', end='')\n"
    )
    done = launcher.run(*TWO_WORKERS, "--json", "--", "python", script)
    assert done.code == 0, done.err[-2000:]
    expected = b"first\n" + bytes(range(256)) + b"\xf0\x9f\n" + b"\xc3\xa4" * 5_000_000 + b"\nlast"
    for task in ("worker-0", "worker-1"):
        assert (launcher.run_dir / "attempt-0" / task / "stdout.log").read_bytes() == expected
    assert json.loads(done.out.splitlines()[-1])["status"] == "ok"


def test_variables_reach_the_tasks_and_secrets_leak_nowhere(launcher):
    secrets = {"API_TOKEN": uuid.uuid4().hex, "DEMO_PASSWORD": uuid.uuid4().hex}  # in no other test's command line
    script = launcher.script(
        "import glob, hashlib, os\n"
        f"names = {sorted(secrets)}\n"
        "for name in names:\n"
        "    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest())\n"
        "leaks = []\n"
        "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try:\n"
        "        line = open(path, 'rb').read()\n"
        "    except OSError:\n"
        "        continue\n"
        "    leaks += [line for name in names if os.environ[name].encode() in line]\n"
        "print(leaks)\n"
        "print(os.environ['GREETING'])\n"
    )
    variables = ("--env", "API_TOKEN", "-x", "DEMO_*", "--env", f"GREETING={ODD}")
    done = launcher.run(*TWO_WORKERS, *variables, "--", "python", script, env=secrets)
    assert done.code == 0, done.err
    hashes = [f"{name} {hashlib.sha256(value.encode()).hexdigest()}" for name, value in sorted(secrets.items())]
    for task in ("worker-0", "worker-1"):
        assert done.lines_of(task, done.out) == [*hashes, "[]", ODD]
    files = [path for path in launcher.run_dir.rglob("*") if path.is_file()]
    assert len(files) > 5
    for secret in secrets.values():
        assert secret not in done.out + done.err
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_secret_on_the_command_line_is_not_saved(launcher):
    secret = uuid.uuid4().hex
    script = launcher.script(f"import os\nassert os.environ['API_TOKEN'] == '{secret}'\n")
    done = launcher.run(*TWO_WORKERS, "--env", f"API_TOKEN={secret}", "--", "python", script)
    assert done.code == 0, done.err
    assert secret not in done.out + done.err
    files = [path for path in launcher.run_dir.rglob("*") if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert any(b"API_TOKEN=***" in path.read_bytes() for path in files)
