"""A real Prometheus scrapes a training that is killed and restarted: its queries give what the events say."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_ports

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
CONFIG = """
scrape_configs:
  - job_name: tfdist
    honor_labels: true
    scrape_interval: 1s
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
PATIENCE_S = 90.0


class Prometheus:
    """A server on this machine."""

    def __init__(self, folder, scraped):
        (self.port,) = free_ports(1)
        (folder / "prometheus.yml").write_text(CONFIG.format(port=scraped))
        words = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        self.log = (folder / "prometheus.log").open("w")
        address = f"--web.listen-address=127.0.0.1:{self.port}"
        self.process = subprocess.Popen([*words, address], stdout=self.log, stderr=subprocess.STDOUT)

    def query(self, text):
        """The samples: labels and value."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return [(each["metric"], float(each["value"][1])) for each in found["data"]["result"]]

    def wait_for(self, text, condition):
        """The samples once they fulfil a condition."""
        until, found = time.monotonic() + PATIENCE_S, []
        while time.monotonic() < until:
            with suppress(OSError):  # it has not started yet
                found = self.query(text)
                if found and condition(found):
                    return found
            time.sleep(0.2)
        raise AssertionError((text, found))

    def end(self):
        """Stop it."""
        self.process.terminate()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    return tmp_path_factory.mktemp("scraped")


@pytest.mark.thorough
def test_prometheus_knows_a_training_and_its_restart(folder):
    (port,) = free_ports(1)
    words = ["--preset", "smoke", "--strategy", "multiworker", "--workers", "2", "--steps", "100000"]
    more = ["--metrics", f":{port}", "--checkpoint-every", "20", "--max-restarts", "3"]
    command = [sys.executable, "-m", "tfdist.cli", "launch", *words, *more, "--runs-dir", str(folder / "runs")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as launch:
        server = Prometheus(folder, port)
        try:
            server.wait_for("tfdist_step", lambda found: min(value for _, value in found) > 30)
            events = next(folder.glob("runs/*/events.jsonl"))
            lines = [json.loads(line) for line in events.read_text().splitlines()]
            pid = next(line["pid"] for line in lines if line["kind"] == "Started" and line["task"] == "worker-1")
            assert server.query("tfdist_restarts_total")[0][1] == 0
            server.wait_for("tfdist_wait_ratio", lambda found: len(found) == 2)
            os.kill(pid, signal.SIGKILL)
            server.wait_for("tfdist_restarts_total", lambda found: found[0][1] == 1)
            server.wait_for("min(tfdist_step_age_seconds)", lambda found: found[0][1] > 1)
            server.wait_for("max(tfdist_step_age_seconds)", lambda found: found[0][1] < 1)
            speed = "clamp_min(deriv(tfdist_step[15s]), 0)"  # a step that falls back is no reset of a counter
            server.wait_for(speed, lambda found: 0 < max(value for _, value in found) < 1000)
            steps = {labels["task"]: value for labels, value in server.query("tfdist_step")}
            entries = [json.loads(line) for line in events.read_text().splitlines()]
            reported = {
                (entry["task"], entry["event"]["step"], entry["event"].get("loss"))
                for entry in entries
                if entry["kind"] == "Event" and entry["event"]["event"] == "step"
            }
            assert steps.keys() == {"worker-0", "worker-1"}
            assert {(task, int(step)) for task, step in steps.items()} <= {(task, step) for task, step, _ in reported}
            losses = {value for _, value in server.query("tfdist_loss")}
            assert losses <= {loss for _, _, loss in reported}
            assert {labels["job"] for labels, _ in server.query("tfdist_up")} == {events.parent.name}
            assert all(value > 1e8 for _, value in server.query("tfdist_resident_memory_bytes"))
            for panel in json.loads(DASHBOARD.read_text())["panels"]:
                for target in panel["targets"]:
                    query = target["expr"].replace("$job", ".*").replace("[1m]", "[15s]")
                    if "gpu" in query:
                        server.query(query)
                    else:
                        server.wait_for(query, lambda found: True)
        finally:
            server.end()
            launch.send_signal(signal.SIGINT)
            launch.communicate()
