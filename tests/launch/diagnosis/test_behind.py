import faulthandler
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.diagnosis.behind import Frame, stacks_of


def test_the_stacks_that_faulthandler_writes():
    ready, end = threading.Event(), threading.Event()

    def wait():
        ready.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        main, *others = stacks_of("--- now process 1, from faulthandler\n" + file.read())
    end.set()
    thread.join()
    assert main.main
    assert not any(other.main for other in others)
    assert main.position.function == "test_the_stacks_that_faulthandler_writes"
    assert "wait" in [other.position.function for other in others]
    assert main.caller.words(__file__.rpartition("/")[0]).startswith(f"{main.position.function}() at test_behind.py:")


def test_the_main_thread_is_known_although_the_oldest_threads_are_left_out():
    text = (
        "Thread 0x2 (most recent call first):\n"
        '  File "/a.py", line 1 in other\n\n'
        "Current thread 0x1 [python] (most recent call first):\n"
        '  File "/a.py", line 2 in main\n\n'
        "Thread 0x3 (most recent call first):\n"
        '  File "/a.py", line 1 in other\n...\n'
    )
    assert [stack.frames[0].function for stack in stacks_of(text)] == ["main", "other", "other"]


def test_of_several_processes_the_first_one_counts():
    text = "".join(
        f'--- now process {pid}, from py-spy\nThread {pid} (idle): "MainThread"\n    f{pid} (/a.py:3)\n'
        for pid in (1, 2)
    )
    (stack,) = stacks_of(text)
    assert stack.frames == (Frame("f1", "/a.py", "3"),)
    assert stack.lines == ('Thread 1 (idle): "MainThread"', "    f1 (/a.py:3)")


@pytest.mark.parametrize(
    ("file", "library", "tensorflow"),
    [
        ("/home/me/train.py", False, False),
        ("/home/me/tensorflow/train.py", False, False),
        ("/tmp/__autograph_generated_filea1.py", False, False),
        ("<string>", False, False),
        ("/root/.pyenv/versions/3.11.7/lib/python3.11/threading.py", True, False),
        ("<frozen importlib._bootstrap>", True, False),
        ("/v/lib/python3.11/site-packages/numpy/core/numeric.py", True, False),
        ("/v/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", True, True),
        ("/v/lib/python3.11/site-packages/tf_keras/src/engine/training.py", True, True),
        ("/v/lib/python3.11/site-packages/tensorflow_datasets/core/download.py", True, False),
    ],
)
def test_whose_code_a_file_is(file, library, tensorflow):
    frame = Frame("f", file, "1")
    assert (frame.in_program, frame.in_tensorflow) == (not library, tensorflow)


@given(
    st.text()
    | st.lists(st.sampled_from(["Thread 0x1 (most recent call first):", '  File "a", line 1 in f', "..."])).map(
        "\n".join
    )
)
def test_any_text_is_read(text):
    assert all(stack.frames for stack in stacks_of(text))
