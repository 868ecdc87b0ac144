"""The figures of a running job for Prometheus: over HTTP, and as a file for the node exporter's textfile collector.

The library prometheus_client writes the format (https://prometheus.io/docs/instrumenting/exposition_formats/); names
and units are as https://prometheus.io/docs/practices/naming/ asks for.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from pathlib import Path
from typing import Any

from tfdist.launch.agents.inbox import Message, Note, OnMessage, Restarting
from tfdist.launch.agents.messages import Event, Exited, Inspected
from tfdist.launch.connections import MOST, answered
from tfdist.launch.console.job_state import JobState, state_of
from tfdist.launch.diagnosis.straggler import gpus_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Job
from tfdist.launch.json_files import replace_file
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.watches import NO_STEP
from tfdist.launch.text import replace_surrogates

INSPECT_S = 5.0
"""Seconds between two requests for CPU time and memory, and between two files."""
LOOPBACK = "127.0.0.1"
TASK = ("job", "task", "host")
"""Labels of a task's samples."""
Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


@dataclass(frozen=True)
class MetricsOptions:
    """Where the figures go; by default nowhere."""

    address: tuple[str, int] | None = None
    file: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether they go anywhere."""
        return self.address is not None or self.file is not None


def metrics_options(address: str | None, file: Path | None) -> MetricsOptions:
    """The values of `--metrics` and `--metrics-file`.

    Raises:
        TfdistError: a wrong notation, folder or suffix, or the library is missing.
    """
    found = None
    if address is not None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise TfdistError(f"--metrics {address}: give [HOST]:PORT, as :9400, or 0.0.0.0:9400 for other machines")
        found = host.strip("[]") or LOOPBACK, int(port)
    if file is not None and not file.absolute().parent.is_dir():
        raise TfdistError(f"--metrics-file {file}: there is no folder {file.parent}; create it")
    if file is not None and file.suffix != ".prom":
        raise TfdistError(f"--metrics-file {file}: the textfile collector reads only files that end in .prom")
    options = MetricsOptions(found, file)
    if options.wanted:
        _library()
    return options


def _library() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise TfdistError("--metrics: prometheus_client is not installed; pip install 'tfdist[metrics]'") from None
    return prometheus_client


@contextmanager
def published(options: MetricsOptions, job: Job, writer: RunWriter, note: Callable[[str], None]) -> Iterator[OnMessage]:
    """Publish the figures of a run until the context ends. Call the function with each message of the job.

    Raises:
        TfdistError: the address cannot be used.
    """
    if not options.wanted:
        yield lambda _: None
        return
    library = _library()
    metrics = JobMetrics(writer.run_dir.path.name, state_of(job), writer.log_bytes)
    exposition = import_module("prometheus_client.exposition")
    registry = library.CollectorRegistry()
    registry.register(metrics)
    with ExitStack() as stack:
        if options.address is not None:
            note(f"metrics: {_serve(stack, *options.address, lambda accepted: _page(exposition, registry, accepted))}")
        file = None
        if options.file is not None:
            file = _FigureFile(options.file, lambda: exposition.generate_latest(registry), note)
            stack.callback(file.write)

        def handle(message: Message) -> None:
            metrics.handle(message)
            if file is not None:
                file.write_if_due()

        yield handle


def _serve(stack: ExitStack, host: str, port: int, page: "Callable[[str], Page]") -> str:
    """Answer requests until the stack is closed; returns the URL.

    Raises:
        TfdistError: the address cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid DNS name
        reason = getattr(error, "strerror", "not a valid name")
        raise TfdistError(f"--metrics {host}:{port}: {reason}; choose another address") from None

    def answer(client: socket.socket) -> None:
        _Scrape(client, page)

    stack.enter_context(answered(listener, answer, "metrics"))
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/metrics"


@dataclass
class _FigureFile:
    path: Path
    figures: Callable[[], bytes]
    note: Callable[[str], None]
    """Called once if the file cannot be written."""
    _written_at: float = 0.0
    _failed: bool = False

    def write(self) -> None:
        self._written_at = time.monotonic()
        try:
            replace_file(self.path, self.figures(), 0o644, sync=False)
        except Exception as error:  # whatever it is, it must not end the job
            if not self._failed:
                reason = getattr(error, "strerror", None) or type(error).__name__
                self.note(f"cannot write {self.path} ({reason}); the job continues")
            self._failed = True

    def write_if_due(self) -> None:
        if time.monotonic() - self._written_at >= INSPECT_S:
            self.write()


Page = tuple[str, bytes]
"""Content type and body."""


def _page(exposition: Any, registry: Any, accepted: str) -> Page:
    encode, content_type = exposition.choose_encoder(accepted)
    return content_type, encode(registry)


class _Scrape(BaseHTTPRequestHandler):
    """Answers one request with the figures, whatever its path."""

    def __init__(self, client: socket.socket, page: Callable[[str], Page]) -> None:
        self._page = page
        super().__init__(client, "", None)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        content_type, body = self._page(self.headers.get("Accept", ""))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing: the console is that of the job."""


class JobMetrics:
    """Collects what the messages of a job say; prometheus_client calls `collect` from a thread of its own."""

    def __init__(self, name: str, state: JobState, log_bytes: Callable[[], Mapping[str, int]]) -> None:
        """Collect the figures of the run of this name; `log_bytes`: size of each task's logs."""
        self.name, self.state, self._log_bytes = name, state, log_bytes
        self._lock = threading.Lock()
        self._restarts = self._stalls = 0
        self._stepped_at: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._resident_bytes: dict[str, float] = {}
        self._gpus: dict[str, dict[str, dict[str, float]]] = {}
        """The readings in the last step of each task, by index of the GPU."""

    def handle(self, message: Message) -> None:
        """Take note of a message."""
        now = time.monotonic()
        with self._lock:
            self.state.update(message, now)
            match message:
                case Event(task, event={"event": "step"} as event):
                    self._stepped_at[task] = now
                    self._gpus[task] = _readings(event)
                case Inspected():
                    self._cpu_s.update(message.cpu_s)
                    self._resident_bytes.update(message.resident_bytes)
                case Exited(task):
                    self._resident_bytes.pop(task, None)
                    self._gpus.pop(task, None)
                case Restarting():
                    self._restarts += 1
                case Note(text=text) if text.startswith(NO_STEP):
                    self._stalls += 1

    def collect(self) -> Iterator[Any]:
        """Each family of samples, as prometheus_client wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            for kind, name, text, labels, samples in self._families():
                make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family: Any = make(f"tfdist_{name}", text, labels=labels)
                for values, value in samples:
                    family.add_metric([replace_surrogates(text) for text in values], float(value))
                yield family

    def _families(self) -> Iterator[tuple[str, str, str, tuple[str, ...], Sequence[Sample]]]:
        """Kind, name, description, labels and samples of each family."""
        text = "Restarts of the job, of all tasks or some."
        yield "counter", "restarts", text, TASK[:1], [((self.name,), self._restarts)]
        text = "Times without a step for longer than --stall-timeout."
        yield "counter", "stalls", text, TASK[:1], [((self.name,), self._stalls)]
        tasks = {task.name: (self.name, task.name, task.host) for task in self.state.tasks.values()}
        for name, (kind, text, found) in self._by_task().items():
            known = [(tasks[task], value) for task, value in found.items() if value is not None and task in tasks]
            yield kind, name, text, TASK, known
        read = [((*tasks[task], index), gpu) for task in tasks for index, gpu in self._gpus.get(task, {}).items()]
        for name, (key, unit, text) in _GPU.items():
            of_gpus = [(labels, gpu[key] * unit) for labels, gpu in read if key in gpu]
            yield "gauge", f"gpu_{name}", text, (*TASK, "gpu"), of_gpus

    def _by_task(self) -> dict[str, tuple[str, str, Mapping[str, float | None]]]:
        """Kind, description and value of each task, by name of the family."""
        tasks = self.state.tasks.values()
        now = time.monotonic()

        def each(attribute: str) -> dict[str, float | None]:
            return {task.name: getattr(task, attribute) for task in tasks}

        ages = {task: now - at for task, at in self._stepped_at.items()}
        return {
            "up": ("gauge", "Whether the process of the task runs.", each("running")),
            "images_per_second": ("gauge", "Throughput of the whole job at the last step.", each("images_per_s")),
            "step": ("gauge", "Number of the last step.", each("step")),
            "steps": ("gauge", "Number of steps of the training.", each("steps")),
            "loss": ("gauge", "Loss at the last step.", each("loss")),
            "step_age_seconds": ("gauge", "Time since a step was reported.", ages),
            "wait_ratio": ("gauge", "Share of a step in which it waits for the last worker.", self.state.steps.waits()),
            "cpu_seconds": ("counter", "CPU time of the process.", self._cpu_s),
            "resident_memory_bytes": ("gauge", "Memory of the process in RAM.", self._resident_bytes),
            "log_bytes": ("gauge", "Size of the task's logs of this attempt.", self._log_bytes()),
        }


_GPU = {
    "utilization_ratio": ("utilization", 1.0, "Share of the time in which a kernel ran."),
    "memory_bytes": ("memory_bytes", 1.0, "Used memory of the GPU."),
    "power_watts": ("power_w", 1.0, "Power of the GPU."),
    "sm_clock_hertz": ("sm_clock_mhz", 1e6, "Clock of the GPU's multiprocessors."),
}
"""Key in a task's reading, its unit, and description, by name of the family."""
MOST_INDEX = 80
"""Characters of a GPU's index."""
MOST_GPUS = 64
"""GPUs of a task that are published: an event may hold anything."""


def _readings(event: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The figures of each GPU in a `step` event, by its index. One index is one GPU: samples must differ."""
    readings = {}
    for gpu in gpus_of(event)[:MOST_GPUS]:
        index = gpu.get("index")
        figures = {key: gpu.get(key) for key, _, _ in _GPU.values()}
        label = str(index)[:MOST_INDEX] if isinstance(index, int | str) else ""
        readings[label] = {key: float(value) for key, value in figures.items() if isinstance(value, int | float)}
    return readings
