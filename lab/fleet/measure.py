"""One launch on N hosts, measured from the command to its failure."""

import json
import os
import re
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.commands import PYTHON, TFDIST
from lab.faults.page import this_commit
from lab.fleet import task
from lab.fleet.played import played

ROOT = Path(__file__).parents[2]
POLL_S = 0.02
START_S = 600.0
"""Limit of the start; the launcher has limits of its own."""
END_S = 300.0
DESCRIPTORS = 10
"""Open files for each host, of the launcher and of the fleet, at most."""
COUNTED = re.compile(rb'"(?:kind|event)": ?"(Started|step)"')
MOST_ERROR = 500
"""Characters at the end of the last line that a command that fails has printed."""
LAST_LINES = 5
"""Lines of the launcher that a message about its failure quotes."""


class LaunchError(Exception):
    """A launch did not do what is measured."""


@dataclass(frozen=True)
class Figures:
    """One launch. `cpu`: seconds of the launcher's process alone; without the processes that carry the streams."""

    agents: str
    """`played` or `real`."""
    hosts: int
    delay_s: float
    """Of each answer of a played host."""
    started_s: float
    """From the command until the launcher has written down that all tasks were started."""
    cpu_start_s: float
    """Until then."""
    fleet_cpu_s: float
    """CPU time of the played hosts until then; 0 for real ones."""
    cores_training: float
    """CPU seconds per second while every task reports a step a second."""
    steps_per_s: float
    """Steps that the launcher wrote down per second meanwhile."""
    memory_mb: float
    """Peak, resident."""
    logs_s: float | None
    """Answer of `tfdist logs`, `runs` and `stacks` while the tasks run, and of `runs NAME` after their end; None: it
    failed."""
    runs_s: float | None
    stacks_s: float | None
    run_s: float | None
    named_s: float | None
    """From the failure of a task to the exit of the launcher; None: it did not exit."""
    named: str
    """The task that the outcome blames; the one that has failed is in the middle of the list."""
    named_right: bool
    problems: str
    """What has failed, `; ` between them."""
    load: float
    """Load average of the machine before the launch."""
    commit: str
    files: Mapping[str, int]
    """Bytes of each file of the run; the events without steps, and those of a step of each task."""


class EventsTail:
    """Counts lines in the run's events.jsonl as it grows: starts of tasks, and steps."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.counts, self.bytes = Counter[str](), Counter[str]()
        """By what a line is about: `Started`, `step`, or empty for all else."""
        self._read = 0
        self._rest = b""

    @property
    def run_dir(self) -> Path | None:
        """The folder of the run, once it exists."""
        return next(self.runs.glob("*Z-*"), None)

    def read(self) -> None:
        """Count what was written since the last call."""
        if self.run_dir is None:
            return
        with suppress(FileNotFoundError), (self.run_dir / "events.jsonl").open("rb") as file:
            file.seek(self._read)
            data = file.read()
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                found = COUNTED.search(line)
                kind = found[1].decode() if found else ""
                self.counts[kind] += 1
                self.bytes[kind] += len(line) + 1


@dataclass
class Launch:
    """A launch that runs."""

    process: subprocess.Popen[bytes]
    begun: float
    """When its command was started, in seconds since 1970."""
    load: float
    output: Path
    events: EventsTail
    peak_bytes: int = 0

    def cpu_s(self) -> float:
        """CPU time of the launcher so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until the condition holds, which is asked again and again.

        Raises:
            LaunchError: it does not within that time, or the launcher has exited.
        """
        until = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise LaunchError(f"the launcher exited before {what}: {self.last_lines()}")
            if time.monotonic() >= until:
                raise LaunchError(f"not within {seconds:g} s: {what}")
            self.note_memory()
            time.sleep(POLL_S)

    def exits(self, seconds: float) -> bool:
        """Wait for its exit; returns False if it does not within that time."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.note_memory()
            time.sleep(POLL_S)
        return self.process.poll() is not None

    def wait_for(self, kind: str, number: int, seconds: float) -> None:
        """Wait until events.jsonl has so many lines of a kind."""

        def reached() -> bool:
            self.events.read()
            return self.events.counts[kind] >= number

        self.wait(reached, f"{number} lines with {kind!r} in events.jsonl", seconds)

    def note_memory(self) -> None:
        """Read the peak of the launcher. Unlike ru_maxrss it does not count what its parent had."""
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8"))
            self.peak_bytes = max(self.peak_bytes, int(found[1]) * 1024 if found else 0)

    def last_lines(self) -> str:
        """The end of what the launcher has printed."""
        return " / ".join(self.output.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


def allow(hosts: int) -> None:
    """Raise this process's limits on open files, which the launcher inherits, as far as permitted."""
    wanted = 1000 + DESCRIPTORS * hosts
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            return
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def launched(hosts: int, transport: str, folder: Path) -> Iterator[Launch]:
    """A launch of a task on each host, which fails once the file `fail` in the folder names one."""
    hostfile, output, runs = folder / "hosts", folder / "output", folder / "runs"
    addresses = [f"127.1.{1 + number // 250}.{1 + number % 250}" for number in range(hosts)]
    lines = (f"{name} addr={address}\n" for name, address in zip(names(hosts), addresses, strict=True))
    hostfile.write_text("".join(lines))
    options = ["--strategy", "multiworker", "--hostfile", str(hostfile), "--transport", transport]
    program = [PYTHON, "-S", str(Path(task.__file__).relative_to(ROOT)), str(folder / "fail")]
    argv = [TFDIST, "launch", *options, "--runs-dir", str(runs), "--", *program]
    load = os.getloadavg()[0]
    with output.open("wb") as file:
        begun = time.time()
        process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield Launch(process, begun, load, output, EventsTail(runs))
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        finally:
            process.kill()
            process.wait()


def names(hosts: int) -> list[str]:
    """The names of the hosts."""
    return [f"n{number:04}" for number in range(1, hosts + 1)]


def measure_played(hosts: int, delay_s: float, training_s: float) -> Figures:
    """A launch on played hosts. `training_s`: seconds over which the CPU time of the training is measured.

    Raises:
        LaunchError: it did not start.
    """
    allow(hosts)
    with tempfile.TemporaryDirectory(prefix="tfdist-fleet-") as name:
        folder = Path(name)
        (folder / "fleet").mkdir()
        with (
            played(folder / "fleet", names(hosts), delay_s) as fleet,
            launched(hosts, fleet.transport, folder) as launch,
        ):

            def fail(task: str) -> float:
                fleet.fail(task)
                return time.time()

            return _measure(launch, "played", hosts, delay_s, training_s, fail, lambda: fleet.cpu_s)


def measure_real(hosts: int, training_s: float) -> Figures:
    """The same with real agents and tasks, all on this machine.

    Raises:
        LaunchError: it did not start.
    """
    allow(hosts)
    with tempfile.TemporaryDirectory(prefix="tfdist-fleet-") as name:
        folder = Path(name)

        def fail(task: str) -> float:
            (folder / "named").write_text(task)
            (folder / "named").rename(folder / "fail")  # the tasks must not read half of it
            return time.time()

        with launched(hosts, "exec:env FLEET_HOST={host}", folder) as launch:
            return _measure(launch, "real", hosts, 0.0, training_s, fail, lambda: 0.0)


def _measure(
    launch: Launch,
    agents: str,
    hosts: int,
    delay_s: float,
    training_s: float,
    fail: Callable[[str], float],
    fleet_cpu_s: Callable[[], float],
) -> Figures:
    launch.wait_for("Started", hosts, START_S)
    started_s, cpu_start_s = time.time() - launch.begun, launch.cpu_s()
    fleet_s = fleet_cpu_s()
    launch.wait_for("step", 2 * hosts, START_S)  # every task reports
    before, steps, at = launch.cpu_s(), launch.events.counts["step"], time.monotonic()
    launch.wait(lambda: time.monotonic() >= at + training_s, "the end of the measurement", 2 * training_s)
    passed, used = time.monotonic() - at, launch.cpu_s() - before
    launch.events.read()
    steps = launch.events.counts["step"] - steps
    runs = ["--runs-dir", str(launch.events.runs)]
    problems: list[str] = []

    def answer(*words: str) -> float | None:
        seconds, problem = _answer([*words, *runs])
        problems.extend([problem] if problem else [])
        return seconds

    logs_s, runs_s, stacks_s = answer("logs", "last"), answer("runs"), answer("stacks", "last")
    culprit = f"worker-{hosts // 2}"
    failed_at = fail(culprit)
    ended = launch.exits(END_S)
    named_s = time.time() - failed_at if ended else None
    if launch.process.poll() != task.FAILED:
        problems.append(f"the launcher's exit code is {launch.process.poll()}: {launch.last_lines()}")
    launch.events.read()
    run_dir = launch.events.run_dir
    assert run_dir is not None
    named = _named(run_dir)
    run_s = answer("runs", "last")
    return Figures(
        agents=agents,
        hosts=hosts,
        delay_s=delay_s,
        started_s=started_s,
        cpu_start_s=cpu_start_s,
        fleet_cpu_s=fleet_s,
        cores_training=used / passed,
        steps_per_s=steps / passed,
        memory_mb=launch.peak_bytes / 1e6,
        logs_s=logs_s,
        runs_s=runs_s,
        stacks_s=stacks_s,
        run_s=run_s,
        named_s=named_s,
        named=named,
        named_right=named == culprit,
        problems="; ".join(problems),
        load=launch.load,
        commit=this_commit(ROOT),
        files={**_sizes(run_dir), **_sizes_of_events(launch.events, hosts)},
    )


def _answer(words: list[str]) -> tuple[float | None, str]:
    """Seconds that a command of tfdist takes; None and why, if it fails."""
    start = time.perf_counter()
    done = subprocess.run([TFDIST, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode == 0:
        return seconds, ""
    last = "".join(done.stderr.splitlines()[-1:])[-MOST_ERROR:]
    return None, f"tfdist {' '.join(words[:2])}: exit code {done.returncode}: {last}"


def _named(run_dir: Path) -> str:
    """The task that the outcome blames; empty if there is none."""
    with suppress(OSError):
        return str(json.loads((run_dir / "outcome.json").read_bytes())["culprit"])
    return ""


def _sizes_of_events(events: EventsTail, hosts: int) -> dict[str, int]:
    """Bytes of events.jsonl, whose size depends on the length of the run."""
    steps = hosts * events.bytes["step"] // events.counts["step"]
    rest = sum(events.bytes.values()) - events.bytes["step"]
    return {"events.jsonl, a step of each task": steps, "events.jsonl, all else": rest}


def _sizes(run_dir: Path) -> dict[str, int]:
    """Bytes of each file of a run but the events; each kind of log of all tasks together."""
    sizes = Counter[str]()
    for path in run_dir.rglob("*"):
        inside = path.relative_to(run_dir)
        if path.is_file() and inside.name != "events.jsonl":
            sizes[f"{inside.name} of all tasks" if len(inside.parts) > 1 else inside.name] += path.stat().st_size
    return dict(sizes)
