import json

from tfdist.launch.agents.messages import Event, Heartbeat, Output, Started
from tfdist.launch.logs import LogWriter, tail
from tfdist.launch.rundir import RunDir


def test_output_goes_to_the_tasks_log_and_other_messages_to_events(tmp_path):
    run_dir = RunDir(tmp_path)
    with LogWriter(run_dir) as logs:
        for message in (Started("worker-0", 7, 1.0), Output("worker-0", "stderr", "caf\udcff\n"), Heartbeat(1.0)):
            logs.write(message)
    assert run_dir.log("worker-0", "stderr").read_bytes() == b"caf\xff\n"
    (event,) = run_dir.events.read_text().splitlines()
    assert json.loads(event) == {"kind": "Started", "task": "worker-0", "attempt": 0, "pid": 7, "time": 1.0}


def test_a_loss_that_is_nan_is_null_in_the_events(tmp_path):
    with LogWriter(RunDir(tmp_path)) as logs:
        logs.write(Event("worker-0", 1.0, {"event": "step", "loss": float("nan")}))
    assert '"loss": null' in RunDir(tmp_path).events.read_text()


def test_tail_returns_the_last_lines(tmp_path):
    log = tmp_path / "stderr.log"
    assert tail(log) == ""
    log.write_bytes(b"x" * 100_000 + b"\nlast but one\nlast \xff\n")
    assert tail(log, 2) == "last but one\nlast \ufffd"
