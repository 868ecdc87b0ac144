"""`tfdist.run` and `tfdist.check` on this machine."""

import base64
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import tfdist
import tfdist.bench
from tests.waiting import wait_until
from tfdist.cli.command import command_named
from tfdist.cli.python_api import _words
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.errors import TfdistError

ONE = {"strategy": "one-device", "quiet": True}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "multiworker", "workers": 2}, ["--strategy", "multiworker", "--workers", "2"]),
        ({"hosts": "h1,h2"}, ["--hosts", "h1,h2"]),
        ({"hosts": ("h1", "h2")}, ["--hosts", "h1", "--hosts", "h2"]),
        ({"hostfile": Path("a b")}, ["--hostfile", "a b"]),
        ({"env": {"A": "1", "B": 2}}, ["--env", "A=1", "--env", "B=2"]),
        ({"copy": True}, ["--copy", "."]),
        ({"copy": Path("other")}, ["--copy", "other"]),
        ({"copy": False, "workers": None}, []),
        ({"prefix": False, "trace": False, "sync": True}, ["--no-prefix", "--sync"]),
        ({"soft_placement": False, "seed": 1}, ["--set", "soft_placement=false", "--set", "seed=1"]),
        ({"checkpoint_every": 100, "max_restarts": 3}, ["--checkpoint-every", "100", "--max-restarts", "3"]),
        ({"timeout": 90, "memory_limit": "8G"}, ["--timeout", "90", "--set", "memory_limit=8G"]),
        ({"metrics": ":9090", "log_limit": "1G"}, ["--metrics", ":9090", "--set", "log_limit=1G"]),
    ],
)
def test_options_have_the_names_of_job_files(options: dict[str, Any], words: list[str]) -> None:
    assert _words(command_named("launch"), options) == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": 2}, "tfdist.run: worker: no such key; did you mean workers?"),
        ({"workers": "two"}, 'tfdist.run: workers = "two": must be an integer'),
        ({"workers": True}, "tfdist.run: workers = true: must be an integer"),
        ({"quiet": 1}, "tfdist.run: quiet = 1: must be "),
        ({"json": True}, "tfdist.run: json is an option of the command line alone; omit it"),
        ({"dry_run": False}, "tfdist.run: dry_run is an option of the command line alone"),
        ({"command": ["a"]}, "tfdist.run: command is an option of the command line alone"),
    ],
)
def test_a_wrong_name_or_type_is_a_type_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        tfdist.run(print, **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 0}, "--workers 0: must be at least 1"),
        ({"strategy": "multi"}, "--strategy multi: did you mean multiworker?"),
        ({"strategy": "multiworker", "ps": 3}, "--ps 3 has no effect"),
        ({"copy": "no-such"}, "--copy no-such: no such folder"),
        ({"port": 99999}, "--port 99999"),
    ],
)
def test_a_wrong_value_is_the_sentence_of_the_command_line(
    options: dict[str, Any], sentence: str, folder: Path
) -> None:
    with pytest.raises(TfdistError) as error:
        tfdist.run(print, **{"strategy": "one-device", **options})
    assert str(error.value).startswith(sentence)
    assert list(folder.iterdir()) == []
    assert len("".join(traceback.format_exception(error.value)).splitlines()) < 15  # nothing of what lies between


def test_a_keyword_wins_over_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDIST_WORKERS", "0")
    with pytest.raises(TfdistError, match=r"^--workers 0: must be at least 1 \(set by TFDIST_WORKERS\)"):
        tfdist.run(print, strategy="multiworker")
    with pytest.raises(TfdistError, match=r"^--workers -1: "):
        tfdist.run(print, strategy="multiworker", workers=-1)


@pytest.mark.parametrize("variable", ["TFDIST_DRY_RUN", "TFDIST_DETACH", "TFDIST_JSON"])
def test_a_variable_for_the_command_line_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(TfdistError, match=f"^{variable}: it is for the command line; unset it for tfdist.run"):
        tfdist.run(print, **ONE)


@pytest.mark.parametrize("timeout_s", ["60", 0, -1.0, float("nan"), float("inf")])
def test_a_time_limit_is_a_positive_number(timeout_s: Any) -> None:
    with pytest.raises(TypeError, match=r"^tfdist.check: timeout_s is .*: give a positive number of seconds"):
        tfdist.check(print, timeout_s=timeout_s)


def test_the_exception_can_be_sent_to_another_process() -> None:
    outcome = Outcome(Status.FAILED, 1, "no luck")
    error = pickle.loads(pickle.dumps(tfdist.RunFailed("text", outcome)))
    assert (str(error), error.outcome) == ("text", outcome)


def test_a_task_starts_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDIST_TASK", "worker-1")
    for call in (tfdist.run, tfdist.check, tfdist.bench.run):
        with pytest.raises(TfdistError, match=r"this is worker-1 of a job, which starts no other one; call it outside"):
            call(print)


def test_arguments_are_documented() -> None:
    for function in (tfdist.run, tfdist.check):
        documentation = inspect.getdoc(function)
        assert documentation is not None
        assert all(f"{name}:" in documentation for name in inspect.signature(function).parameters)


slow = pytest.mark.slow


@slow
def test_a_lambda_a_command_and_another_thread(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert tfdist.run(lambda x: x + 1, args=(1,), **ONE).values == {"worker-0": 2}
    result = tfdist.run(["python", "-c", "print('hello')"], **ONE)
    assert (result.values, result.images_per_s) == ({}, None)
    assert result.folder.parent == folder / "runs"
    assert "[worker-0] hello\n" in capfd.readouterr().out
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(tfdist.run(os.getcwd, **ONE).values["worker-0"]))
    thread.start()
    thread.join(60)
    assert found == [str(folder)]


@slow
def test_two_threads_may_run_jobs_at_the_same_time(folder: Path) -> None:
    (folder / "two.py").write_text(
        "import sys, threading, tfdist\n"
        "def run(name):\n"
        "    values[name] = tfdist.run(lambda: name, strategy='one-device', name=name).values['worker-0']\n"
        "if __name__ == '__main__':\n"
        "    values, out = {}, sys.stdout\n"
        "    threads = [threading.Thread(target=run, args=(name,)) for name in ('a', 'b')]\n"
        "    for thread in threads: thread.start()\n"
        "    for thread in threads: thread.join()\n"
        "    print(sorted(values.items()), sys.stdout is out)\n"
    )
    done = subprocess.run([sys.executable, "two.py"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[('a', 'a'), ('b', 'b')] True"


@slow
def test_values_are_kept_out_of_the_events_of_the_run() -> None:
    result = tfdist.run(lambda: "x" * 1_000_000, **ONE)
    assert len(result.values["worker-0"]) == 1_000_000
    assert (result.folder / "events.jsonl").stat().st_size < 20_000
    assert not (result.folder / "copy.tar.gz").exists()


@slow
def test_a_failure_is_the_block_of_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("no luck")

    with pytest.raises(tfdist.RunFailed) as error:
        tfdist.run(fail, **ONE)
    lines = str(error.value).splitlines()
    assert lines[0] == "tfdist: worker-0 exited with code 1: ValueError: no luck"
    assert '    raise ValueError("no luck")' in lines[3]
    assert lines[-1].startswith("  logs:  runs/")
    assert error.value.outcome.exit_code == 1
    assert len(inspect.getinnerframes(error.value.__traceback__)) == 2
    with pytest.raises(tfdist.RunFailed, match="exited with code 3"):
        tfdist.run(lambda: sys.exit(3), **ONE)


@slow
def test_a_task_that_sends_a_pickle_is_refused() -> None:
    data = base64.b64encode(pickle.dumps({"loss": 1.0})).decode()

    def send() -> None:
        from tfdist.launch.events import emit

        emit("value", at=0, size=len(base64.b64decode(data)), data=data)
        os._exit(0)

    with pytest.raises(
        tfdist.RunFailed, match=r"^tfdist: what a task returned cannot be read: worker-0: it is not in the form"
    ):
        tfdist.run(send, **ONE)


@slow
@pytest.mark.thorough
def test_throughput_is_that_of_the_job_and_check_gives_rows() -> None:
    def train() -> None:
        import time

        import tensorflow as tf

        with tfdist.strategies.current().scope():
            weights = tf.Variable([0.0])
        for batch in tfdist.measure.steps([1.0] * 700, examples=10):
            weights.assign([batch])
            time.sleep(0.01)

    speed = tfdist.run(train, **ONE).images_per_s
    assert speed is not None
    assert 0 < speed < 1000
    rows = tfdist.check(train, strategy=["one-device"], quiet=True)
    assert list(rows.columns) == ["check", "verdict", "text", "fix"]
    assert list(rows["verdict"]) == ["ok"]


SLEEPS = """
import tfdist
def sleep():
    import time
    print("sleeping", flush=True)
    time.sleep(600)
if __name__ == "__main__":
    try:
        tfdist.run(sleep, strategy="one-device")
    except KeyboardInterrupt:
        print("interrupted")
"""


@slow
@pytest.mark.parametrize(("number", "code", "last"), [(signal.SIGINT, 0, "interrupted"), (signal.SIGTERM, 143, "")])
def test_signals_end_the_job_and_reach_the_program(number: int, code: int, last: str, folder: Path) -> None:
    (folder / "sleep.py").write_text(SLEEPS)
    process = subprocess.Popen([sys.executable, "sleep.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(log.read_text() for log in folder.glob("runs/*/attempt-0/*/stdout.log")))
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert out.endswith(f"{last}\n")
    assert ("Ctrl-C: stopping 1 task" in err) == (number == signal.SIGINT)
