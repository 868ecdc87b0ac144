"""A run's launcher: which process it is, whether it still runs, and the socket that takes requests to it."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.optional import signal_process
from tfdist.launch.agent_program.system import process_stat, read_text
from tfdist.launch.agents.inbox import Inbox, Interrupted, StacksWanted
from tfdist.launch.connections import answered
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import read_json
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.rundir import RunDir, open_folder
from tfdist.launch.typed_json import Between, Time, from_json, parse_json

ANSWER_S = 5.0
"""Time for a request to arrive once a client has connected, and for its answer; `connections.SECONDS` for both."""
STATUS_S = 1.0
"""Time for an answer that only says whether a launcher listens; without one it does."""
STOPPED_BY = "tfdist stop"
"""The command in the outcome of a run that a request has stopped."""
_LONGEST = 1 << 20
"""Bytes of a request or an answer, as with the names of all tasks that run, and of the file about a launcher."""


@contextmanager
def serve(run_dir: RunDir, inbox: Inbox, running: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Answer requests on the run's control socket until the context ends. Without a socket the job runs all the same.

    Args:
        run_dir: the folder for the socket.
        inbox: receives an `Interrupted` for each request to stop, a `StacksWanted` for each one for stacks.
        running: the tasks that run, for status requests.
    """
    with ExitStack() as stack:

        def answer(client: socket.socket) -> None:
            name = from_json(parse_json(_line(client)), dict[str, Any]).get("request")
            if name == "stop":
                inbox.put(None, Interrupted(signal.SIGTERM, STOPPED_BY))
            if name == "stacks":
                inbox.put(None, StacksWanted())
            if name in ("status", "stop", "stacks"):
                client.sendall(to_line(list(running())))

        with suppress(OSError, TfdistError):  # TfdistError: no more threads
            stack.enter_context(answered(_listener(run_dir, stack), answer, "control"))
        yield


def request(run_dir: RunDir, name: str, timeout_s: float = ANSWER_S) -> tuple[str, ...]:
    """Send a `status`, `stop` or `stacks` request to a run's launcher. Anybody may have made a socket like its own.

    The stacks are then added to stacks.txt of each task, and events.jsonl says when.

    Returns:
        The tasks that run.

    Raises:
        OSError: there is no launcher (ConnectionRefusedError, FileNotFoundError), or it does not answer (TimeoutError).
    """
    with ExitStack() as stack:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(timeout_s)
        folder = os.open(run_dir.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        try:
            client.connect(_address(folder, run_dir))
        except BlockingIOError:  # many have asked, and it has accepted none
            raise TimeoutError from None
        client.sendall(to_line({"request": name}))
        line = _line(client, timeout_s)
    try:
        return tuple(map(safe_text, from_json(parse_json(line), tuple[str, ...])))
    except ValueError:  # the launcher ended while it answered
        raise ConnectionRefusedError(f"no answer from {run_dir.control}") from None


def answers(run_dir: RunDir, timeout_s: float = STATUS_S) -> bool:
    """Whether a launcher listens on the run's socket, also a suspended one. A full disk holds no other trace of it."""
    try:
        request(run_dir, "status", timeout_s)
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


def answering(run_dirs: Sequence[RunDir]) -> list[RunDir]:
    """Those of the runs that `answers` is true of. They are asked at the same time, and all have STATUS_S together."""
    until = time.monotonic() + STATUS_S

    def ask(run_dir: RunDir) -> bool:
        return answers(run_dir, max(0.01, until - time.monotonic()))

    if not run_dirs:
        return []
    try:
        with ThreadPoolExecutor(min(len(run_dirs), 64)) as pool:
            found = list(pool.map(ask, run_dirs))
    except RuntimeError:  # no more threads
        found = list(map(ask, run_dirs))
    return [run_dir for run_dir, listens in zip(run_dirs, found, strict=True) if listens]


def _listener(run_dir: RunDir, stack: ExitStack) -> socket.socket:
    folder = open_folder(run_dir.path)
    stack.callback(os.close, folder)
    address = _address(folder, run_dir)
    _remove(address)  # of a killed launcher
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(address)
    stack.callback(_remove, address)
    os.chmod(address, 0o600)  # noqa: PTH101 - before listen(), so that nobody else can have connected
    listener.listen()
    return listener


def _remove(address: str) -> None:
    with suppress(OSError):
        os.unlink(address)  # noqa: PTH108


def _address(folder: int, run_dir: RunDir) -> str:
    """A short name of the socket: addresses are limited to 107 bytes (unix(7)), paths are not."""
    return f"/proc/self/fd/{folder}/{run_dir.control.name}"


def _line(stream: socket.socket, timeout_s: float = ANSWER_S) -> bytes:
    reader = LineReader(_LONGEST)
    until = time.monotonic() + timeout_s
    lines: list[bytes] = []
    while not lines:
        stream.settimeout(max(0.001, until - time.monotonic()))  # for all of it, however it drips
        lines = reader.feed(stream.recv(4096) or b"\n")
    return lines[0]


@dataclass(frozen=True)
class Launcher:
    """The process that supervises a run."""

    pid: Annotated[int, Between(1, 1 << 22)]  # 1 in a container
    ticks: Annotated[int, Between(1, 1 << 62)]
    """When the process was started, in clock ticks since boot: with it, a pid is unique until the next boot."""
    boot: str
    """The id of this boot of the machine."""
    host: str
    started: Time

    @property
    def local(self) -> bool:
        """Whether it was started on this machine; runs may be on a shared disk."""
        return self.host == socket.gethostname()

    @property
    def this_boot(self) -> bool:
        """Whether it was started since this machine was."""
        return self.boot == _boot_id()

    @property
    def alive(self) -> bool:
        """Whether it runs. One on another machine counts as alive: this one cannot check it."""
        return not self.local or (self.this_boot and self.ticks == _start_ticks(self.pid))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}


def this_launcher() -> Launcher:
    """This process."""
    return Launcher(os.getpid(), _start_ticks(os.getpid()), _boot_id(), socket.gethostname(), time.time())


def read_launcher(run_dir: RunDir) -> Launcher | None:
    """The launcher that a run's folder names; None if it does not. Anybody may have written that file."""
    with suppress(ValueError):
        launcher = from_json(read_json(run_dir.launcher, _LONGEST), Launcher)
        return replace(launcher, host=safe_text(launcher.host))
    return None


def terminate(run_dir: RunDir, launcher: Launcher) -> None:
    """Send SIGTERM to a launcher on this machine, if its process belongs to the user who wrote the file about it.

    Raises:
        ProcessLookupError: it has ended, or that pid is another process.
        PermissionError: it is not ours.
    """

    def verify() -> None:
        owners = {run_dir.launcher.lstat().st_uid, Path(f"/proc/{launcher.pid}").stat().st_uid}
        if len(owners) > 1 or not launcher.alive:
            raise ProcessLookupError

    try:
        signal_process(launcher.pid, signal.SIGTERM, verify)
    except FileNotFoundError:
        raise ProcessLookupError from None


def _start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat (proc(5)); 0 if no such process runs."""
    fields = process_stat(pid)  # they start with field 3, the state
    return 0 if not fields or fields[0] in ("Z", "X") else int(fields[19])


def _boot_id() -> str:
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def request_stop(run_dir: RunDir) -> None:
    """Send a stop request. The tasks get the grace period; after a second request the launcher kills them.

    Raises:
        TfdistError: the launcher cannot be reached.
    """
    try:
        request(run_dir, "stop")
    except TimeoutError:
        launcher = read_launcher(run_dir)
        pid = launcher.pid if launcher else "PID"
        raise TfdistError(
            f"the launcher of {run_dir.path} does not answer: if it is suspended, continue it with 'kill -CONT {pid}'",
            ExitCode.FAILED,
        ) from None
    except PermissionError:
        raise TfdistError(f"{run_dir.control}: not your run; ask its owner to stop it", ExitCode.FAILED) from None
    except OSError:  # it has not opened its socket yet, could not, or has just ended
        launcher = read_launcher(run_dir)
        if launcher is None or not launcher.alive or run_dir.outcome.exists():
            return
        if not launcher.local:
            raise TfdistError(
                f"the launcher of {run_dir.path} runs on {launcher.host}: use 'tfdist stop' on that host",
                ExitCode.FAILED,
            ) from None
        try:
            with suppress(ProcessLookupError):
                terminate(run_dir, launcher)
        except PermissionError:
            raise TfdistError(f"{run_dir.path}: not your run; ask its owner to stop it", ExitCode.FAILED) from None


def running_tasks(run_dir: RunDir) -> tuple[str, ...]:
    """The tasks that still run, as far as the launcher answers."""
    with suppress(OSError):
        return request(run_dir, "status")
    return ()
