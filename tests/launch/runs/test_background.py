"""When a launcher that `--detach` has forked leaves its terminal. Real ones: tests/integration/test_background.py."""

import json
import os

from tfdist.launch.agents.inbox import Restarting
from tfdist.launch.agents.messages import Started
from tfdist.launch.runs import background
from tfdist.launch.runs.rundir import RunDir


def test_a_job_that_restarts_with_fewer_tasks_waits_only_for_these(tmp_path, monkeypatch):
    redirected = []
    monkeypatch.setattr(background, "_redirect", lambda descriptor, *_: redirected.append(descriptor))
    read, write = os.pipe()
    launcher = background.Background(write)
    launcher.expect(["worker-0", "worker-1"], RunDir(tmp_path))
    launcher.handle(Started("worker-0", pid=1, time=0.0))
    launcher.handle(Restarting(1, ("worker-0",), whole=True, reason="worker-1 is lost"))
    assert redirected == []
    launcher.handle(Started("worker-0", pid=2, time=0.0))
    assert json.loads(os.read(read, 1000)) == [str(tmp_path), os.getpid()]
    assert redirected == [0, 1, 2, 1, 2]
    os.close(read)
