"""Runs the command line in one process: for each line of stdin, the path of a session for `played_agent.py`.

Everything that can listen to a job listens to each: besides the console and the metrics of the command line a terminal
with lines and one with a table, a Prometheus server that scrapes, a bench with its arm, and a straggler watch.
"""

import io
import json
import os
import re
import shlex
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.launch.supervisors import supervisor_of
from tests.ports import free_ports
from tfdist.bench.arm_process import ArmStart, TurnState, _ArmThread
from tfdist.bench.progress import progress_on
from tfdist.cli.command import run
from tfdist.jobs import run as jobs_run
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Inbox, Message, OnMessage
from tfdist.launch.agents.messages import Inspected, TaskMessage
from tfdist.launch.console.lines import PrefixedLines
from tfdist.launch.console.table import LiveTable
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Job
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs import follow
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision import metrics
from tfdist.launch.supervision.run_tasks import launch
from tfdist.launch.supervision.straggler_watch import JUDGE_S
from tfdist.launch.text import has_controls
from tfdist.launch.values import ReturnedValues
from tfdist.models.run import evaluations_in
from tfdist.strategies.options import StrategyName

AGENT = Path(__file__).with_name("played_agent.py")
OF_A_TERMINAL = re.compile(r"\r|\x1b\[(?:[0-9;:]*m|\d*[AK]|\?25[lh])")
"""What consoles write to a terminal: moves in a line and between lines, erasures, colors, and the cursor."""
SCRAPE_EVERY = 10
"""Messages between two scrapes."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Terminal(io.TextIOWrapper):
    """A file that looks like a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


@contextmanager
def terminal(path: Path) -> Iterator[Terminal]:
    """A terminal whose screen is kept in a file. It takes no lone surrogates, as one with UTF-8."""
    with path.open("wb") as file:
        yield Terminal(file, encoding="utf-8", write_through=True)


def scrapes(port: int) -> OnMessage:
    """Scrape the metrics now and then."""
    number = 0

    def scrape(_: Message) -> None:
        nonlocal number
        number += 1
        if number % SCRAPE_EVERY == 1:
            check_page(DIRECT.open(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode())

    return scrape


def check_page(text: str) -> None:
    """Refuse figures that Prometheus would refuse."""
    names = [
        (each.name, *each.labels.values()) for family in text_string_to_metric_families(text) for each in family.samples
    ]
    assert len(names) >= 3  # restarts, stalls, and whether the task runs
    assert len(set(names)) == len(names)


def arm_of(job: Job, fleet: Fleet, folder: Path) -> OnMessage:
    """What an arm of a bench does with the messages of its job. What it refuses is meant."""
    planned = plan(Request({"strategy": StrategyName.MIRRORED}, ("true",)), local_machines())
    start = ArmStart("played", 1, planned, folder, Policy())
    arm = _ArmThread(start, lambda _: None)
    arm.turn = TurnState(job, fleet)

    def listen(message: Message) -> None:
        with suppress(TfdistError):
            arm._follow(message)

    return listen


def straggler_watch() -> OnMessage:
    """A watch over two workers that both do what the played one does, a judgement after each message."""
    supervisor, channel = supervisor_of({"worker": 2})
    watch, now = supervisor.stragglers, 0.0
    supervisor.deadlines.clear()
    watch.start(now)

    def listen(message: Message) -> None:
        nonlocal now
        now += JUDGE_S
        if isinstance(message, TaskMessage):
            for task in ("worker-0", "worker-1"):
                watch.note(replace(message, task=task), now)
        if isinstance(message, Inspected):
            watch._keep(message)
        supervisor.deadlines.run_due(now)
        channel.sent.clear()

    return listen


def launch_heard(folder: Path, port: int) -> Callable[..., Outcome]:
    """`launch`, with every listener."""

    def launched(
        job: Job,
        writer: RunWriter,
        policy: Policy,
        listeners: Mapping[str, OnMessage],
        *,
        fleet: Fleet,
        hosts: None,
        before_start: Callable[[Inbox], None],
    ) -> Outcome:
        returned = ReturnedValues()
        with ExitStack() as stack:
            screens = [stack.enter_context(terminal(folder / f"terminal-{number}")) for number in range(3)]
            table = stack.enter_context(LiveTable(job, screens[0]))
            lines = stack.enter_context(PrefixedLines(screens[1], screens[1]))
            progress = stack.enter_context(progress_on(screens[2], quiet=False))
            progress.starting("played", 1)
            everybody = {
                **listeners,
                "table": table.handle,
                "lines": lines.handle,
                "bench": lambda message: progress.listen("played", message),
                "arm": arm_of(job, fleet, folder),
                "evaluations": lambda message: list(evaluations_in(message)),
                "watch": straggler_watch(),
                "scrape": scrapes(port),
                "values": returned.note,
            }
            outcome = launch(job, writer, policy, everybody, fleet=fleet, hosts=hosts, before_start=before_start)
        returned.values()
        return outcome

    return launched


def result_of(session: str, folder: Path) -> dict[str, object]:
    """Launch a job on a host that plays the session, and show the run in all ways."""
    transport = f"exec:{shlex.join([sys.executable, '-S', '-I', str(AGENT), session])} {{host}}"
    (port,), runs = free_ports(1), ["--runs-dir", str(folder / "runs")]
    heard = ["--metrics", f":{port}", "--metrics-file", str(folder / "x.prom")]
    launch = ["launch", *runs, *heard, "--hosts", "127.0.0.2", "--transport", transport, "--verbose", "--", "true"]
    shows = [["runs", *runs], ["runs", "--json", *runs], ["logs", "last", "--follow", *runs], ["logs", "last", *runs]]
    errors: list[str] = []
    threading.excepthook = lambda raised: errors.append("".join(traceback.format_exception(raised.exc_value)))
    jobs_run.launch = launch_heard(folder, port)
    code, started = None, time.process_time()
    out = (folder / "out").open("w", encoding="utf-8", errors="surrogateescape")
    with out, redirect_stdout(out), redirect_stderr(out):
        try:
            code = run(launch)
            cpu_s = time.process_time() - started
            for arguments in shows:
                run(arguments)
            if (folder / "x.prom").exists():
                check_page((folder / "x.prom").read_text(encoding="utf-8"))
        except BaseException:
            errors.append(traceback.format_exc())
            cpu_s = time.process_time() - started
    shown = (folder / "out").read_text(encoding="utf-8", errors="surrogateescape")
    errors += failures_of_listeners(folder)
    screens = [file.read_text(encoding="utf-8") for file in folder.glob("terminal-*")]
    return {
        "exit_code": code,
        "cpu_s": cpu_s,
        "peak_kib": peak_kib(),
        "errors": errors,
        "has_controls": has_controls(shown) or any(has_controls(OF_A_TERMINAL.sub("", screen)) for screen in screens),
        "controls": [
            sorted(set(re.findall(r"[^\n\t -~].{0,20}", text)))[:5]
            for text in (shown, *(OF_A_TERMINAL.sub("", screen) for screen in screens))
            if has_controls(text)
        ],
        "shown": shown[-2000:].encode(errors="replace").decode(),
        "screens": sum(map(len, screens)),
    }


def failures_of_listeners(folder: Path) -> list[str]:
    """Their lines in the events: nothing that a host sends may make one fail."""
    lines = (line for file in folder.glob("runs/*/events.jsonl") for line in file.read_text().splitlines())
    return [line for line in lines if "Please report this" in line and '"Note"' in line]


def peak_kib() -> int:
    """Of this process: VmHWM. Unlike ru_maxrss it does not count what our parent had."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    os.environ["TERM"] = "xterm"
    jobs_run.INSPECT_S = metrics.INSPECT_S = 0.05
    follow.LAUNCHER_S = 0.0  # the launcher is this process, which does not exit
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(result_of(line.rstrip("\n"), Path(name))), flush=True)
