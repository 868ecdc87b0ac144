"""Starts and ends processes, also those that outlive their parents, and an earlier agent. Part of the agent."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import NoReturn

from tfdist.launch.agent_program.optional import prctl, run_in_session, schedule_in_batches
from tfdist.launch.agent_program.system import process_stat, read_text, remove_folder
from tfdist.launch.agent_program.template import AGENT_VARIABLE, is_imported, run_module

POLL_S = 0.05


def end_agent(mark: str, seconds: float) -> str:
    """End the agent whose command line ends with `mark`, so that it cleans up first; return why it could not be ended.

    In the last third of `seconds` it is killed; the parent of an agent then kills what it leaves.
    """
    started = time.monotonic()
    signalled = set[int]()
    killed = set[int]()
    while pids := _marked(mark):
        elapsed = time.monotonic() - started
        if elapsed >= seconds:
            return f"an earlier agent of this job (pid {min(pids)}) did not end within {seconds:g} s"
        for pid in pids - signalled:
            _signal(pid, signal.SIGHUP)  # SIGTERM might be taken for a scheduler's
        signalled |= pids
        if elapsed >= seconds * 2 / 3:
            agents = {pid for pid in pids if int((process_stat(pid) or ["", "0"])[1]) in pids} - killed
            for pid in agents:
                _signal(pid, signal.SIGKILL)
            killed |= agents
        time.sleep(POLL_S)
    return ""


def _marked(mark: str) -> set[int]:
    """The pids of the agent and of its parent; zombies have no command line."""
    marked = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        words = read_text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
        # python -u -c PROGRAM: a shell that has started it has the program inside a longer word, or another option
        if words[1:3] == ["-u", "-c"] and len(words) == 4 and words[3].endswith(mark):
            marked.add(pid)
    return marked


def _signal(pid: int, number: int) -> None:
    """Do nothing if it has ended, or runs as another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""A scheduler may send them to all processes of a job; the launcher acts on them."""
CLEAN_UP_KILL_S = 3.0
"""Wait for processes after SIGKILL, when the agent cleans up."""
AGENT_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""They make the agent stop its tasks and exit."""
INHERITED = ("events", "barrier", "stacks")
"""Pipes of a task whose descriptors are in its environment: TFDIST_EVENTS_FD, ..."""


def descriptor_variable(name: str) -> str:
    """The variable of a task that holds the descriptor of one of the `INHERITED` pipes."""
    return f"TFDIST_{name.upper()}_FD"


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # man 2 prctl
_folder = ""
"""Value of AGENT_VARIABLE of the tasks, in a process that could not become a subreaper."""
_GUARD = """exec 3<&0; {
read -r folder <&3 || exit
read -r ended <&3 || for pause in 0 0 1 1 1; do
  sleep $pause
  for path in $(grep -lF "=${folder##*/}" /proc/[0-9]*/environ); do
    path=${path%/environ}; kill -9 "${path#/proc/}"
  done
done
[ "$ended" ] || rm -rf -- "$folder"
} &"""
# A shell, because it needs little memory, and is not hit by `pkill -9 python` or `pkill -9 -f tfdist`. It looks several
# times: a process may have forked while it looked.


def fork_program(argv: list[str], env: dict[str, str], cwd: str, cores: list[int]) -> tuple[int, dict[str, int]]:
    """Fork a task in a session and process group of its own; return its pid and our ends of its pipes, by name.

    Does not wait until the task runs its program, because it could hang in a folder that does not answer: the pipe
    `failure` tells. Fork in the main thread: the kernel kills a task when the thread that forked it ends
    (PR_SET_PDEATHSIG).

    Raises:
        OSError: too many open files or processes.
    """
    inner: dict[str, int] = {}  # the task's ends of the pipes
    outer: dict[str, int] = {}
    try:
        for stream in ("failure", "stdout", "stderr", "events", "stacks"):
            outer[stream], inner[stream] = os.pipe()
        inner["barrier"], outer["barrier"] = os.pipe()
        os.set_blocking(outer["barrier"], False)
        environment = {**env, **{descriptor_variable(name): str(inner[name]) for name in INHERITED}}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                _run_program(argv, environment, cwd, cores, inner)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except OSError:
        for descriptor in outer.values():
            os.close(descriptor)
        raise
    finally:
        for descriptor in inner.values():
            os.close(descriptor)
    return pid, outer


def _run_program(
    argv: list[str], env: dict[str, str], cwd: str, cores: list[int], descriptors: dict[str, int]
) -> NoReturn:
    """Become a task, in a forked child with all signals blocked. Write the reason to `failure` if that fails."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (*AGENT_SIGNALS, *IGNORED_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if cores:
            os.sched_setaffinity(0, cores)
        if len(cores) == 1:
            # Else the end of a tf.data iterator may sleep for a minute, as the thread that it cancels and wakes on the
            # only core runs before the cancellation is set.
            schedule_in_batches()
        with contextlib.suppress(OSError):
            os.makedirs(env.get("TFDIST_ARM_DIR", cwd), exist_ok=True)
        for target, source in enumerate(
            (os.open(os.devnull, os.O_RDONLY), descriptors["stdout"], descriptors["stderr"])
        ):
            os.dup2(source, target)
        os.chdir(cwd)
        if is_imported(argv, env):
            run_module(argv, env, {descriptors[name] for name in INHERITED}, descriptors["failure"])
        for name in INHERITED:
            os.set_inheritable(descriptors[name], True)
        try:
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            raise OSError(error.errno, error.strerror, argv[0]) from None
    except BaseException as error:
        os.write(descriptors["failure"], str(error).encode("utf-8", "replace"))
    os._exit(127)


def fork_reaper(temporary: str) -> int:
    """Fork. Only the child returns; the parent waits for it and exits with its code, 128 + N for signal N.

    If the child fails or is killed, the parent kills all processes that it leaves, daemons included: as a subreaper,
    it becomes their parent. It also deletes the folder `temporary`. If the parent is killed, the child gets SIGHUP.
    If both are killed, a third process, the guard, kills what has AGENT_VARIABLE in its environment. By that variable
    the two find it, too, if they cannot become subreapers: not what a daemon starts with another environment.

    Returns:
        what to `dismiss` once nothing is left.
    """
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    guard = _start_guard(temporary)
    become_subreaper(temporary)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGHUP)  # SIGTERM might be taken for a scheduler's
        if os.getppid() != parent:
            os._exit(1)
        return guard
    code = _wait_as_reaper(child)
    if code:
        _kill_left()
        remove_folder(temporary)
    dismiss(guard)
    os._exit(code if code >= 0 else 128 - code)


def _wait_as_reaper(child: int) -> int:
    """Wait for the child, to which the agent's signals are forwarded; return its exit code, -N for signal N."""
    for number in AGENT_SIGNALS:
        signal.signal(number, lambda number, _: os.kill(child, number))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # the launcher must see the end of the child's stream
        os.dup2(null, stream)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    for number in AGENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_left() -> None:
    """Kill and reap all that an agent has left, for `CLEAN_UP_KILL_S` at most."""
    until = time.monotonic() + CLEAN_UP_KILL_S
    while (left := children()) and time.monotonic() < until:
        kill_groups(left)
        for pid in left:
            with contextlib.suppress(ChildProcessError):  # not ours to reap
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def _start_guard(temporary: str) -> int:
    """Start the guard; it acts at the end of the returned pipe, which the agent and its parent hold."""
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # without a shell or another process, the two must do
        run_in_session(["/bin/sh", "-c", _GUARD], {"PATH": os.defpath}, reader)  # the guard itself is no child of ours
        os.write(writer, os.fsencode(f"{temporary}\n"))
    os.close(reader)
    return writer


def dismiss(guard: int) -> None:
    """End the guard: nothing is left that it could have to kill."""
    with contextlib.suppress(OSError):  # it was dismissed before, or killed
        os.write(guard, b"ended\n")


def become_subreaper(temporary: str) -> None:
    """Become the parent of what our children leave. Where that is impossible, `children` finds it by AGENT_VARIABLE."""
    global _folder
    _folder = "" if prctl(PR_SET_CHILD_SUBREAPER, 1) else os.path.basename(temporary)


def is_subreaper() -> bool:
    """Whether the kernel makes this process the parent of orphans, and sends it SIGHUP when its own parent ends."""
    return not _folder


def children() -> set[int]:
    """The pids of our children and of what they have left, also of children that have exited but were not reaped."""
    threads = os.listdir("/proc/self/task")  # a child is in the list of the thread that forked it
    found = {int(pid) for thread in threads for pid in read_text(f"/proc/self/task/{thread}/children").split()}
    return found | (_left_by_tasks(f"{AGENT_VARIABLE}={_folder}") if _folder else set())


def _left_by_tasks(variable: str) -> set[int]:
    """The processes with a variable whose parents do not have it."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    marked = {pid for pid in pids if variable in read_text(f"/proc/{pid}/environ").split("\0")}
    return {pid for pid in marked if int((process_stat(pid) or ["", "0"])[1]) not in marked}


def orphans(group: int | None = None) -> set[int]:
    """Our children that are not reaped, in this session or process group.

    As long as there is one, no other process can have the number of the group.
    """
    return {pid for pid in children() if group is None or str(group) in process_stat(pid)[2:4]}


def terminate(pid: int) -> None:
    """Send SIGTERM to a child that was not reaped."""
    _signal(pid, signal.SIGTERM)
    _signal(pid, signal.SIGCONT)  # else SIGTERM waits until somebody continues a process that was stopped


def kill_groups(pids: Iterable[int]) -> None:
    """Send SIGKILL to children that were not reaped and to their process groups, but never to our own group."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) != os.getpgrp():
                os.killpg(group, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
