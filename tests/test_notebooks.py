"""`tfdist.run` in the kernel of a notebook."""

import queue
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient

from tests.waiting import wait_until

pytestmark = pytest.mark.slow
EXAMPLE = Path("examples/notebook.ipynb")
MOST_LINES = 60
"""Of a cell's output."""
Kernel = tuple[KernelManager, BlockingKernelClient]


def text_of(output: Any) -> str:
    """What a cell shows of an output."""
    data = output.get("data", {})
    return str(output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", [])))


def test_the_example_runs_and_its_cells_stay_short(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLE, 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [[text_of(output) for output in cell.get("outputs", [])] for cell in notebook.cells]
    assert max(sum(text.count("\n") + 1 for text in texts) for texts in outputs) < MOST_LINES
    job, values, rows = ("".join(texts) for texts in outputs if texts)
    assert "worker-0  done" in job
    assert "worker-1  done" in job
    assert values.startswith("worker-0 [")
    assert values.splitlines()[-1].startswith("ok 20")
    assert rows.count(" ok ") == 2


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run_cell(client: BlockingKernelClient, code: str) -> tuple[str, str]:
    """The status of a cell, and all that it shows: streams, displays with their updates, results and errors."""
    shown: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] in ("stream", "display_data", "update_display_data", "execute_result", "error"):
            shown.append(text_of(message["content"]))

    reply = client.execute_interactive(code, timeout=120, output_hook=hook)
    return str(reply["content"]["status"]), "\n".join(shown)


def test_cells_modules_beside_the_notebook_and_failures(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def half(x):\n    return x / 2\n")
    _, client = kernel
    assert run_cell(client, "import tfdist, helper\nSIZE = 3")[0] == "ok"
    run_cell(client, "def train(x):\n    print('in', x)\n    return helper.half(x * SIZE)")
    status, text = run_cell(client, "tfdist.run(train, args=(4,), strategy='one-device').values")
    assert (status, text.splitlines()[-1]) == ("ok", "{'worker-0': 6.0}")
    assert "[worker-0] in 4\n" in text
    run_cell(client, "def fail():\n    x = 1\n    raise ValueError('no')")
    status, text = run_cell(client, "tfdist.run(fail, strategy='one-device')")
    assert status == "error"
    assert "    raise ValueError('no')\n" in text
    assert text.count("ipykernel_") == 2  # the task's own lines, and those of the exception
    assert "cli/launch.py" not in text


@pytest.mark.thorough
def test_the_stop_button_ends_the_job(kernel: Kernel, tmp_path: Path) -> None:
    manager, client = kernel
    run_cell(client, "import time, tfdist\ndef sleep():\n    print('sleeping', flush=True)\n    time.sleep(600)")
    request = client.execute("tfdist.run(sleep, strategy='one-device')")
    wait_until(lambda: any(log.read_text() for log in tmp_path.glob("runs/*/attempt-0/worker-0/stdout.log")))
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=60)
    assert reply["parent_header"]["msg_id"] == request
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    texts = []
    with suppress(queue.Empty):
        while True:
            texts.append(text_of(client.get_iopub_msg(timeout=1)["content"]))
    assert "Ctrl-C: stopping 1 task" in "\n".join(texts)
    children = psutil.Process(manager.provisioner.pid).children(recursive=True)  # type: ignore[attr-defined, union-attr]
    assert not [child for child in children if "tfdist" in " ".join(child.cmdline())]
    assert run_cell(client, "1 + 1") == ("ok", "2")
