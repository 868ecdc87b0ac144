"""A run that is shown from its folder, whose files anybody may have written."""

import io
import json
import tracemalloc
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.cli.show.past import LAST_LINES, watch
from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.launch.agents.inbox import Message
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.text import plain
from tfdist.models.spec import TrainingSpec

pytestmark = pytest.mark.slow

FIELDS = sorted({field.name for kind in get_args(Message) for field in fields(kind)})


class Screen(io.StringIO):
    """A terminal, on which the built-in training has a live table."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(params=["dumb", "xterm"], ids=["lines", "table"])
def out(request, monkeypatch):
    monkeypatch.setenv("TERM", request.param)
    return Screen


@pytest.fixture
def run_dir(tmp_path_factory):
    """A training of two workers that has ended."""
    run_dir = RunDir(tmp_path_factory.mktemp("run"))
    save_json(run_dir.spec, SavedSpec(TrainingSpec()).to_json())
    save_json(run_dir.cluster, {"tasks": [{"task": f"worker-{index}", "host": "h1"} for index in range(2)]})
    save_json(run_dir.outcome, {"format": 1, "status": "ok"})
    return run_dir


def shown(run_dir, out, *lines):
    """What is shown of a run with these lines of events."""
    run_dir.events.write_bytes(b"".join(line + b"\n" for line in lines))
    watch(run_dir, stream := out())
    return stream.getvalue()


def entry(kind, **values):
    return json.dumps({"kind": kind, **values}).encode()


def step(task, number):
    return entry("Event", task=task, attempt=0, time=1.0, event={"event": "step", "step": number})


BROKEN = [
    entry("Restarting", attempt="x", tasks=["worker-0"], whole=True, reason="r"),
    entry("Restarting", attempt=1, tasks=7, whole=True, reason="r"),
    entry("Started", task=["worker-0"], attempt={}, pid="x", time="y"),
    entry("Started", task="worker-0", attempt=0, pid=1, time="yesterday"),
    entry("Exited", task="worker-0", code="one", time=1.0, peak_memory_bytes=0, cpu_s=0.0),
    entry("Stopped", tasks=[["worker-0"]], grace_s=1.0),
    entry("Event", task="worker-0", time=1.0, event=[1]),
    b'{"kind": ["Started"]}',
    b'{"kind": "Event", "event": ' + b"[" * 200_000,
    b"[" * 200_000,
    b"\x00\xff",
]


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_entries_with_wrong_fields_are_left_out(broken, run_dir, out):
    assert shown(run_dir, out, broken, step("worker-1", 4711)).count("4711")


def test_tasks_with_unknown_names_in_the_plan_are_left_out(run_dir, out):
    names = ("worker-0", "worker-x", "worker-" + "9" * 5000, "ghost-1", "worker")
    save_json(run_dir.cluster, {"tasks": [{"task": name, "host": "h1"} for name in names]})
    assert "4711" in shown(run_dir, out, step("worker-0", 4711))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["worker-0", "ps-9"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
VALUES |= st.lists(st.sampled_from(["worker-0", "worker-1"]), max_size=2)
VALUES |= st.fixed_dictionaries(
    {"event": st.sampled_from(["step", "phase", "evaluation", "ready"]), "step": VALUES, "phase": VALUES}
)
ENTRIES = st.fixed_dictionaries(
    {"kind": st.sampled_from([kind.__name__ for kind in get_args(Message)])}, optional=dict.fromkeys(FIELDS, VALUES)
)


@pytest.mark.parametrize("out", [io.StringIO, Screen], ids=["lines", "table"])
@given(entries=st.lists(ENTRIES, max_size=10))
def test_no_entry_ends_the_display(tmp_path_factory, out, entries):
    folder = RunDir(tmp_path_factory.mktemp("run"))
    save_json(folder.outcome, {"format": 1, "status": "ok"})
    save_json(folder.spec, SavedSpec(TrainingSpec()).to_json())
    shown(folder, out, *(json.dumps(each).encode() for each in entries))


def test_texts_have_no_escapes(run_dir, capsys):
    escapes = "\x1b]0;title\x07\x1b[2J\u202e\ud800"
    text = shown(
        run_dir,
        io.StringIO,
        entry("Restarting", attempt=1, tasks=["worker-0"], whole=True, reason=f"restart{escapes}"),
        step(f"worker-0{escapes}", 8),
    )
    text += capsys.readouterr().err
    assert "[worker-0\ufffd] step 8" in text
    assert "[tfdist] restart\ufffd\n" in text
    assert plain(text) == text


def test_a_step_is_shown_on_a_terminal_only_if_it_is_one_of_the_last(run_dir, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    lines = [step(f"worker-{number % 2}", number) for number in range(100)]
    text = shown(run_dir, Screen, *lines, entry("Event", task="worker-1", time=1.0, event={"event": "ready"}))
    assert [line for line in text.splitlines() if "step" in line] == [
        f"[worker-{number % 2}] step {number}" for number in range(100 - 2 * LAST_LINES, 100)
    ]


@pytest.mark.parametrize(
    ("out", "line"),
    [
        pytest.param(terminal, line, marks=[pytest.mark.thorough] if (terminal, line) == ("xterm", "tasks") else [])
        for terminal in ("dumb", "xterm")
        for line in ("step", "ready", "no end", "tasks")
    ],
    indirect=["out"],
)
def test_memory_does_not_grow_with_the_events(line, run_dir, out):
    with run_dir.events.open("wb") as file:
        for number in range(20):
            if line == "no end":
                file.write(b"x" * (1 << 20))
            elif line == "tasks":
                tasks = [f"task-{number}-{index}" for index in range(4_000)]
                file.write(entry("Restarting", attempt=number, tasks=tasks, whole=False, reason="") + b"\n")
            else:
                file.write(
                    (entry("Event", task="worker-0", time=1.0, event={"event": line, "x": "x" * 1000}) + b"\n") * 500
                )
    stream = out()
    tracemalloc.start()
    try:
        watch(run_dir, stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 15 << 20
