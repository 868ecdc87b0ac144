"""docs/protocol.md: its example in a job that is released turn by turn, and its schema against the types."""

import json
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.inbox import NextTurn
from tfdist.launch.agents.messages import Event
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import local_machines
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.run_tasks import launch
from tfdist.launch.typed_json import from_json
from tfdist.models.record import RankRecord, Window, WindowUsage

from .jobs import QUICK, roles

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
SCHEMA = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[-1])
TURNS = [{"windows": 1, "steps": 3}, {"windows": 2, "steps": 2}, {"windows": 0, "steps": 0}]


def events_of(folder, turns, environment):
    """Run the example in two tasks, released for each turn once both wait; their events, in order of arrival."""
    program = Program((sys.executable, "-S", "-c", EXAMPLE), environment, "/")
    job = plan_job(Shape(roles(worker=2), has_cluster=False), program, local_machines())
    events: list[tuple[str, dict]] = []
    left = list(turns)
    with connect(job.hosts, QUICK) as fleet, RunWriter(RunDir(folder)) as writer:

        def listen(message):
            if not isinstance(message, Event):
                return
            events.append((message.task, message.event))
            if message.event["event"] == "barrier" and sum(e["event"] == "barrier" for _, e in events) % 2 == 0:
                fleet.inbox.put(None, NextTurn(left.pop(0)))

        outcome = launch(job, writer, QUICK, {"test": listen}, fleet=fleet, paced=True)
    assert (outcome.status, left) == (Status.OK, []), outcome.reason
    return events


def test_the_example_answers_each_turn_with_its_windows(tmp_path):
    events = events_of(tmp_path, TURNS, {"TFDIST_TURNS": "1"})
    for task in ("worker-0", "worker-1"):
        mine = [event for name, event in events if name == task]
        names = [event["event"] for event in mine]
        assert names == ["record", "barrier", "turn", "barrier", "turn", "barrier", "record"]
        assert all(event["step_s"] > 0 for event in mine if event["event"] == "barrier")
        turns = [from_json(event["windows"], tuple[Window, ...]) for event in mine if event["event"] == "turn"]
        assert [[(each.steps, each.examples) for each in turn] for turn in turns] == [[(3, 96)], [(2, 64), (2, 64)]]
        first, last = (from_json(event["record"], RankRecord) for event in mine if event["event"] == "record")
        assert first.task == task
        assert (first.updates_applied, last.updates_applied) == (5, 5 + 4 + 5)


def test_the_example_trains_to_its_own_end_without_turns(tmp_path):
    assert events_of(tmp_path, [], {}) == []


@pytest.mark.parametrize(("name", "kind"), [("window", Window), ("usage", WindowUsage), ("record", RankRecord)])
def test_the_schema_has_the_fields_of_the_types(name, kind):
    assert list(SCHEMA["$defs"][name]["properties"]) == [field.name for field in fields(kind)]
