"""Jobs of real agents and processes."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tfdist.launch.agents.bootstrap import agent_argv, agent_source
from tfdist.launch.agents.inbox import Stopped
from tfdist.launch.agents.messages import Configure, Event, Exited, Heartbeat, Output, Start, Started, encode
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.doctor.preflight import with_free_ports
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy

from .jobs import QUICK, python_job, roles, run

pytestmark = pytest.mark.usefixtures("started_both_ways")

EMIT = "import os, json; emit = lambda **e: os.write(int(os.environ['TFDIST_EVENTS_FD']), json.dumps(e).encode() + b'\\n')\n"


def test_every_task_runs_with_its_tf_config_and_all_exit_0(tmp_path):
    job = python_job("import os; print(os.environ['TF_CONFIG'])", {"worker": 3})
    outcome, messages = run(job, tmp_path)
    assert (outcome.status, outcome.exit_code) == (Status.OK, 0)
    values = [json.loads((tmp_path / f"attempt-0/worker-{n}/stdout.log").read_text()) for n in range(3)]
    assert [value["task"]["index"] for value in values] == [0, 1, 2]
    assert len(set(values[0]["cluster"]["worker"])) == 3
    assert len(messages.of(Started)) == len(messages.of(Exited)) == 3
    assert json.loads((tmp_path / "outcome.json").read_text())["status"] == "ok"
    assert not list(tmp_path.rglob(".*"))


def test_output_arrives_complete_in_order_and_byte_for_byte(tmp_path):
    code = (
        "import sys, os\n"
        "for n in range(20000): sys.stdout.write(f'line {n} ' + 'x' * 80 + '\\n')\n"
        "sys.stdout.flush(); os.write(1, b'\\xff\\xfe no utf-8\\n' + b'y' * 10_000_000 + b'\\nend without newline')"
    )
    outcome, messages = run(python_job(code, {"worker": 2}), tmp_path)
    assert outcome.status is Status.OK
    expected = b"".join(b"line %d " % n + b"x" * 80 + b"\n" for n in range(20000))
    expected += b"\xff\xfe no utf-8\n" + b"y" * 10_000_000 + b"\nend without newline"
    for name in ("worker-0", "worker-1"):
        assert (tmp_path / f"attempt-0/{name}/stdout.log").read_bytes() == expected
    last = {message.task: at for at, message in enumerate(messages) if isinstance(message, Output)}
    ends = {message.task: at for at, message in enumerate(messages) if isinstance(message, Exited)}
    assert all(last[name] < ends[name] for name in last)


def test_events_and_records_reach_the_launcher_and_invalid_lines_are_dropped(tmp_path):
    code = (
        EMIT
        + "emit(event='step', step=1); os.write(int(os.environ['TFDIST_EVENTS_FD']), b'junk\\n7\\n'); emit(event='record', record={'a': 1})"
    )
    outcome, messages = run(python_job(code, {"worker": 1}), tmp_path)
    assert [message.event["event"] for message in messages.of(Event)] == ["step", "record"]
    assert outcome.records == {"worker-0": {"a": 1}}
    assert "records" not in json.loads((tmp_path / "outcome.json").read_text()), "the disk may be nearly full"
    assert "step" in (tmp_path / "events.jsonl").read_text()


def test_secrets_and_control_characters_of_a_failure_are_not_in_the_outcome(tmp_path):
    code = EMIT + (
        "import sys, time\n"
        "message = '\\x1b[2Jhttps://me:s3cret@host refused'\n"
        "if os.environ['TFDIST_TASK'] == 'worker-1': time.sleep(0.5)\n"
        "emit(event='failed', type='OSError', message=message)\n"
        "sys.exit(message)\n"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert outcome.reason == "worker-0 exited with code 1: OSError: https://me:***@host refused"
    text = (tmp_path / "outcome.json").read_text()
    assert "s3cret" not in text
    assert "u001b" not in text


def test_a_stop_is_kept_before_the_exits_that_it_causes(tmp_path):
    _, messages = run(
        python_job("import time; time.sleep(600)", {"worker": 2}), tmp_path, replace(QUICK, timeout_s=0.3)
    )
    (stopped,) = messages.of(Stopped)
    assert stopped.tasks == ("worker-0", "worker-1")
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert kinds.index("Stopped") < kinds.index("Exited")


def test_the_start_barrier_opens_when_all_tasks_have_reached_it(tmp_path):
    code = EMIT + (
        "import time\n"
        "time.sleep(0.4 * int(os.environ['TFDIST_TASK'][-1]))\n"
        "arrived = time.time(); emit(event='barrier'); os.read(int(os.environ['TFDIST_BARRIER_FD']), 1)\n"
        "emit(event='record', record={'arrived': arrived, 'left': time.time()})"
    )
    outcome, _ = run(python_job(code, {"worker": 2}, cluster=False), tmp_path)
    first, second = (outcome.records[name] for name in ("worker-0", "worker-1"))
    assert min(first["left"], second["left"]) >= max(first["arrived"], second["arrived"])


def test_a_task_that_fails_before_the_barrier_does_not_hang_the_others(tmp_path):
    code = EMIT + (
        "import sys\nif os.environ['TFDIST_TASK'] == 'worker-1': sys.exit(4)\n"
        "emit(event='barrier'); os.read(int(os.environ['TFDIST_BARRIER_FD']), 1)\nsys.exit(0)"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert (outcome.culprit, outcome.exit_code) == ("worker-1", 4)


def test_the_first_failure_stops_the_other_tasks_and_is_reported(tmp_path, survivors):
    code = (
        "import os, sys, time\nif os.environ['TFDIST_TASK'] == 'worker-1': sys.exit('my last words')\ntime.sleep(600)"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path)
    assert (outcome.status, outcome.exit_code, outcome.culprit) == (Status.FAILED, 1, "worker-1")
    assert (tmp_path / "attempt-0/worker-1/stderr.log").read_text() == "my last words\n"
    assert outcome.exits["worker-0"].code == -signal.SIGTERM
    assert survivors() == []


def test_the_leaders_exit_stops_the_servers(tmp_path, survivors):
    code = "import os, time\nif not os.environ['TFDIST_TASK'].startswith('chief'): time.sleep(600)"
    outcome, _ = run(python_job(code, {"chief": 1, "worker": 1, "ps": 1}), tmp_path)
    assert (outcome.status, outcome.exit_code) == (Status.OK, 0)
    assert outcome.wall_s < 60
    assert survivors() == []


def test_a_job_is_stopped_at_its_time_limit(tmp_path, survivors):
    outcome, _ = run(
        python_job("import time; time.sleep(600)", {"worker": 2}), tmp_path, Policy(timeout_s=0.3, grace_s=1)
    )
    assert (outcome.status, outcome.exit_code) == (Status.TIMEOUT, 124)
    assert "0.3 s" in outcome.reason
    assert survivors() == []


def test_tasks_that_ignore_sigterm_and_daemons_are_killed(tmp_path, survivors):
    ready = tmp_path / "ready"
    stubborn = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\n"
        f"open({str(ready)!r}, 'w').close() if os.environ['TFDIST_TASK'] == 'worker-1' else None; time.sleep(600)"
    )
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', 'import os;' + {stubborn!r}], stdout=subprocess.PIPE, start_new_session=True)\n"
        "child.stdout.readline()\n"
        "if os.environ['TFDIST_TASK'] == 'worker-0':\n"
        f"    while not os.path.exists({str(ready)!r}): time.sleep(0.01)\n"
        "    sys.exit(3)\n" + stubborn
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path, Policy(grace_s=0.3, settle_s=0.2))
    assert outcome.exit_code == 3
    assert outcome.exits["worker-1"].code == -signal.SIGKILL
    assert survivors() == []


def test_a_process_that_was_stopped_by_a_signal_gets_its_sigterm(tmp_path, survivors):
    code = (
        "import os, signal, sys, time\n"
        "if os.environ['TFDIST_TASK'] == 'worker-1': time.sleep(0.5); sys.exit(3)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path, Policy(grace_s=30.0, settle_s=0.3))
    assert outcome.casualties == {"worker-0": "stopped by tfdist"}
    assert outcome.exits["worker-0"].code == -signal.SIGTERM
    assert survivors() == []


def test_processes_are_inspected_while_the_cause_is_unknown(tmp_path):
    peer = "UnavailableError: Collective ops is aborted by: Socket closed"
    code = (
        "import os, signal, sys, time\n"
        f"if os.environ['TFDIST_TASK'] == 'worker-1': time.sleep(0.5); sys.exit({peer!r})\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    policy = Policy(grace_s=30.0, settle_s=0.3, settle_secondary_s=60.0)
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path, policy)
    assert outcome.reason == "worker-0 is stopped (state T: SIGSTOP or a debugger)"


@pytest.mark.slow
def test_a_task_gets_one_sigterm_and_the_whole_grace_period(tmp_path, survivors):
    saving = (
        "import os, signal, sys, time\n"
        "if os.environ['TFDIST_TASK'] == 'worker-0': time.sleep(600)\n"
        "signal.signal(15, lambda *_: print('SIGTERM', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    policy = Policy(timeout_s=2.0, grace_s=1.5, settle_s=0.3)
    outcome, messages = run(python_job(saving, {"worker": 2}, cluster=False), tmp_path, policy)
    output = "".join(message.text for message in messages.of(Output) if message.task == "worker-1")
    assert output == "ready\nSIGTERM\n"
    assert outcome.exits["worker-1"].code == -signal.SIGKILL
    assert survivors() == []


def test_temporary_files_of_tasks_are_removed(tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    code = "import os, tempfile; print(tempfile.mkstemp()[1], flush=True); os.kill(os.getpid(), 9)"
    outcome, _ = run(python_job(code, {"worker": 2}), tmp_path / "run")
    assert outcome.exit_code == 137
    assert (tmp_path / "run/attempt-0/worker-0/stdout.log").read_text().startswith(str(temporary))
    assert list(temporary.iterdir()) == []


def test_peak_memory_and_cpu_time_of_a_task_are_reported(tmp_path):
    outcome, _ = run(python_job("data = bytearray(80_000_000); sum(range(10**6))", {"worker": 1}), tmp_path)
    assert outcome.exits["worker-0"].peak_memory_bytes > 80_000_000
    assert outcome.exits["worker-0"].cpu_s > 0.01


def test_a_missing_program_or_folder_exits_with_127(tmp_path):
    for program in (Program(("/no/such program",), {}, "/"), Program(("true",), {}, "/no/such/folder")):
        outcome, _ = run(plan_job(Shape(roles(worker=2), True), program, local_machines()), tmp_path)
        assert outcome.exit_code == 127
        assert "/no/such" in outcome.reason


def test_a_busy_port_is_refused_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        job = plan_job(
            Shape(roles(worker=1), True, base_port=port),
            Program(("touch", str(tmp_path / "ran")), {}, "/"),
            local_machines(),
        )
        for act in (lambda: run(job, tmp_path), lambda: with_free_ports(job)):
            with pytest.raises(TfdistError, match=f"localhost: port {port} cannot be used"):
                act()
    assert not (tmp_path / "ran").exists()


def test_a_fixed_port_is_free_again_after_the_launch(tmp_path):
    chosen = int(with_free_ports(python_job("", {"worker": 1})).cluster.addresses["worker"][0].rpartition(":")[2])
    shape = Shape(roles(worker=1), True, base_port=chosen)
    probe = f"import socket; s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(('', {chosen})); s.listen()"
    job = plan_job(shape, Program((sys.executable, "-S", "-c", probe), {}, "/"), local_machines())
    for _ in range(2):
        outcome, _ = run(job, tmp_path)
        assert outcome.status is Status.OK


LAUNCHER = """
{before}
import sys
from dataclasses import replace
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {here!r})
from jobs import python_job, run
from tfdist.launch.hosts.host import Host
job = python_job("import os, time; print(os.getpid(), flush=True); time.sleep(600)", {{"worker": 2}})
if {elsewhere!r}:
    job = replace(job, plans=tuple(replace(plan, host=Host("h2", "127.0.0.1")) for plan in job.plans))
outcome, messages = run(job, Path({folder!r}))
sys.exit(outcome.exit_code)
"""


def start_launcher(folder: Path, before: str = "", elsewhere: bool = False) -> "subprocess.Popen[bytes]":
    """A launcher in another process, with both tasks running."""
    here = str(Path(__file__).parent)
    code = LAUNCHER.format(here=here, folder=str(folder), before=before, elsewhere=elsewhere)
    launcher = subprocess.Popen([sys.executable, "-c", code])
    logs = [folder / f"attempt-0/worker-{n}/stdout.log" for n in range(2)]
    wait_for(lambda: all(log.exists() and log.read_bytes().endswith(b"\n") for log in logs))
    return launcher


def wait_for(condition, seconds=30.0):
    """Wait until the condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition never held"
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_an_interrupted_launch_leaves_no_processes(tmp_path, survivors, number, code):
    launcher = start_launcher(tmp_path)
    launcher.send_signal(number)
    assert launcher.wait(timeout=30) == code
    assert survivors() == []
    assert json.loads((tmp_path / "outcome.json").read_text())["status"] == "interrupted"


def test_a_killed_launch_leaves_no_processes(tmp_path, survivors):
    launcher = start_launcher(tmp_path)
    launcher.kill()
    launcher.wait(timeout=30)
    wait_for(lambda: survivors() == [], seconds=15)


def test_the_tasks_of_a_killed_agent_are_killed(tmp_path, survivors):
    launcher = start_launcher(tmp_path)
    task = int((tmp_path / "attempt-0/worker-0/stdout.log").read_text())
    agent = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    assert launcher.wait(timeout=30) == 69
    assert survivors() == []
    assert "agent on localhost" in json.loads((tmp_path / "outcome.json").read_text())["reason"]


@pytest.mark.slow
def test_a_paused_launcher_loses_no_tasks(tmp_path, survivors):
    launcher = start_launcher(tmp_path)
    before = len(survivors())
    launcher.send_signal(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(launcher.pid).status() == psutil.STATUS_STOPPED)
    time.sleep(1.0)  # nothing may happen meanwhile; the next test covers other hosts
    launcher.send_signal(signal.SIGCONT)
    assert len(survivors()) == before
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=30) == 143


@pytest.mark.thorough
def test_an_agent_on_another_host_stops_its_tasks_without_heartbeats_from_the_launcher(tmp_path, survivors):
    launcher = start_launcher(tmp_path, elsewhere=True)
    agent_pid = psutil.Process(launcher.pid).children()[0].pid
    launcher.send_signal(signal.SIGSTOP)  # its streams stay open, as with a cut network
    try:
        wait_for(lambda: len(survivors()) == 1, seconds=20)
    finally:
        launcher.send_signal(signal.SIGCONT)
    assert launcher.wait(timeout=30) == 69
    assert "no message from the launcher" in json.loads((tmp_path / "outcome.json").read_text())["reason"]
    assert not psutil.pid_exists(agent_pid)


@pytest.mark.slow
def test_an_agent_exits_even_if_nothing_reads_its_output():
    many = Start("worker-0", (sys.executable, "-S", "-c", "print('x' * 1000000)"), {}, "/", (), None)
    messages = Configure(1.0, launcher_timeout_s=1.0), Heartbeat(time.time()), many
    with subprocess.Popen(agent_argv(LOCAL), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(agent_source(LOCAL) + b"".join(map(encode, messages)))
        process.stdin.flush()
        assert process.wait(timeout=30) == 0


def test_a_launch_under_nohup_survives_sighup(tmp_path):
    launcher = start_launcher(tmp_path, before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    launcher.send_signal(signal.SIGHUP)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=30) == 143


def test_an_agent_exits_if_the_launcher_dies_before_sending_its_program():
    done = subprocess.run(agent_argv(LOCAL), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    assert done.returncode == 1
    assert "launcher went away" in done.stderr


def test_a_too_deeply_nested_event_is_dropped(tmp_path):
    code = EMIT + "os.write(int(os.environ['TFDIST_EVENTS_FD']), b'[' * 200000 + b'\\n'); emit(event='step', step=1)"
    outcome, messages = run(python_job(code, {"worker": 1}), tmp_path)
    assert outcome.status is Status.OK
    assert len(messages.of(Event)) == 1


def test_events_that_cannot_be_sent_end_neither_the_job_nor_its_diagnosis(tmp_path):
    code = EMIT + (
        "import sys\n"
        "emit(event='config', seed=2**64 - 1); emit(event='config', name='\\ud83d'); emit(event='step', step=1)\n"
        "emit(event='failed', type='ValueError', message='bad', where='train.py:7', causes='')\n"
        "sys.exit(3)"
    )
    outcome, messages = run(python_job(code, {"worker": 1}), tmp_path)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 3)
    assert outcome.reason == "worker-0 exited with code 3: ValueError: bad"
    assert [message.event["event"] for message in messages.of(Event)] == ["step", "failed"]
    lines = (tmp_path / "attempt-0/worker-0/stderr.log").read_text().splitlines()
    assert [line.partition(": the event ")[2].partition(" (")[0] for line in lines] == [
        "'config' was dropped: an integer in it needs more than 64 bits; send it as text",
        "'config' was dropped: a text in it is not Unicode",
    ]


def test_the_limit_on_open_files_is_raised_for_hosts_and_tasks(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        outcome, _ = run(python_job("pass", {"worker": 16}), tmp_path)
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert outcome.status is Status.OK
    assert raised >= 256 + 3 + 2 * 16
