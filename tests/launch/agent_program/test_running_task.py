import os

from tfdist.launch.agent_program.running_task import RunningTask
from tfdist.launch.agent_program.tasks import Tasks


def test_what_a_task_writes_before_its_program_runs_comes_after_its_start():
    """A forked task may write while it imports its module; `failure` is closed only then."""
    sent = []
    tasks = Tasks(lambda kind, **values: sent.append((kind, values.get("text"))))
    pipes = {stream: os.pipe() for stream in ("failure", "stdout", "stderr", "events", "stacks", "barrier")}
    readers = {stream: reader for stream, (reader, _) in pipes.items()}
    task = RunningTask("worker-0", 0, os.getpid(), readers, None, tasks._send)
    task.watch(tasks.selector)
    os.write(pipes["stdout"][1], b"imported\n")
    os.close(pipes["failure"][1])
    tasks.relay()
    assert sent == [("started", None), ("output", "imported\n")]
    for reader, writer in [ends for stream, ends in pipes.items() if stream != "failure"]:
        os.close(reader)
        os.close(writer)
