"""Writes into a run's folder. A write that fails is a warning, never the end of the job."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tfdist.launch.agents.inbox import Arrival, Message, Note, Restarting
from tfdist.launch.agents.messages import Event, Heartbeat, Inspected, Output
from tfdist.launch.events import VALUE
from tfdist.launch.job import Job, TaskPlan
from tfdist.launch.json_files import dumps, replace_file
from tfdist.launch.policy import LOG_LIMIT
from tfdist.launch.redact import redact_command, redact_value
from tfdist.launch.runs.rundir import RunDir, open_folder
from tfdist.launch.text import shortened
from tfdist.launch.this_command import this_command

RETRY_S = 1.0
"""Seconds between two attempts to write to a file after a write has failed."""
RESERVED_BYTES = 1 << 16
"""Kept free for the outcome: logs may fill the disk before it is written."""


class _Log:
    """One file that grows up to a limit. What cannot be written is counted and dropped."""

    def __init__(self, path: Callable[[], Path], limit: int, end: bytes) -> None:
        """Write at most `limit` bytes to `path()`, where the file is now, then `end` in place of all that follows."""
        self._path, self._limit, self._end = path, limit, end
        self.cut = False
        self.size = 0
        self._descriptor: int | None = None
        self.lost = 0  # bytes that could not be written since the last ones that could
        self._retry_at = 0.0

    def append(self, data: bytes) -> None:
        """Write `data`, or drop it if the file is cut, or the last failure was less than RETRY_S ago.

        Raises:
            OSError: it could not be written.
        """
        if self.cut:
            return
        if self.lost and time.monotonic() < self._retry_at:
            self.lost += len(data)
            return
        gap = b"\n[tfdist: %d bytes could not be written here]\n" % self.lost if self.lost else b""
        left = memoryview(gap + data)
        try:
            if self._descriptor is None:
                path = self._path()
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(path, flags, 0o600)
                self.size = os.fstat(self._descriptor).st_size
            ends = self.size + len(left) > self._limit
            left = memoryview(self._end) if ends else left
            while left:
                written = os.write(self._descriptor, left)
                left = left[written:]
                self.size += written
            self.lost, self.cut = 0, ends
        except OSError:
            self.lost = (self.lost if len(left) > len(data) else 0) + min(len(left), len(data))
            self._retry_at = time.monotonic() + RETRY_S
            self.close()  # the next attempt opens it again: the folder may have been recreated
            raise

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


class RunWriter:
    """Keeps a run: its JSON files, each task's output byte for byte, and all other messages in events.jsonl.

    All files are written below a descriptor of the folder, which must be ours: nobody who may rename it, or put a link
    in its place, can choose what is overwritten. The first write that fails is reported to `warn`, with the file; the
    job continues, and later writes are tried.
    """

    def __init__(self, run_dir: RunDir, warn: Callable[[str], None] = lambda _: None, limit: int = LOG_LIMIT) -> None:
        """Keep at most `limit` bytes in each log, and of the events."""
        self.run_dir = run_dir
        self.warn = warn
        self._cut = f"cut at log_limit, {limit:,} bytes"
        self._limit = limit
        self._logs: dict[Path, _Log] = {}
        self._descriptor: int | None = None
        self._spare: int | None = None
        """A descriptor for the outcome, if all others are in use then."""
        self._warned = False

    def __enter__(self) -> "RunWriter":
        """Open the folder.

        Raises:
            OSError: it cannot be created, is a link, or belongs to another user.
        """
        self._open()
        with suppress(OSError):  # without the reserve, the outcome may still find space
            replace_file(self._here(self.run_dir.reserved), bytes(RESERVED_BYTES), 0o600)
        self._reserve_descriptor()
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._logs.values():
            log.close()
        self._free_reserve()
        self._free_descriptor()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the outcome: which logs are cut."""
        cut = [path for path, log in self._logs.items() if log.cut]
        return (self._warning(cut),) if cut else ()

    def log_bytes(self) -> dict[str, int]:
        """The bytes of each task's logs of the present attempt."""
        sizes: Counter[str] = Counter()
        for path, log in list(self._logs.items()):
            sizes[path.parent.name] += log.size if path != self.run_dir.events else 0
        return +sizes

    def save(self, path: Path, data: Any) -> None:
        """Write a JSON file."""
        self.save_text(path, dumps(data, indent=1) + "\n")

    def save_outcome(self, data: Any) -> None:
        """Write outcome.json, in the space and with the descriptor that were reserved for it."""
        self._free_reserve()
        self._free_descriptor()
        self.save(self.run_dir.outcome, data)
        self._reserve_descriptor()  # it may change

    def save_text(self, path: Path, text: str) -> None:
        """Write a text file."""
        self.save_bytes(path, text.encode("utf-8", "surrogateescape"))

    def save_bytes(self, path: Path, data: bytes) -> None:
        """Write a file."""
        self._try(path, lambda: replace_file(self._here(path), data, 0o600))

    def _open(self) -> None:
        self.run_dir.path.mkdir(0o700, parents=True, exist_ok=True)
        self._descriptor = open_folder(self.run_dir.path)

    def _here(self, path: Path) -> Path:
        """The path of a file of the run, by the descriptor of its folder. A folder that was deleted is created again.

        Raises:
            OSError: that failed.
        """
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            os.close(self._descriptor)
            self._descriptor = None
        if self._descriptor is None:
            self._open()
        return Path(f"/proc/self/fd/{self._descriptor}") / path.relative_to(self.run_dir.path)

    def _free_reserve(self) -> None:
        if self._descriptor is not None:  # else the name would be a file of the current folder
            with suppress(OSError):
                os.unlink(self.run_dir.reserved.name, dir_fd=self._descriptor)

    def _reserve_descriptor(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _free_descriptor(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def write(self, message: Message) -> None:
        """Append one message to its log; what comes every few seconds from each host is skipped."""
        if isinstance(message, Restarting):  # files of earlier attempts would stay open; those still used are reopened
            for log in self._logs.values():
                log.close()
            self._logs = {path: log for path, log in self._logs.items() if log.lost or log.cut}
        if isinstance(message, Output):
            self._append(self.run_dir.log(message.task, message.stream, message.attempt), message.text)
        elif not isinstance(message, Heartbeat | Inspected):
            self._append_event({"kind": type(message).__name__, **vars(_without_data(message))})

    def refuse(self, arrival: Arrival) -> None:
        """Record a message about a task that is not on the host that sent it."""
        host = arrival.host.name if arrival.host else ""
        self._append_event({"kind": "Refused", "host": host, "message": type(arrival.message).__name__})

    def _append_event(self, entry: dict[str, Any]) -> None:
        self._append(self.run_dir.events, dumps({"format": 1, **entry}) + "\n")

    def _append(self, path: Path, text: str) -> None:
        if path not in self._logs:
            end = f"\n[tfdist: {self._cut}]\n"
            if path == self.run_dir.events:
                end = dumps({"format": 1, "kind": "Note", **asdict(Note("tfdist", f"{path.name}: {self._cut}"))}) + "\n"
            self._logs[path] = _Log(lambda: self._here(path), self._limit, end.encode())
        log = self._logs[path]
        was_cut = log.cut
        self._try(path, lambda: log.append(text.encode("utf-8", "surrogateescape")))
        if log.cut and not was_cut:
            self.warn(self._warning([path]))

    def _warning(self, cut: Iterable[Path]) -> str:
        names = shortened(str(path.relative_to(self.run_dir.path)) for path in cut)
        return f"{names}: {self._cut}; allow more with --set log_limit=100G"

    def _try(self, path: Path, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            if not self._warned:
                self._warned = True
                what = f"cannot write {path} ({error.strerror}), so the logs of this run will be incomplete"
                self.warn(f"{what}; free space, or make it writable")


def _without_data(message: Message) -> Message:
    """The message without the bytes of what a function returns, which are for the caller of the launcher."""
    if isinstance(message, Event) and message.event.get("event") == VALUE:
        return replace(message, event={name: value for name, value in message.event.items() if name != "data"})
    return message


def describe_plan(job: Job, plan: TaskPlan) -> dict[str, Any]:
    """One task for --dry-run; `env` holds what tfdist sets or forwards, secrets redacted."""
    return _described(plan, job.environment(plan), job.command(plan))


def describe_job(job: Job) -> dict[str, Any]:
    """All tasks for cluster.json, as `describe_plan`, but what they have in common stands there once.

    TF_CONFIG of a task is `cluster` (without evaluators, unless it is one) and its place there. In its command,
    `{ps_hosts}` and `{worker_hosts}` stand for the addresses.
    """
    commands = ((plan, job.command_without_addresses(plan)) for plan in job.plans)
    tasks = [_described(plan, job.environment_without_addresses(plan), command) for plan, command in commands]
    first = tasks[0]["env"].items()
    common = {name: value for name, value in first if all(task["env"].get(name) == value for task in tasks)}
    for task in tasks:
        task["env"] = {name: value for name, value in task["env"].items() if name not in common}
    return {"format": 1, "cluster": job.cluster.addresses, "env": common, "tasks": tasks}


def _described(plan: TaskPlan, env: Mapping[str, str], command: Sequence[str]) -> dict[str, Any]:
    return {
        "task": plan.task.name,
        "host": plan.host.name,
        "cores": list(plan.cores),
        "env": {name: redact_value(name, value) for name, value in env.items()},
        "cwd": plan.program.cwd,
        "command": redact_command(command),
    }


def save_plan(job: Job, hellos: Mapping[str, Mapping[str, Any]], writer: RunWriter) -> None:
    """Write hosts.json, cluster.json and commands.txt; `hellos` are the host descriptions by host name."""
    run_dir = writer.run_dir
    writer.save(run_dir.hosts, hellos)
    described = describe_job(job)
    writer.save(run_dir.cluster, described)
    commands = [f"{task['task']}: {task['command']}" for task in described["tasks"]]
    copy = [str(job.copy)] if job.copy is not None else []
    shared = shlex.join(f"{name}={redact_value(name, value)}" for name, value in job.shared.items())
    environment = [f"environment: {shared}"] if shared else []
    lists = [f"{name}: {text}" for name, text in job.host_lists.items() if any(name in each for each in commands)]
    writer.save_text(
        run_dir.commands, "\n".join([redact_command(this_command()), *copy, *environment, *lists, *commands]) + "\n"
    )
