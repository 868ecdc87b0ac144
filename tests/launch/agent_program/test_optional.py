"""What replaces functions that not every Python has, and that nothing uses them directly."""

import ast
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.optional import REMOVALS, WITHOUT_CTYPES, without
from tests.test_imports import FILES, ROOT
from tests.waiting import wait_until
from tfdist.launch.agent_program import optional
from tfdist.launch.agents.messages import Exited, Leaving, Stop

from .real_agent import real_agent

OPTIONAL = {
    "os": "copy_file_range eventfd getrandom memfd_create pidfd_open posix_spawn posix_spawnp preadv pwritev "
    "sched_getparam sched_getscheduler sched_setparam sched_setscheduler setns splice unshare "
    "O_PATH O_TMPFILE P_PIDFD SEEK_DATA",
    "signal": "pidfd_send_signal",
    "socket": "SO_INCOMING_CPU SO_REUSEPORT TCP_USER_TIMEOUT create_server",
    "resource": "prlimit",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
    "fcntl": "F_ADD_SEALS F_GETPIPE_SZ F_GET_SEALS F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ",
    "ctypes": "*",
    "_ctypes": "*",
}
"""Names of modules that a Python may lack (glibc 2.12, Linux 2.6.32, musl); create_server may refuse an option."""

OLD = not hasattr(os, "memfd_create")
"""Whether this is the Python of tests/old_python.sh."""


def used(text):
    """The optional names that a program uses, as `module.name`."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                found |= {(module, name)}
            case ast.Import(names=names):
                found |= {(each.name, "*") for each in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {(module, each.name) for each in names} | {(module, "*")}
    return {f"{module}.{name}" for module, name in found if name in OPTIONAL.get(module, "").split()}


def test_optional_names_are_found():
    assert used("import os\nos.memfd_create('x')") == {"os.memfd_create"}
    assert used("from signal import pidfd_send_signal as send") == {"signal.pidfd_send_signal"}
    assert used("from ctypes import CDLL") == used("import ctypes as c") == {"ctypes.*"}
    assert used("import os\nos.getpid()") == set()


def test_optional_functions_are_used_in_one_module_only():
    users = {str(file): names for file in FILES if (names := used((ROOT / file).read_text(encoding="utf-8")))}
    assert list(users) == ["launch/agent_program/optional.py"]


# --- signals


@contextmanager
def sleeping():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def refuse(*_):
    raise PermissionError(errno.EPERM, "refused by a sandbox")


def invalid(*_):
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def missing(patch, module, name):
    patch.delattr(module, name, raising=False)


def refused(patch, module, name):
    patch.setattr(module, name, refuse, raising=False)


PIDFDS = [(os, "pidfd_open"), (signal, "pidfd_send_signal")]


@pytest.mark.parametrize("lack", [missing, refused])
@pytest.mark.parametrize(("module", "name"), PIDFDS)
def test_a_process_is_signalled_without_a_descriptor_of_it(monkeypatch, lack, module, name):
    lack(monkeypatch, module, name)
    calls = []
    with sleeping() as process:
        optional.signal_process(process.pid, signal.SIGTERM, lambda: calls.append(process.pid))
        assert process.wait(30) == -signal.SIGTERM
    assert calls == [process.pid]


@pytest.mark.parametrize("lack", [None, *PIDFDS])
def test_another_process_gets_no_signal(monkeypatch, lack):
    if lack:
        monkeypatch.delattr(*lack, raising=False)

    def verify():
        raise ProcessLookupError

    with sleeping() as process:
        with pytest.raises(ProcessLookupError):
            optional.signal_process(process.pid, signal.SIGKILL, verify)
        assert process.poll() is None


@pytest.mark.parametrize("lack", [None, *PIDFDS])
def test_a_process_that_is_gone_gets_no_signal(monkeypatch, lack):
    if lack:
        monkeypatch.delattr(*lack, raising=False)
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        optional.signal_process(process.pid, signal.SIGKILL, lambda: None)


# --- others


def no_setsid(*_arguments, **_options):
    raise NotImplementedError


@pytest.mark.parametrize("lack", ["", "setsid", "posix_spawn"])
def test_a_program_runs_in_a_session_of_its_own(monkeypatch, lack):
    if lack == "setsid":
        monkeypatch.setattr(os, "posix_spawn", no_setsid)
    elif lack:
        monkeypatch.delattr(os, "posix_spawn")
    reader, writer = os.pipe()
    answers, answer = os.pipe()
    os.write(writer, b"words\n")
    fields = 'echo "$line $A $(cut -d" " -f6 /proc/$$/stat) $$"'
    script = f"read -r line; echo lost; {fields} > /proc/{os.getpid()}/fd/{answer}"
    optional.run_in_session(["/bin/sh", "-c", script], {"A": "b", "PATH": os.defpath}, reader)
    line, value, session, pid = os.read(answers, 100).decode().split()
    assert (line, value, session) == ("words", "b", pid)
    for descriptor in (reader, writer, answers, answer):
        os.close(descriptor)


@pytest.mark.parametrize("lack", [lambda *_: None, missing, refused])
def test_a_memory_file_can_be_written_and_read(monkeypatch, lack, tmp_path):
    lack(monkeypatch, os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = optional.memory_file()
    os.write(file, b"words")
    assert os.pread(file, 100, 0) == b"words"
    assert list(tmp_path.iterdir()) == []
    os.close(file)


def open_files(pid):
    """Soft and hard limit of a process, as the kernel names them."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    return tuple(map(int, re.search(r"Max open files +(\d+) +(\d+)", limits).groups()))


@pytest.mark.parametrize("lack", [False, True])
def test_the_open_files_of_another_process_are_limited(monkeypatch, lack):
    if lack:
        missing(monkeypatch, resource, "prlimit")
    with sleeping() as process:
        before = open_files(process.pid)
        assert optional.limit_open_files(process.pid) == before
        assert optional.limit_open_files(process.pid, (9, before[1])) == before
        assert open_files(process.pid) == (9, before[1])
    with pytest.raises(ProcessLookupError):
        optional.limit_open_files(process.pid)


HOLE = """
import os, sys
from tfdist.launch.agent_program.optional import start_of_data
with open(sys.argv[1], "w+b") as file:
    file.truncate(1 << 40)
    file.seek(0, os.SEEK_END)
    file.write(b"data")
    file.flush()
    print(start_of_data(file.fileno(), 0) == 1 << 40)
"""


def test_a_hole_is_skipped_without_the_constant(tmp_path):
    program = f"{REMOVALS['SEEK_DATA']}\n{HOLE}"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_a_kernel_that_cannot_skip_holes_reads_them(monkeypatch):
    monkeypatch.setattr(os, "lseek", invalid)
    assert optional.start_of_data(0, 5) == 5


def test_the_scheduling_of_a_process_is_shown():
    show = "from tfdist.launch.agent_program.optional import *; schedule_in_batches(); print(scheduling())"
    assert subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout == "batch\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REMOVALS, "ctypes"])
def test_what_is_missing_is_missing(name, tmp_path):
    """The other tests would pass without it, too."""
    checks = {
        "setsid": "os.posix_spawn('/bin/true', ['true'], {}, setsid=True)",
        "memfd_create": "os.memfd_create",
        "pidfd_open": "os.pidfd_open",
        "pidfd_send_signal": "signal.pidfd_send_signal",
        "prlimit": "resource.prlimit",
        "CLOCK_BOOTTIME": "time.CLOCK_BOOTTIME",
        "SO_REUSEPORT": "socket.SO_REUSEPORT",
        "schedulers": "os.sched_getscheduler",
        "SEEK_DATA": "os.SEEK_DATA",
        "libc": "__import__('ctypes').CDLL(None)",
        "ctypes": "__import__('ctypes')",
    }
    env = without(tmp_path / "site", [{**REMOVALS, "ctypes": WITHOUT_CTYPES}[name]])
    code = f"import os, resource, signal, socket, time; {checks[name]}"
    works = [
        subprocess.run([sys.executable, "-c", code], env=each, stderr=subprocess.DEVNULL).returncode == 0
        for each in (os.environ, os.environ | env)
    ]
    assert works == [not OLD or name in ("libc", "schedulers", "ctypes"), False]


# --- an agent that cannot call prctl

DAEMON = """
import os, signal, subprocess, sys, time
ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-S", "-c", ignore])
    os._exit(0)
os.wait()
"""
SLEEP = DAEMON + "print('ready', flush=True); time.sleep(600)\n"


@pytest.fixture(params=["libc", pytest.param("ctypes", marks=pytest.mark.thorough)])
def no_prctl(request, tmp_path):
    return without(tmp_path / "site", [{**REMOVALS, "ctypes": WITHOUT_CTYPES}[request.param]])


@contextmanager
def daemon_and_task(env, code=SLEEP, **options):
    with real_agent(env=env, **options) as agent:
        agent.start(code, env={"TMPDIR": "/elsewhere"})
        wait_until(lambda: agent.text().count("ready") == 2)
        yield agent


@pytest.mark.slow
def test_daemons_are_killed_at_the_end(no_prctl, survivors):
    with daemon_and_task(no_prctl, grace_s=0.5) as agent:
        assert agent.end() == 0
        assert survivors() == []


@pytest.mark.slow
def test_daemons_are_killed_if_the_agent_is(no_prctl, survivors, tmp_path):
    (tmp_path / "tmp").mkdir()
    with daemon_and_task({**no_prctl, "TMPDIR": str(tmp_path / "tmp")}) as agent:
        os.kill(agent.pid(), signal.SIGKILL)
        assert agent.process.wait(30) == 128 + signal.SIGKILL
        assert survivors() == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_daemons_are_killed_if_the_agent_and_its_parent_are(no_prctl, survivors):
    with daemon_and_task(no_prctl) as agent:
        pid = agent.pid()
        os.kill(agent.process.pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        agent.process.kill()
        wait_until(lambda: survivors() == [])


@pytest.mark.slow
def test_the_agent_cleans_up_if_its_parent_is_killed(no_prctl, survivors):
    with daemon_and_task(no_prctl, grace_s=0.5) as agent:
        agent.process.kill()
        agent.reader.join(30)
        assert agent.of((Leaving, Exited))[0] == Leaving("its parent process was killed")
        wait_until(lambda: survivors() == [])


@pytest.mark.slow
def test_a_stopped_task_ends_before_what_still_runs_in_its_group(no_prctl, survivors):
    """The program of a shell has the grace period, and is no orphan as long as the shell runs."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (time.sleep(0.5), print('saved', flush=True), sys.exit()))\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    shell = ("sh", "-c", 'trap "exit 3" TERM; "$@" & wait', "sh", sys.executable, "-S", "-c", program)
    with real_agent(env=no_prctl, grace_s=30.0) as agent:
        agent.start("", program=shell)
        agent.wait_for_text("ready")
        started = time.monotonic()
        agent.send(Stop(("worker-0",), 30.0))
        assert agent.exit_of("worker-0").code == 3
        assert time.monotonic() - started < 15
        assert "saved" in agent.text()
