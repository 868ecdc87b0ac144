"""The table in the output of a notebook's cell, with a fake of IPython's display. A real kernel: tests/test_notebooks.py."""

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfdist.launch.agents.messages import Output, Started
from tfdist.launch.console import notebook
from tfdist.launch.console.notebook import NotebookTable, in_notebook

from .test_job_state import event, exited, job_of


class Display:
    """What `display(..., display_id=True)` returns."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Display":
        assert raw
        assert display_id
        assert not self.texts  # once
        self.update(data, raw=True)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.texts.append(data["text/plain"])


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Display:
    shown = Display()
    module: Any = ModuleType("IPython.display")
    module.display = shown
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_a_long_training_is_one_table_and_lines_come_below_it(display: Display) -> None:
    out, clock = io.StringIO(), [0.0]
    with NotebookTable(job_of(worker=2), out, now=lambda: clock[0]) as table:
        for task in ("worker-0", "worker-1"):
            table.handle(Started(task, 1, 0.0))
        table.handle(Output("worker-0", "stdout", "hello\n"))
        for step in range(1000):
            clock[0] += 0.1
            table.handle(event("worker-0", "step", step=step, images_per_s=123.4))
        for task in ("worker-0", "worker-1"):
            table.handle(exited(task, 0))
    assert out.getvalue() == "[worker-0] hello\n"
    assert len(display.texts) < 250
    first, last = display.texts[0].splitlines(), display.texts[-1].splitlines()
    assert first[0].split() == ["task", "state", "step", "images/s", "loss", "time", "left"]
    assert [line.split()[:3] for line in last[1:]] == [["worker-0", "done", "999"], ["worker-1", "done"]]


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_only_a_kernel_is_a_notebook(shell: Any, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert in_notebook() is expected
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebook.in_notebook()
