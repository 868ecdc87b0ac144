import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.launch.console.test_job_state import event, exited, job_of
from tests.ports import free_ports
from tests.waiting import wait_until
from tfdist.launch.agents.inbox import Note, Restarting
from tfdist.launch.agents.messages import Inspected, Output, Started
from tfdist.launch.errors import TfdistError
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision import metrics
from tfdist.launch.supervision.metrics import MetricsOptions, metrics_options, published
from tfdist.launch.supervision.watches import NO_STEP

GPU = {"index": 3, "memory_bytes": 5, "utilization": 0.9, "power_w": 300.0, "sm_clock_mhz": 1980, "throttle": ""}
MESSAGES = [
    Started("worker-0", 1, 0.0),
    Started("worker-1", 2, 0.0),
    event("worker-0", "step", step=5, steps=20, images_per_s=12.5, loss=0.25, gpus=[GPU, "no reading"]),
    Inspected({"worker-0": "R"}, {}, cpu_s={"worker-0": 7.5}, resident_bytes={"worker-0": 1000}),
    Note("tfdist", f"{NO_STEP} 300 s (worker-0 at step 5); ..."),
    exited("worker-1", 1),
    Restarting(1, ("worker-1",), False, "why"),
    Output("worker-1", "stdout", "four\n", attempt=1),
]


def samples_of(text):
    return {
        (sample.name, sample.labels.get("task", ""), sample.labels.get("gpu", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def publish(options, folder, messages=MESSAGES):
    """What a scrape gives after these messages, and the notes."""
    notes, text = [], ""
    with (
        RunWriter(RunDir(folder)) as writer,
        published(options, job_of(worker=2), writer, notes.append) as handle,
    ):
        for message in messages:
            writer.write(message)
            handle(message)
        if options.address is not None:
            with DIRECT.open(notes[0].removeprefix("metrics: "), timeout=10) as answer:
                text = answer.read().decode()
    return text, notes


def test_a_scrape_has_what_the_messages_say(tmp_path):
    text, _ = publish(MetricsOptions(("127.0.0.1", 0)), tmp_path / "run")
    values = samples_of(text)
    assert values["tfdist_images_per_second", "worker-0", ""] == 12.5
    assert (values["tfdist_step", "worker-0", ""], values["tfdist_steps", "worker-0", ""]) == (5, 20)
    assert values["tfdist_loss", "worker-0", ""] == 0.25
    assert values["tfdist_cpu_seconds_total", "worker-0", ""] == 7.5
    assert values["tfdist_resident_memory_bytes", "worker-0", ""] == 1000
    assert values["tfdist_log_bytes", "worker-1", ""] == 5
    assert (values["tfdist_restarts_total", "", ""], values["tfdist_stalls_total", "", ""]) == (1, 1)
    assert values["tfdist_gpu_power_watts", "worker-0", "3"] == 300
    assert values["tfdist_gpu_sm_clock_hertz", "worker-0", "3"] == 1.98e9
    assert values["tfdist_up", "worker-0", ""] == 1
    assert 0 <= values["tfdist_step_age_seconds", "worker-0", ""] < 60
    assert 'job="run"' in text


def test_a_process_that_has_ended_has_no_memory(tmp_path):
    text, _ = publish(MetricsOptions(("127.0.0.1", 0)), tmp_path / "run", [*MESSAGES, exited("worker-0", 0)])
    values = samples_of(text)
    assert values["tfdist_cpu_seconds_total", "worker-0", ""] == 7.5
    assert not {"tfdist_resident_memory_bytes", "tfdist_gpu_memory_bytes"} & {name for name, *_ in values}


def test_the_file_is_whole_and_written_at_the_end(tmp_path):
    file = tmp_path / "tfdist.prom"
    publish(MetricsOptions(file=file), tmp_path / "run")
    assert samples_of(file.read_text())["tfdist_restarts_total", "", ""] == 1


def test_a_file_that_cannot_be_written_is_a_note_and_not_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "INSPECT_S", 0.0)
    (tmp_path / "file").touch()
    _, notes = publish(MetricsOptions(file=tmp_path / "file" / "x.prom"), tmp_path / "run")
    assert len(notes) == 1
    assert "the job continues" in notes[0]


@pytest.mark.parametrize("index", ["\udc80", [["\udc80"]], "x" * 100_000])
def test_what_a_task_calls_its_gpus_does_not_end_the_figures(index, tmp_path):
    odd = {**GPU, "index": index, "power_w": "much", "utilization": True}
    gpus = [GPU, GPU, odd, *({"index": number} for number in range(100, 1100)), None]
    messages = [*MESSAGES[:2], event("worker-0", "step", step=1, gpus=gpus), event("worker-1", "step", step=2)]
    file = tmp_path / "x.prom"
    text, _ = publish(MetricsOptions(("127.0.0.1", 0), file), tmp_path / "run\udcff", messages)
    for page in (text, file.read_text(encoding="utf-8")):
        assert samples_of(page)["tfdist_gpu_power_watts", "worker-0", "3"] == 300
        lines = [line.rpartition(" ")[0] for line in page.splitlines()]
        assert len(set(lines)) == len(lines)  # a collector refuses a page with two samples of the same labels
        assert len(page) < 20_000


def test_a_planted_link_is_not_followed(tmp_path):
    """The names that prometheus_client writes to before it moves the file."""
    victim, file = tmp_path / "victim", tmp_path / "x.prom"
    victim.write_text("mine")
    file.symlink_to(victim)
    for thread in (threading.get_ident(), threading.get_native_id()):
        Path(f"{file}.{os.getpid()}.{thread}").unlink(missing_ok=True)
        Path(f"{file}.{os.getpid()}.{thread}").symlink_to(victim)
    publish(MetricsOptions(file=file), tmp_path / "run")
    assert victim.read_text() == "mine"
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o444 == 0o444  # for the node exporter


def test_nothing_but_a_request_is_answered(tmp_path, capfd):
    notes = []
    with (
        RunWriter(RunDir(tmp_path / "run")) as writer,
        published(MetricsOptions(("127.0.0.1", 0)), job_of(worker=2), writer, notes.append),
    ):
        port = int(notes[0].rpartition(":")[2].removesuffix("/metrics"))
        for data in (b"\xff\x00\n\n", b"GET\n\n", b"POST / HTTP/1.0\n\n", b"GET / HTTP/9\n\n", b"x" * (1 << 17)):
            with socket.create_connection(("127.0.0.1", port)) as client, suppress(OSError):
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                assert b"tfdist_" not in client.recv(1 << 16)
        with DIRECT.open(notes[0].removeprefix("metrics: "), timeout=10) as answer:
            assert answer.status == 200
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import os, sys, time
from pathlib import Path
while not Path("flooded").exists():
    time.sleep(0.05)
print("attempt", os.environ["TFDIST_ATTEMPT"], flush=True)
sys.exit(os.environ["TFDIST_ATTEMPT"] == "0")
"""
LIMIT = 150
"""Open files of the launcher. It needs about 40 here."""


@pytest.mark.slow
@pytest.mark.thorough
def test_idle_connections_take_no_descriptor_that_the_run_needs(odd_folder):
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tfdist.cli", "launch", "--metrics", f":{port}", "--max-restarts", "1"]
    limited = f'ulimit -n {LIMIT}; exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", limited, "sh", *command, "--", sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    idle = []
    try:
        wait_until(lambda: any('"Started"' in file.read_text() for file in Path("runs").glob("*/events.jsonl")))
        for _ in range(2 * LIMIT):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        with DIRECT.open(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            assert answer.status == 200
        Path("flooded").touch()
        shown, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        for client in idle:
            client.close()
    assert process.returncode == 0, shown
    (run_dir,) = map(RunDir, Path("runs").iterdir())
    assert json.loads(run_dir.outcome.read_text())["status"] == "ok"
    assert run_dir.log("worker-0", "stdout", 1).read_text() == "attempt 1\n"


def test_a_port_in_use_is_one_sentence(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(TfdistError, match=r"--metrics 127\.0\.0\.1:.*in use"),
    ):
        publish(MetricsOptions(("127.0.0.1", taken.getsockname()[1])), tmp_path / "run")


@pytest.mark.parametrize("host", ["a..b", "h" * 64])
def test_a_name_that_no_host_can_have_is_one_sentence(host, tmp_path):
    with pytest.raises(TfdistError, match=f"^--metrics {host}:9400: not a valid name; choose another address"):
        publish(MetricsOptions((host, 9400)), tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "address"), [(":9400", ("127.0.0.1", 9400)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:2", ("::1", 2))]
)
def test_addresses(text, address):
    assert metrics_options(text, None) == MetricsOptions(address)


@pytest.mark.parametrize("text", ["9400", "h:", "h:x", ":70000", ""])
def test_wrong_addresses(text):
    with pytest.raises(TfdistError, match=r"give \[HOST\]:PORT"):
        metrics_options(text, None)


def test_a_file_that_the_collector_would_not_read(tmp_path):
    with pytest.raises(TfdistError, match=r"x\.txt: the textfile collector reads only files that end in \.prom"):
        metrics_options(None, tmp_path / "x.txt")


def test_a_folder_that_does_not_exist():
    with pytest.raises(TfdistError, match="there is no folder"):
        metrics_options(None, Path("/no/such/x.prom"))


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(TfdistError, match=r"pip install 'tfdist\[metrics\]'"):
        metrics_options(":9400", None)
    assert metrics_options(None, None) == MetricsOptions()
