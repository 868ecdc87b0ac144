import io
import os
import time

import pytest

from tests.launch.jobs import roles
from tfdist.launch.agents.messages import Event, Exited, Heartbeat, Output, Started
from tfdist.launch.console.stream import streams_of, wait_until_read
from tfdist.launch.console.table import LiveTable
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines


@pytest.fixture
def table():
    job = plan_job(Shape(roles(worker=2), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))
    clock = iter(range(1000))
    return LiveTable(job, io.StringIO(), now=lambda: float(next(clock)))


def test_the_live_table_shows_the_latest_events(table):
    for message in (
        Started("worker-0", 1, 0.0),
        Event("worker-0", 0.0, {"event": "step", "step": 7, "images_per_s": 10.0, "loss": 0.25}),
        Exited("worker-1", 3, 0.0, 0, 0.0),
        Heartbeat(0.0),
    ):
        table.handle(message)
    first, second = table.rows.values()
    assert (first.state, first.step, first.rate, first.loss) == ("training", "7", "10.0", "0.2500")
    assert second.state == "exited with code 3"


def test_step_events_without_numbers_and_unknown_events_are_accepted(table):
    table.handle(Event("worker-0", 0.0, {"event": "step"}))
    table.handle(Event("worker-0", 0.0, {"event": "mine", "images_per_s": "fast"}))
    table.handle(Event("worker-0", 0.0, {}))
    row = table.rows["worker-0"]
    assert (row.state, row.step, row.rate, row.loss) == ("training", "", "", "")


def test_the_live_table_prints_output_that_is_not_utf_8(table):
    table.handle(Output("worker-0", "stdout", "caf\udcff\n"))
    assert table.out.getvalue() == "[worker-0] caf\ufffd\n"


@pytest.mark.parametrize("closed", ["before", "meanwhile"])
def test_a_closed_terminal_does_not_stop_the_live_table(closed):
    master, slave = os.openpty()
    job = plan_job(Shape(roles(worker=1), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))
    with os.fdopen(slave, "w") as file:
        (out,) = streams_of(file)
        table = LiveTable(job, out, now=time.monotonic)
        if closed == "before":
            os.close(master)
        with table:
            if closed == "meanwhile":
                os.close(master)
            table.handle(Output("worker-0", "stdout", "x\n"))
            table.handle(Exited("worker-0", 0, 0.0, 0, 0.0))
        wait_until_read([out])
    assert out.queue.error is not None
    assert table.rows["worker-0"].state == "done"


def test_a_task_stopped_by_the_launcher_is_not_shown_as_killed(table):
    table.handle(Exited("worker-0", -15, 0.0, 0, 0.0))
    table.handle(Exited("worker-1", -9, 0.0, 0, 0.0))
    assert [row.state for row in table.rows.values()] == ["stopped", "was killed by SIGKILL"]
