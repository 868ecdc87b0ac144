import json
import os
import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys
{before}
from tfdist.launch.stack_dumps import SIGNAL, dump_on_request
dump_on_request()
dump_on_request()
if signal.getsignal(SIGNAL) is signal.SIG_DFL and "raise" in sys.argv:
    signal.raise_signal(SIGNAL)
"""


def run(*arguments, before="", stacks=True):
    """The events and stacks that the program sends, and its exit code."""
    (events, events_end), (dump, dump_end) = os.pipe(), os.pipe()
    env = {**os.environ, "TFDIST_EVENTS_FD": str(events_end)}
    env |= {"TFDIST_STACKS_FD": str(dump_end)} if stacks else {}
    argv = [sys.executable, "-c", PROGRAM.format(before=before), *arguments]
    process = subprocess.Popen(argv, env=env, pass_fds=(events_end, dump_end))
    os.close(events_end)
    os.close(dump_end)
    with os.fdopen(events) as lines, os.fdopen(dump) as text:
        return [json.loads(line) for line in lines], text.read(), process.wait(), process.pid


def test_the_signal_writes_the_stacks_and_is_announced_once():
    events, text, code, pid = run("raise")
    assert events == [{"event": "stacks", "signal": signal.SIGRTMAX - 3, "pid": pid}]
    assert "most recent call first" in text
    assert "in <module>" in text
    assert code == 0


def test_a_handler_of_the_program_stays():
    events, text, _, _ = run("raise", before="signal.signal(signal.SIGRTMAX - 3, lambda *_: None)")
    assert (events, text) == ([], "")


def test_without_the_descriptor_nothing_is_registered():
    assert run(stacks=False)[:3] == ([], "", 0)


def test_a_descriptor_that_is_no_pipe_is_left_alone(tmp_path):
    other = f"os.environ['TFDIST_STACKS_FD'] = str(os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY))"
    assert run(before=other)[0] == []
    assert run(before="os.environ['TFDIST_STACKS_FD'] = '999'")[0] == []
