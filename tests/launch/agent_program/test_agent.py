"""Real agents over pipes, and what becomes of the processes of their tasks."""

import hashlib
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tfdist.launch.agents.messages import (
    Alive,
    Configure,
    Event,
    Exited,
    Finish,
    Heartbeat,
    Hello,
    Leaving,
    Listening,
    NotStarted,
    Output,
    Prepare,
    Prepared,
    Release,
    Reserve,
    Reserved,
    Start,
    Started,
    Stop,
    Stuck,
)

from .real_agent import WITHOUT_SIGKILL, changed_agent, real_agent, stand_in

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
EMIT = "import os; emit = lambda data: os.write(int(os.environ['TFDIST_EVENTS_FD']), data)\n"


def exists(pid):
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- the start


def slow_nvidia_smi(tmp_path, script, code=""):
    """An environment with a stand-in for nvidia-smi, and the agent's source with a device file for it."""
    source = changed_agent(code, GPU_DEVICES="/dev/null", COMMAND_TIMEOUT_S=1.0, HEARTBEAT_S=0.2)
    return stand_in(tmp_path, "nvidia-smi", script), source


@pytest.mark.slow
def test_heartbeats_come_while_a_slow_nvidia_smi_delays_the_description(tmp_path, survivors):
    env, source = slow_nvidia_smi(tmp_path, "trap '' TERM; sleep 600 & wait")
    with real_agent(env=env, source=source) as agent:
        agent.wait_for(Hello)
        kinds = [type(message) for message in agent.messages]
        assert kinds[0] is Alive
        assert Heartbeat in kinds[: kinds.index(Hello)]
        agent.send(Finish())
        assert agent.end() == 0
    assert survivors() == []


@pytest.mark.slow
def test_a_command_that_cannot_be_killed_delays_neither_the_description_nor_the_end(tmp_path):
    env, source = slow_nvidia_smi(tmp_path, "echo $$ > $TMP_FOLDER/pid; exec sleep 600", WITHOUT_SIGKILL)
    with real_agent(env=env | {"TMP_FOLDER": str(tmp_path)}, source=source, grace_s=60) as agent:
        agent.wait_for(Hello)
        pid = int((tmp_path / "pid").read_text())
        assert exists(pid)
        agent.send(Finish())
        assert agent.end() == 0
        os.kill(pid, signal.SIGKILL)


def test_a_folder_that_does_not_answer_delays_only_its_task(tmp_path):
    # A FIFO without a writer hangs whoever opens it, as a program on a file server that is gone.
    source = changed_agent(
        "import os; chdir = os.chdir; os.chdir = lambda cwd: chdir(cwd) if cwd == '/' else open(cwd).close()"
    )
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with real_agent(source=source) as agent:
        agent.send(Start("worker-0", ("true",), {}, str(fifo), (), None))
        agent.start("print('up')", "worker-1")
        assert agent.exit_of("worker-1").code == 0
        assert agent.of(Started, "worker-0") == []
        agent.send(Stop(("worker-0",), 0.2))
        assert agent.exit_of("worker-0").code == -signal.SIGTERM


def test_a_missing_program_is_reported_without_a_start_and_without_an_exit():
    with real_agent() as agent:
        for task, argv in (("worker-0", ("no-such-program",)), ("worker-1", ("/",))):
            agent.send(Start(task, argv, {}, "/", (), None))
            agent.wait_for(NotStarted, int(task[-1]) + 1)
        agent.send(Start("worker-2", ("true", "a\0b"), {}, "/", (), None))
        assert "null" in agent.wait_for(NotStarted, 3).reason
        agent.start("pass", "worker-3")
        agent.exit_of("worker-3")
        assert [(message.task, message.reason) for message in agent.of(NotStarted)[:2]] == [
            ("worker-0", "[Errno 2] No such file or directory: 'no-such-program'"),
            ("worker-1", "[Errno 13] Permission denied: '/'"),
        ]
        assert {message.task for message in agent.of((Started, Exited))} == {"worker-3"}


def test_a_task_starts_with_default_signals_its_cores_and_no_other_descriptors():
    code = (
        "import os, signal\n"
        "print([n for n in (1, 2, 13, 15, 17, 25) if signal.getsignal(n) is not signal.SIG_DFL and n not in (2, 13, 25)])\n"
        "print(open('/proc/self/status').read().split('SigBlk:')[1].split()[0].strip('0') or 'no signal blocked')\n"
        "ignored = open('/proc/self/status').read().split('SigIgn:')[1].split()[0]\n"
        "print(f'{int(ignored, 16) & 0x7FFFFFFF:016x}')\n"  # above 31 are those of the C library
        "print(sorted(os.sched_getaffinity(0)), os.getsid(0) == os.getpgrp() == os.getpid())\n"
        "fds = {int(os.environ[f'TFDIST_{name}_FD']) for name in ('EVENTS', 'BARRIER', 'STACKS')} | {0, 1, 2}\n"
        "print(sorted(set(map(int, os.listdir('/proc/self/fd'))) - fds)[1:], os.environ['PYTHONUNBUFFERED'])"
    )
    core = min(os.sched_getaffinity(0))
    with real_agent() as agent:
        agent.send(Start("worker-0", (sys.executable, "-S", "-c", code), {}, "/", (core,), None))
        assert agent.exit_of("worker-0").code == 0
        ignored_by_python = f"{1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1):016x}"
        assert agent.text() == f"[]\nno signal blocked\n{ignored_by_python}\n[{core}] True\n[] 1\n"
        agent.start("import os; print(os.environ['PYTHONUNBUFFERED'])", "worker-1", env={"PYTHONUNBUFFERED": "0"})
        agent.exit_of("worker-1")
        assert agent.text(task="worker-1") == "0\n"


def test_a_task_on_one_core_is_scheduled_in_batches_and_finds_its_folder(tmp_path):
    code = "import os; print(os.sched_getscheduler(0), os.listdir(os.environ['TFDIST_ARM_DIR']))"
    cores = sorted(os.sched_getaffinity(0))[:2]
    with real_agent() as agent:
        for number, pinned in enumerate(((), cores[:1], cores)):
            env = {"TFDIST_ARM_DIR": str(tmp_path / "a" / str(number))}
            agent.send(Start(f"worker-{number}", (sys.executable, "-S", "-c", code), env, "/", tuple(pinned), None))
            assert agent.exit_of(f"worker-{number}").code == 0
        policies = [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER if len(cores) > 1 else os.SCHED_BATCH]
        assert [agent.text(task=f"worker-{number}") for number in range(3)] == [f"{each} []\n" for each in policies]


@pytest.mark.slow
def test_preparing_a_folder_that_does_not_answer_does_not_stop_heartbeats():
    slow = "import os, time; isdir = os.path.isdir; os.path.isdir = lambda path: time.sleep(1) or isdir(path)"
    source = changed_agent(slow, HEARTBEAT_S=0.1)
    with real_agent(source=source) as agent:
        agent.wait_for(Hello)
        before = len(agent.messages)
        agent.send(Prepare("/", False, request=1))
        assert agent.wait_for(Prepared).actual == "/"
        assert Heartbeat in map(type, agent.messages[before:])


def test_an_agent_that_can_start_no_thread_answers_all_the_same():
    refuse = "import threading\ndef refused(thread): raise RuntimeError(thread)\nthreading.Thread.start = refused"
    with real_agent(source=changed_agent(refuse)) as agent:
        agent.wait_for(Hello)
        agent.send(Prepare("/", False, request=1))
        assert agent.wait_for(Prepared).actual == "/"


def test_the_programs_file_is_compared_by_its_hash(tmp_path):
    (tmp_path / "t.py").write_bytes(b"x = 1")
    with real_agent() as agent:
        agent.send(Prepare(str(tmp_path), False, "t.py", request=1))
        assert agent.wait_for(Prepared).digest == hashlib.sha256(b"x = 1").hexdigest()
    with real_agent() as agent:
        agent.send(Prepare(str(tmp_path), False, "missing.py", request=1))
        assert agent.wait_for(Prepared).digest == ""


# --- stopping


def test_sigterm_reaches_the_task_whose_child_still_helps_it_to_save(survivors):
    code = (
        "import os, signal, subprocess, sys, time\n"
        "saver = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "def save(*_):\n"
        "    out, _ = saver.communicate(b'saved by the child', timeout=20)\n"
        "    print(out.decode(), flush=True)\n"
        "    os._exit(0)\n"
        "signal.signal(15, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    with real_agent() as agent:
        agent.start(code)
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-0",), 30.0))
        assert agent.exit_of("worker-0").code == 0
        assert agent.text() == "ready\nsaved by the child\n"
    assert survivors() == []


def test_sigkill_reaches_the_whole_group(survivors):
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}])\n" + STUBBORN
    with real_agent() as agent:
        agent.start(code)
        wait_until(lambda: agent.text().count("ready") == 2)
        agent.send(Stop(("worker-0",), 0.3))
        assert agent.exit_of("worker-0").code == -signal.SIGKILL
        wait_until(lambda: len(survivors()) == 2)  # the agent and its parent


@pytest.mark.slow
def test_children_that_outlive_a_stopped_task_are_ended_at_once(survivors):
    polite = "import time; print('ready', flush=True); time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"for code in ({polite!r}, {STUBBORN!r}): subprocess.Popen([sys.executable, '-S', '-c', code])\n" + SLEEP
    )
    with real_agent() as agent:
        agent.start(code)
        wait_until(lambda: agent.text().count("ready") == 3)
        agent.send(Stop(("worker-0",), 1.0))
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        wait_until(lambda: len(survivors()) == 2)


SAVES = (
    "import signal, sys, time\n"
    "def save(*_):\n"
    "    print('saving', flush=True)\n"
    "    time.sleep(1.0)\n"
    "    sys.exit('saved')\n"
    "signal.signal(15, save)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)


@pytest.mark.slow
def test_a_program_in_a_shell_has_the_grace_period_and_its_last_words_come_before_the_exit(survivors):
    script = 'PYTHON=$0; "$PYTHON" -S -c "$1"; exit'
    with real_agent() as agent:
        agent.start("", program=("sh", "-c", script, sys.executable, SAVES))
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-0",), 30.0))
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        assert (agent.text(), agent.text("stderr")) == ("ready\nsaving\n", "saved\n")
        assert len(survivors()) == 2  # the agent and its parent


def test_a_program_that_outlives_its_shell_can_be_killed_at_once(survivors):
    script = 'PYTHON=$0; "$PYTHON" -S -c "$1"; exit'
    with real_agent() as agent:
        agent.start("", program=("sh", "-c", script, sys.executable, STUBBORN))
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-0",), 60.0))
        shell = agent.of(Started)[0].pid
        wait_until(lambda: not exists(shell))
        assert agent.of(Exited) == []
        agent.send(Stop(("worker-0",), 0.0))
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        assert len(survivors()) == 2


def test_a_program_that_cannot_be_killed_does_not_hide_the_exit_of_its_shell():
    script = 'PYTHON=$0; "$PYTHON" -S -c "$1"; exit'
    source = changed_agent(WITHOUT_SIGKILL, STUCK_S=0.3, CLEAN_UP_KILL_S=0.3)
    with real_agent(source=source) as agent:
        agent.start("", program=("sh", "-c", script, sys.executable, "import os; print(os.getpid())\n" + STUBBORN))
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-0",), 0.2))
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        assert agent.end() == 0
        os.kill(int(agent.text().split()[0]), signal.SIGKILL)


def test_a_task_that_was_reaped_is_never_signalled(tmp_path):
    log = tmp_path / "signals"
    spy = f"""
import os
from tfdist.launch.agent_program.system import process_stat
def spied(name, real):
    def call(number, signal_number):
        with open({str(log)!r}, "a") as file:
            print(name, number, process_stat(number)[:1], file=file)
        return real(number, signal_number)
    return call
os.kill, os.killpg = spied("kill", os.kill), spied("killpg", os.killpg)
"""
    source = changed_agent(spy)
    with real_agent(grace_s=0.2, source=source) as agent:
        agent.start("pass")
        pid = agent.wait_for(Started).pid
        agent.exit_of("worker-0")
        agent.send(Stop(("worker-0",), 0.0), Stop(("worker-0",), 5.0))
        agent.start(SLEEP, "worker-1")
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-1",), 0.0))
        agent.exit_of("worker-1")
        assert agent.end() == 0
    lines = log.read_text().splitlines()
    assert lines
    assert not any(line.split()[1] == str(pid) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["end of file", signal.SIGTERM, signal.SIGHUP])
def test_the_agents_clean_up_gives_tasks_the_configured_grace(how, survivors):
    code = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    for _ in range(20): print('x' * 100_000, flush=True)\n"  # more than a pipe holds
        "    time.sleep(2.5)\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(15, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    with real_agent(grace_s=60.0) as agent:
        agent.start(code)
        agent.wait_for_text("ready")
        if isinstance(how, int):
            agent.process.send_signal(how)
            agent.reader.join(30)
            assert agent.of((Leaving, Exited))[0] == Leaving(f"received {how.name}")  # first: it is the cause
        else:
            assert agent.end() == 0
        assert agent.exit_of("worker-0").code == 0
        assert "saved" in agent.text()
        assert agent.process.wait(10) == 0
    assert survivors() == []


def test_the_clean_up_ends_as_soon_as_nothing_is_left(survivors):
    with real_agent(grace_s=60.0) as agent:
        agent.start(SLEEP)
        agent.wait_for_text("ready")
        started = time.monotonic()
        assert agent.end() == 0
        assert time.monotonic() - started < 20
    assert survivors() == []


def test_the_grace_of_the_last_stop_counts_for_the_clean_up(survivors):
    daemon = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}], start_new_session=True)\n"
    with real_agent(grace_s=60.0) as agent:
        agent.start(daemon + "import time; time.sleep(600)")
        agent.wait_for_text("ready")
        agent.send(Stop(("worker-0",), 0.0))
        agent.exit_of("worker-0")
        assert agent.end(timeout=30) == 0
    assert survivors() == []


@pytest.mark.slow
def test_a_silent_launcher_ends_the_tasks_after_the_configured_time(survivors):
    with real_agent() as agent:
        agent.start(STUBBORN)
        agent.wait_for_text("ready")
        agent.send(Configure(0.5, 1.0))
        assert agent.process.wait(30) == 0
        agent.reader.join(5)
        assert agent.of(Leaving) == [Leaving("no message from the launcher for 1 s")]
    assert survivors() == []


# --- tasks that cannot be killed


@contextmanager
def frozen(pid):
    """Processes in a frozen cgroup (v1) are in uninterruptible sleep: SIGKILL has no effect until they are thawed."""
    folder = Path("/sys/fs/cgroup/freezer") / f"tfdist-test-{pid}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs root and cgroup v1's freezer")
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (folder / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_a_task_in_uninterruptible_sleep_is_reported_and_not_waited_for():
    with real_agent(grace_s=60.0, source=changed_agent(STUCK_S=0.5)) as agent:
        agent.start(SLEEP)
        agent.wait_for_text("ready")
        with frozen(agent.wait_for(Started).pid):
            agent.send(Stop(("worker-0",), 0.2))
            stuck = agent.wait_for(Stuck)
            assert (stuck.task, stuck.attempt, stuck.state) == ("worker-0", 0, "D")
            assert stuck.wait
            started = time.monotonic()
            agent.send(Finish())
            assert agent.end() == 0
            assert time.monotonic() - started < 20
            assert agent.of(Exited) == []


def test_a_task_that_does_not_end_is_reported_as_stuck():
    source = changed_agent(WITHOUT_SIGKILL, STUCK_S=0.3, CLEAN_UP_KILL_S=0.3)
    with real_agent(source=source) as agent:
        agent.start(STUBBORN)
        agent.wait_for_text("ready")
        pid = agent.wait_for(Started).pid
        agent.send(Stop(("worker-0",), 0.0))
        stuck = agent.wait_for(Stuck)
        assert (stuck.task, stuck.state) == ("worker-0", "S")
        assert agent.end() == 0  # PR_SET_PDEATHSIG ends the task with the agent
    wait_until(lambda: not exists(pid))


# --- out of memory


@contextmanager
def little_memory(megabytes):
    """A memory cgroup (v1), and the program that enters it and then runs a command."""
    folder = Path("/sys/fs/cgroup/memory") / f"tfdist-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs root and cgroup v1's memory controller")
    try:
        (folder / "memory.limit_in_bytes").write_text(f"{megabytes << 20}")
        yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "enter")
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_an_exit_for_lack_of_memory_comes_with_the_evidence():
    hungry = "data = [bytearray(1 << 20) for _ in range(500)]"
    with little_memory(100) as enter, real_agent(grace_s=0.5) as agent:
        # the agent itself is in the cgroup, as in a container
        Path(enter[2].split()[3].rstrip(";")).write_text(str(agent.pid()))
        agent.start(hungry)
        agent.start(SLEEP, "worker-1")
        agent.start(
            f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {hungry!r}]); sys.exit(137)",
            "worker-2",
        )
        direct, wrapped = agent.exit_of("worker-0"), agent.exit_of("worker-2")
        assert (direct.code, wrapped.code) == (-signal.SIGKILL, 137)
        assert direct.oom_kills >= 1
        assert wrapped.oom_kills >= 1
        if os.access("/dev/kmsg", os.R_OK):
            assert f"Killed process {agent.of(Started, 'worker-0')[0].pid} " in direct.kernel_log
            assert "Killed process" in wrapped.kernel_log
        agent.send(Stop(("worker-1",), 0.0))
        killed_by_us = agent.exit_of("worker-1")
        assert (killed_by_us.code, killed_by_us.kernel_log) == (-signal.SIGKILL, "")


# --- attempts


def test_a_task_is_started_again_as_the_next_attempt():
    code = EMIT + "import sys; print('hi'); emit(b'{\"n\": 1}\\n'); sys.exit(3)"
    with real_agent() as agent:
        for attempt in (0, 1):
            agent.start(code, attempt=attempt)
            assert agent.exit_of("worker-0", attempt).code == 3
        for kind in (Started, Output, Event, Exited):
            assert [message.attempt for message in agent.of(kind)] == [0, 1]


def test_what_an_earlier_attempt_still_writes_carries_its_number(survivors):
    late = "import time; time.sleep(0.5); print('late', flush=True); time.sleep(600)"
    with real_agent(grace_s=0.5) as agent:
        # a daemon of its own session outlives the first attempt, and has its stdout
        agent.start(
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {late!r}], start_new_session=True)"
        )
        agent.exit_of("worker-0")
        agent.start(SLEEP, attempt=1)
        agent.wait_for_text("ready")
        agent.wait_for_text("late")
        assert {(message.text, message.attempt) for message in agent.of(Output)} == {("ready\n", 1), ("late\n", 0)}
    assert survivors() == []


def test_an_attempt_starts_only_after_the_earlier_one_has_exited():
    with real_agent(grace_s=0.5) as agent:
        agent.start(SLEEP)
        agent.wait_for_text("ready")
        agent.start(SLEEP, attempt=1)
        refused = agent.wait_for(NotStarted)
        assert (refused.attempt, refused.reason) == (1, "its attempt 0 still runs")


def test_the_group_of_an_earlier_attempt_is_killed_before_the_next_one_starts():
    stubborn = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}]); print(child.pid, flush=True)"
    with real_agent() as agent:
        agent.start(stubborn)
        agent.exit_of("worker-0")
        agent.wait_for_text("ready")
        pid = int(agent.text().split()[0])
        agent.start("pass", attempt=1)
        agent.exit_of("worker-0", 1)
        wait_until(lambda: not exists(pid))


def test_a_barrier_opens_for_its_attempt_only():
    waiting = "import os; print('at', flush=True); os.read(int(os.environ['TFDIST_BARRIER_FD']), 1); print('past')"
    with real_agent(grace_s=0.5) as agent:
        agent.start("pass")
        agent.exit_of("worker-0")
        agent.start(waiting, attempt=1)
        agent.wait_for_text("at")
        agent.send(Release(0))
        agent.start("pass", "worker-1")
        agent.exit_of("worker-1")  # the agent has handled the message
        assert "past" not in agent.text()
        agent.send(Release(1))
        assert agent.exit_of("worker-0", 1).code == 0
        assert "past" in agent.text()


def test_a_finished_attempt_leaves_no_descriptors():
    with real_agent() as agent:
        agent.start("pass")
        agent.exit_of("worker-0")
        folder = Path(f"/proc/{agent.pid()}/fd")
        before = len(list(folder.iterdir()))
        for attempt in range(1, 6):
            agent.start("print(1)", attempt=attempt)
            agent.exit_of("worker-0", attempt)
        wait_until(lambda: len(list(folder.iterdir())) <= before)


# --- a killed agent


def test_all_processes_of_a_killed_agent_are_killed(survivors, tmp_path):
    child = f"subprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}], start_new_session={{}})\n"
    code = "import subprocess, sys\n" + child.format(False) + child.format(True) + STUBBORN
    with real_agent(grace_s=60.0, env={"TMPDIR": str(tmp_path)}) as agent:
        agent.start(code)
        wait_until(lambda: agent.text().count("ready") == 3)
        assert list(tmp_path.iterdir())
        os.kill(agent.pid(), signal.SIGKILL)
        assert agent.process.wait(30) == 128 + signal.SIGKILL
        assert survivors() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_processes_are_killed_if_the_agent_and_its_parent_are(survivors, tmp_path):
    child = f"subprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}], start_new_session={{}})\n"
    code = "import subprocess, sys\n" + child.format(False) + child.format(True) + STUBBORN
    with real_agent(grace_s=60.0, env={"TMPDIR": str(tmp_path)}) as agent:
        agent.start(code, env={"TMPDIR": "/elsewhere"})
        wait_until(lambda: agent.text().count("ready") == 3)
        pid = agent.pid()
        os.kill(agent.process.pid, signal.SIGSTOP)  # so that it cannot clean up between the two
        os.kill(pid, signal.SIGKILL)
        agent.process.kill()
        wait_until(lambda: survivors() == [])
        wait_until(lambda: list(tmp_path.iterdir()) == [])


def test_the_agent_cleans_up_if_its_parent_is_killed(survivors):
    with real_agent() as agent:
        agent.start(SLEEP)
        agent.wait_for_text("ready")
        agent.process.kill()
        agent.reader.join(30)
        assert agent.of((Leaving, Exited))[0] == Leaving("its parent process was killed")
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        wait_until(lambda: survivors() == [])


# --- ports, events and output


@pytest.mark.slow
def test_a_server_that_listens_is_reported_once():
    serve = (
        "import os, socket, sys\n"
        "server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, 15, 1)\n"
        "server.bind(('127.0.0.1', int(sys.argv[1])))\n"
        "os.read(int(os.environ['TFDIST_BARRIER_FD']), 1); server.listen(); print('ready', flush=True)\n"
        "import time; time.sleep(600)"
    )
    with real_agent(grace_s=0.5, source=changed_agent(HEARTBEAT_S=0.1)) as agent:
        agent.send(Reserve((0,), request=1))
        (port,) = agent.wait_for(Reserved).ports
        agent.start("", program=(sys.executable, "-S", "-c", serve, str(port)), port=port)
        agent.start(SLEEP, "worker-1")
        agent.wait_for_text("ready")
        assert agent.of(Listening) == []
        agent.send(Release(0))
        listening = agent.wait_for(Listening)
        assert (listening.task, listening.attempt) == ("worker-0", 0)
        heartbeats = len(agent.of(Heartbeat))
        wait_until(lambda: len(agent.of(Heartbeat)) > heartbeats + 10)
        assert len(agent.of(Listening)) == 1


def test_too_long_events_are_dropped_with_one_line_in_stderr():
    code = EMIT + (
        "emit(b'{\"n\": 1}\\n')\n"
        "for _ in range(2):\n"
        "    for _ in range(48): emit(b'[' * 65536)\n"
        "    emit(b'\\n')\n"
        "emit(b'{\"n\": 2}\\n')\n"
        "emit(b'{\"s\": \"' + b'x' * 1_000_000 + b'\"}\\n'); emit(b'{\"n\": 3}')"
    )
    with real_agent() as agent:
        agent.start(code)
        assert agent.exit_of("worker-0").code == 0
        events = [message.event for message in agent.of(Event)]
        assert [event.get("n") for event in events] == [1, 2, None, 3]
        assert len(events[2]["s"]) == 1_000_000
        assert agent.text("stderr") == "tfdist: an event was dropped: it has more than 1 MiB\n"


def test_events_that_the_launcher_would_refuse_are_dropped_with_one_line_for_each_reason():
    code = EMIT + (
        "import json; send = lambda **event: emit(json.dumps(event).encode() + b'\\n')\n"
        "for _ in range(2):\n"
        "    send(event='config', seed=2**64 - 1)\n"
        "    send(event='note', text='\\ud83d'); send(event=['\\ud83d'])\n"
        "    emit(b'{\"event\": ' + b'[' * 50 + b']' * 50 + b'}\\n')\n"
        "send(event='stacks', signal=10, pid=2**65)\n"
        "send(seed=2**63 - 1, text='\\U0001f600')\n"
    )
    with real_agent() as agent:
        agent.start(code)
        assert agent.exit_of("worker-0").code == 0
        events = [message.event for message in agent.of(Event)]
        assert events == [{"seed": 2**63 - 1, "text": "\U0001f600"}]
        assert agent.text("stderr").splitlines() == [
            "tfdist: the event 'config' was dropped: an integer in it needs more than 64 bits; send it as text",
            "tfdist: the event 'note' was dropped: a text in it is not Unicode (it has a lone surrogate)",
            "tfdist: an event was dropped: it has more than 50 levels of lists and objects",
        ]


def test_an_endless_event_takes_no_memory():
    code = EMIT + "print('ready', flush=True)\nfor _ in range(3200): emit(b'x' * 65536)"
    with real_agent() as agent:
        agent.start(code)
        agent.exit_of("worker-0")
        peak = Path(f"/proc/{agent.pid()}/status").read_text().split("VmHWM:")[1].split()[0]
        assert int(peak) < 60_000  # KiB; 200 MiB were written


@pytest.mark.slow
def test_a_progress_bar_without_newlines_is_shown_while_it_runs():
    code = (
        "import os, time\n"
        "os.write(1, 'step 1 \\u2588'.encode() + '\\u2588'.encode()[:2]); os.read(int(os.environ['TFDIST_BARRIER_FD']), 1)\n"
        "os.write(1, '\\u2588'.encode()[2:] + b'\\rstep 2'); time.sleep(600)"
    )
    with real_agent(grace_s=0.5) as agent:
        agent.start(code)
        agent.wait_for_text("step 1 \u2588")
        agent.send(Release(0))
        agent.wait_for_text("\rstep 2")
        assert [message.text for message in agent.of(Output)] == ["step 1 \u2588", "\u2588\rstep 2"]


@pytest.mark.slow
def test_output_is_the_same_bytes_however_it_is_cut():
    code = (
        "import os, time\n"
        "os.write(1, b'a\\xff\\xe2\\x96'); time.sleep(1.3); os.write(1, b'b\\r\\n')\n"
        "os.write(1, '\\u2588'.encode() * 100_000); time.sleep(1.3); os.write(1, b'\\xf0\\x9f')"
    )
    with real_agent(source=changed_agent(PARTIAL_S=0.1)) as agent:
        agent.start(code)
        agent.exit_of("worker-0")
        expected = b"a\xff\xe2\x96b\r\n" + "\u2588".encode() * 100_000 + b"\xf0\x9f"
        assert agent.text().encode("utf-8", "surrogateescape") == expected
        assert "".join(message.text for message in agent.of(Output)[1:-1]).count("\u2588") == 100_000
