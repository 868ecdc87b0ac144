"""The table of placed operations, from lines as TensorFlow logs them."""

import csv

from tfdist.launch.agents.messages import Output
from tfdist.launch.runs.placement import device_name, nodes, placed_in, save_placement
from tfdist.launch.runs.rundir import create_run_dir
from tfdist.launch.runs.writer import RunWriter

LOCAL = "/job:localhost/replica:0/task:0/device:CPU:"
LINES = f"""\
2026-11-22 06:56:52.414256: I tensorflow/core/common_runtime/placer.cc:162] a: (Conv2D): {LOCAL}1
I0000 00:00:1795330612.412    2636 execute.cc:1775] Executing op Conv2D in device {LOCAL}0
I0000 00:00:1795330612.413    2636 placer.cc:162] step/conv/Conv2D: (Conv2D): {LOCAL}0
I0000 00:00:1795330612.414    2636 placer.cc:162] value: (_Arg): {LOCAL}0
I0000 00:00:1795330612.415    2636 placer.cc:162] update: (ResourceApplyAdam): /job:ps/replica:0/task:1/device:CPU:0
I0000 00:00:1795330612.416    2636 placer.cc:162] step/conv_1/Conv2D: (Conv2D): {LOCAL}0
a line of the program about placer.cc
"""


def test_only_nodes_count_by_operation_and_device():
    found = list(nodes(LINES.encode().splitlines()))
    expected = [("Conv2D", "CPU:1"), ("Conv2D", "CPU:0"), ("ResourceApplyAdam", "ps-1 CPU:0"), ("Conv2D", "CPU:0")]
    assert found == expected


def test_a_device_that_is_named_otherwise_is_kept():
    assert device_name("/job:worker/replica:0/task:12/device:GPU:3") == "worker-12 GPU:3"
    assert device_name("/device:XLA_CPU:0") == "/device:XLA_CPU:0"


def test_the_table_is_that_of_the_last_attempts(tmp_path):
    with RunWriter(create_run_dir(tmp_path, "run")) as writer:
        first_two = LINES[: LINES.index("value")]
        for task, attempt, text in (("chief-0", 0, LINES), ("chief-0", 1, first_two), ("ps-0", 0, LINES)):
            writer.write(Output(task, "stderr", text, attempt=attempt))
        assert placed_in(writer.run_dir).total() == 2 + 4
        assert save_placement(writer) == f"operations by device: {writer.run_dir.placement}"
    assert writer.run_dir.placement.read_text() == (
        "task,operation,device,nodes\n"
        "chief-0,Conv2D,CPU:0,1\n"
        "chief-0,Conv2D,CPU:1,1\n"
        "ps-0,Conv2D,CPU:0,2\n"
        "ps-0,Conv2D,CPU:1,1\n"
        "ps-0,ResourceApplyAdam,ps-1 CPU:0,1\n"
    )


def test_a_run_that_logged_nothing_has_no_table(tmp_path):
    with RunWriter(create_run_dir(tmp_path, "run")) as writer:
        writer.write(Output("worker-0", "stderr", "hello\n"))
        assert save_placement(writer).startswith("no operation was placed: --set log_device_placement=true acts in")
    assert not writer.run_dir.placement.exists()


def test_cells_that_a_spreadsheet_would_compute_are_texts(tmp_path):
    with RunWriter(create_run_dir(tmp_path, "run")) as writer:
        line = '1: I tensorflow/placer.cc:162] a: (Conv2D): /job:=HYPERLINK("x,y")\n'
        writer.write(Output("=1+1", "stderr", line.replace("/job:=", "/job:worker,=")))
        save_placement(writer)
    text = writer.run_dir.placement.read_text()
    assert next(csv.reader([text.splitlines()[1]]))[0] == "'=1+1"
    assert len(next(csv.reader([text.splitlines()[1]]))) == 4
