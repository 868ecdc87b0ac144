"""`tfdist.run` with a function on two hosts, which have neither tfdist nor cloudpickle nor any file of the program."""

import signal
import sys

import pytest

from tests.waiting import wait_until

VALUES = """
import numpy as np
import tfdist

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)

class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, array):
        return array * self.factor

def train(epochs, *, scale):
    import os, socket, sys
    import helper
    print("imported", helper.NAME, sys.argv)
    return {"task": os.environ["TFDIST_TASK"], "weights": scale(WEIGHTS), "epochs": (epochs, None, 1.5), "host": helper.HOST}

if __name__ == "__main__":
    options = dict(HOSTS, strategy="multiworker", copy=True)
    result = tfdist.run(train, args=(3,), kwargs={"scale": Scale(2)}, **options)
    for task, value in result.values.items():
        print(task, value["task"], value["weights"].dtype, value["weights"].tolist(), value["epochs"])
    print(result.outcome.status, result.folder.name == sorted(result.folder.parent.iterdir())[-1].name)
    print((tfdist.run(lambda: 7, **dict(options, quiet=True))).values)
"""


def test_values_and_arrays_come_back_from_hosts_that_have_nothing(launcher):
    launcher.script("import socket\nNAME = 'helper'\nHOST = socket.gethostname()", "helper.py")
    done = launcher.run_python(VALUES)
    assert done.code == 0, done.err
    assert done.lines_of("worker-1", done.out) == ["imported helper ['train']"]
    doubled = "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]"
    for task in ("worker-0", "worker-1"):
        assert f"{task} {task} float32 {doubled} [3, None, 1.5]\n" in done.out
    assert "ok True\n{'worker-0': 7, 'worker-1': 7}\n" in done.out


FAILURES = """
import tfdist

def fail():
    import os
    if os.environ["TFDIST_ATTEMPT"] == "0" and os.environ["TFDIST_TASK"] == "worker-1":
        raise KeyError("the first time")
    return int(os.environ["TFDIST_ATTEMPT"])

class Model:
    pass

def give():
    return {"model": [Model()]}

if __name__ == "__main__":
    options = dict(HOSTS, strategy="multiworker")
    for function, more in ((fail, {}), (fail, {"max_restarts": 1}), (give, {})):
        try:
            print(tfdist.run(function, **options, **more).values)
        except tfdist.RunFailed as error:
            print("RunFailed", error, error.outcome.culprit)
        print("---", flush=True)
"""


@pytest.mark.thorough
def test_exceptions_have_their_traceback_and_restarts_work(launcher):
    done = launcher.run_python(FAILURES, timeout_s=120)
    assert done.code == 0, done.err
    failed, restarted, no_value, _ = done.out.split("---\n")
    assert "RunFailed tfdist: worker-1 exited with code 1 on h2: KeyError: 'the first time'\n" in failed
    assert 'calls.py", line 8, in fail\n  |     raise KeyError("the first time")\n' in failed
    assert failed.endswith(" worker-1\n")
    assert restarted.endswith("{'worker-0': 1, 'worker-1': 1}\n")
    assert "TypeError: values['model'][0] is a Model: return numbers, texts, lists" in no_value


SLEEPS = """
import tfdist

def sleep():
    import time
    print("sleeping", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    try:
        tfdist.run(sleep, **HOSTS, strategy="multiworker")
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_ends_the_tasks_and_is_raised(launcher):
    path = launcher.script(
        f"HOSTS = {{'hosts': ['h1', 'h2'], 'ssh': {str(launcher.net.ssh)!r}, "
        f"'python': {str(launcher.python)!r}}}\n{SLEEPS}",
        "sleep.py",
    )
    process = launcher.start_program(sys.executable, path)
    logs = launcher.folder.glob
    wait_until(lambda: len([log for log in logs("runs/*/attempt-0/*/stdout.log") if log.read_text()]) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "interrupted"), err
    assert "Ctrl-C: stopping 2 tasks" in err
