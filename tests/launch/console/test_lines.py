import io
import os
import re
import time
from pathlib import Path

import pytest

from tfdist.launch.agents.inbox import Note, Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Heartbeat, Output
from tfdist.launch.console.lines import UPDATE_S, LineOptions, PrefixedLines, can_redraw
from tfdist.launch.console.stream import WriteQueue
from tfdist.launch.runs.rundir import RunDir


@pytest.mark.parametrize(
    ("term", "encoding", "expected"),
    [("xterm", "utf-8", True), ("dumb", "utf-8", False), ("xterm", "ascii", False), ("xterm", "latin-1", False)],
)
def test_a_display_needs_a_terminal_that_moves_its_cursor_and_shows_bars(term, encoding, expected, monkeypatch):
    monkeypatch.setenv("TERM", term)
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding=encoding) as file, os.fdopen(master):
        assert can_redraw(file) is expected


def test_a_file_is_not_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert not can_redraw(io.StringIO())


NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795221002.108703    9122 port.cc:153] oneDNN custom operations are on.
W0000 00:00:1795221002.108703    9122 port.cc:153] something else
2026-11-20 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary
To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild TensorFlow
E0000 00:00:1795221007.512158    9122 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
"""
STEP = Event("worker-0", 0.0, {"event": "step", "step": 5, "steps": 20, "images_per_s": 1234.56, "loss": 0.5})


class Console:
    """What is printed for messages; a text is output of worker-0."""

    def __init__(self, terminal=False, **options):
        self.out = io.StringIO()
        self.out.isatty = lambda: terminal
        self.time = 0.0
        self.lines = PrefixedLines(self.out, self.out, LineOptions(**options), now=lambda: self.time)

    def __call__(self, *messages):
        """What these messages print."""
        start = len(self.out.getvalue())
        for message in messages:
            self.lines.handle(Output("worker-0", "stdout", message) if isinstance(message, str) else message)
        return self.out.getvalue()[start:]


def exited(task):
    return Exited(task, 0, 0.0, 0, 0.0)


def test_tensorflows_start_up_lines_are_hidden_unless_verbose_and_errors_are_shown():
    assert Console()(NOISE) == ""
    assert Console(verbose=True)(NOISE).count("[worker-0] ") == 6
    error = "E0000 00:00:1795221007.5 9122 grpc_server_lib.cc:1] Could not start gRPC server\nI am a person\n"
    assert Console()(error).count("[worker-0] ") == 2


def test_lines_go_to_the_stream_they_came_from():
    out, err = io.StringIO(), io.StringIO()
    lines = PrefixedLines(out, err)
    for message in (Output("worker-1", "stdout", "a\nb\n"), Output("worker-0", "stderr", "c\n"), STEP, Note("h1", "n")):
        lines.handle(message)
    assert out.getvalue() == "[worker-1] a\n[worker-1] b\n[worker-0] step 5/20  1,234.6 images/s  loss 0.5000\n"
    assert err.getvalue() == "[worker-0] c\n[h1] n\n"


def test_stacks_are_not_printed():
    assert Console()(Output("worker-0", "stacks", "Thread 0x1 (most recent call first):\n")) == ""


def test_numbers_too_large_for_a_float_are_omitted():
    event = Event("worker-0", 0.0, {"event": "step", "step": 1, "images_per_s": 10**400, "loss": -(10**400)})
    assert Console()(event) == "[worker-0] step 1\n"


def test_bytes_that_are_not_utf_8_are_replaced():
    assert Console()("caf\udcff\n") == "[worker-0] caf\ufffd\n"


def test_quiet_prints_what_the_tasks_write_and_nothing_of_tfdist():
    printed = Console(quiet=True)(
        "x\n", STEP, Note("h1", "warning"), Stopped(("worker-0",), 5.0, 0.0, "worker-1 failed")
    )
    assert printed == "[worker-0] x\n"


def test_only_the_chosen_tasks_are_printed():
    console = Console(tasks=frozenset({"worker-1"}))
    assert console("x\n", STEP, Output("worker-1", "stderr", "y\n")) == "[worker-1] y\n"
    assert console(exited("worker-0"), exited("worker-1")) == ""


def test_without_a_prefix_lines_are_printed_as_they_are():
    assert Console(prefix=False)("a\n\n  b\n" + NOISE) == "a\n\n  b\n"


def test_no_prefix_stands_alone():
    assert Console()("a\n\n   \n\r\n\b\b\r\nb\n") == "[worker-0] a\n[worker-0] b\n"


def test_timestamps_are_utc_and_come_before_the_prefix():
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
    assert re.fullmatch(rf"{stamp}\[worker-0\] a\n{stamp}\[worker-0\] b\n", Console(timestamps=True)("a\nb\n"))
    assert re.fullmatch(rf"{stamp}a\n", Console(timestamps=True, prefix=False)("a\n"))


def test_characters_that_split_no_line_of_a_file_split_none_here():
    assert Console()("a\x0cb\u2028c\n") == "[worker-0] abc\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_that_has_not_ended_is_printed_and_continued(terminal):
    console = Console(terminal)
    assert console("Loading ...") == "[worker-0] Loading ..."
    assert console(" still") == " still"
    assert console(" done\nnext\n") == " done\n[worker-0] next\n"


def test_a_line_of_another_task_does_not_get_glued_to_one_that_has_not_ended():
    console = Console()
    assert console("Loading ...") == "[worker-0] Loading ..."
    assert console(Output("worker-1", "stdout", "x\n")) == "\n[worker-1] x\n"
    assert console(" done\n") == "[worker-0]  done\n"
    assert console("a", Output("worker-1", "stdout", "b\n"), "\n") == "[worker-0] a\n[worker-1] b\n"


def test_a_line_without_an_end_is_ended_with_its_task_and_at_the_end():
    console = Console()
    assert console("no newline", exited("worker-0")) == "[worker-0] no newline\n"
    with console.lines:
        console("again")
    assert console.out.getvalue().endswith("[worker-0] again\n")


def test_a_long_line_without_an_end_is_not_kept():
    console = Console()
    for _ in range(10):
        assert console("x" * 65536).endswith("x" * 65536)
    assert all(len(lines.rest) == 0 for lines in console.lines.texts.values())
    assert console("y\n") == "y\n"


@pytest.mark.parametrize("character", " \t\r")
def test_a_blank_line_without_an_end_is_not_kept(character):
    console = Console()
    for _ in range(10):
        assert console(character * 65536) == ""
    assert all(len(lines.rest) <= 65536 for lines in console.lines.texts.values())
    assert console("y\n").endswith("y\n")


def test_the_start_of_a_start_up_message_is_not_printed_and_its_end_neither():
    console = Console()
    start, end = NOISE.splitlines()[1][:60], NOISE.splitlines()[1][60:]
    assert console(start) == ""
    assert console(end[:5], end[5:] + "\nafter\n") == "[worker-0] after\n"


def test_a_finished_progress_bar_is_one_line():
    bar = "".join(f"\b\b\b\r{step}/3" for step in (1, 2, 3))
    assert Console()(f"Epoch 1\n{bar}\nEpoch 2\n") == "[worker-0] Epoch 1\n[worker-0] 3/3\n[worker-0] Epoch 2\n"


def test_a_progress_bar_is_updated_once_a_second_as_a_line_of_its_own():
    console = Console()
    assert console("\r1/9") == "[worker-0] 1/9\n"
    assert console("\r2/9", "\r3/9") == ""
    console.time = UPDATE_S
    assert console("\r4/9") == "[worker-0] 4/9\n"
    assert console("\r9/9\n") == "[worker-0] 9/9\n"
    console.time += UPDATE_S
    assert console("\r1/9", "\n") == "[worker-0] 1/9\n"
    assert console("\r2/9", "\r5/9", exited("worker-0")) == "[worker-0] 2/9\n[worker-0] 5/9\n"


def test_a_progress_bar_is_updated_in_place_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(terminal=True)
    assert console("\r10% =") == "[worker-0] 10% ="
    console.time += UPDATE_S
    assert console("\r20% ==") == "\r[worker-0] 20% ==\x1b[K"
    assert console(Output("worker-1", "stderr", "x\n")) == "\n[worker-1] x\n"
    console.time += UPDATE_S
    assert console("\r90% =========") == "[worker-0] 90% ===="  # one row
    assert console("\r100% ===========\n") == "\r[worker-0] 100% ===========\x1b[K\n"


def test_an_endless_line_with_control_characters_takes_little_memory():
    console = Console()
    console("\x1b[31m")
    for _ in range(20):
        console("\b" + "x" * (1 << 16))
    (lines,) = console.lines.texts.values()
    assert len(lines.rest) <= 1 << 16


def test_colors_pass_only_on_a_terminal_and_cursor_movements_never():
    assert Console()("\x1b[2J\x1b[31mred\x1b[0m\n") == "[worker-0] red\n"
    assert Console(terminal=True)("\x1b[2J\x1b[31mred\x1b[0m\n") == "[worker-0] \x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize(
    ("reason", "grace_s", "line"),
    [
        ("Ctrl-C", 5.0, "[tfdist] Ctrl-C: stopping 2 tasks; Ctrl-C again kills them\n"),
        ("Ctrl-C", 0.0, "[tfdist] Ctrl-C: killing 2 tasks\n"),
        ("SIGTERM", 5.0, "[tfdist] SIGTERM: stopping 2 tasks\n"),
        ("worker-2 failed", 5.0, "[tfdist] worker-2 failed: stopping 2 tasks\n"),
        ("", 5.0, ""),
    ],
)
def test_a_stop_is_announced_unless_the_job_has_succeeded(reason, grace_s, line):
    assert Console()(Stopped(("worker-0", "worker-1"), grace_s, 0.0, reason)) == line


def test_the_last_lines_on_the_screen_are_known():
    lines = PrefixedLines(io.StringIO(), io.StringIO())
    traceback = ("Traceback (most recent call last):", "", "ValueError: bad data")
    assert not lines.shows("worker-1", traceback)
    lines.handle(Output("worker-1", "stderr", "\n".join(traceback) + "\n"))
    assert lines.shows("worker-1", traceback)
    assert not lines.shows("worker-0", traceback)
    lines.handle(Output("worker-0", "stderr", "a line\n" * 100))
    assert not lines.shows("worker-1", traceback)
    lines.handle(Output("worker-1", "stdout", "only on stdout, which is another file\n"))
    assert not lines.shows("worker-1", ("only on stdout, which is another file",))


@pytest.mark.parametrize("options", [LineOptions(prefix=False, timestamps=True), LineOptions(quiet=True)])
def test_the_lines_on_the_screen_are_known_in_every_form(options):
    lines = PrefixedLines(io.StringIO(), io.StringIO(), options)
    lines.handle(Output("worker-1", "stderr", "ValueError: "))
    lines.handle(Output("worker-1", "stderr", "x\n"))
    assert lines.shows("worker-1", ("ValueError: x",))


def test_lines_that_a_full_stream_leaves_out_are_counted_and_reported_once_it_is_read(unread, monkeypatch):
    lines = PrefixedLines(unread.stream, io.StringIO())
    monkeypatch.setattr("tfdist.launch.console.stream.FULL_BYTES", 1 << 17)
    lines.handle(Output("t", "stdout", "x\n" * (1 << 17)))
    for _ in range(3):
        lines.handle(Output("t", "stdout", "left out\n" * 1000))
    unread.read(1 << 17)
    unread.wait_until_not_full()
    lines.handle(Heartbeat(0.0))
    lines.handle(Output("t", "stdout", "y\n"))
    rest = unread.rest()
    assert rest.endswith(b"[t] x\n[tfdist] 3,000 lines not shown; the logs keep all\n[t] y\n")
    assert not lines.shows("t", ["left out"])


def test_a_slow_reader_is_not_waited_for_once_tasks_are_stopped(unread, monkeypatch):
    monkeypatch.setattr("tfdist.launch.console.lines.STALL_S", 60.0)
    lines = PrefixedLines(unread.stream, unread.stream)
    lines.handle(Stopped(("t",), 5.0, 0.0, "Ctrl-C"))
    monkeypatch.setattr("tfdist.launch.console.stream.FULL_BYTES", 1 << 17)
    lines.handle(Output("t", "stdout", "x\n" * (1 << 17)))
    started = time.monotonic()
    lines.handle(Output("t", "stdout", "left out\n"))
    assert time.monotonic() - started < 30
    assert unread.rest().endswith(b"[t] x\n")


def test_lines_left_out_are_reported_at_the_end(unread, monkeypatch):
    monkeypatch.setattr("tfdist.launch.console.stream.FULL_BYTES", 0)
    with PrefixedLines(unread.stream, io.StringIO()) as lines:
        lines.handle(Output("t", "stdout", "x\n" * (1 << 17)))
        lines.handle(Output("t", "stdout", "left out\nand its end"))
    assert unread.rest().endswith(b"[t] x\n[tfdist] 2 lines not shown; the logs keep all\n")


def test_a_line_is_not_continued_behind_lines_that_were_left_out(unread, monkeypatch):
    lines = PrefixedLines(unread.stream, io.StringIO())
    lines.handle(Output("t", "stdout", "x\n" * (1 << 16) + "begun"))
    monkeypatch.setattr("tfdist.launch.console.stream.FULL_BYTES", 0)
    lines.handle(Output("t", "stdout", " and ended\n"))
    monkeypatch.undo()
    unread.wait_until_not_full()
    lines.handle(Output("t", "stdout", "y\n"))
    assert unread.rest().endswith(b"[t] begun\n[tfdist] 1 line not shown; the logs keep all\n[t] y\n")


def test_a_reader_that_reads_nothing_is_not_waited_for_once_tasks_are_stopped(unread, monkeypatch):
    lines = PrefixedLines(unread.stream, unread.stream)
    lines.handle(Stopped(("t",), 5.0, 0.0, "Ctrl-C"))
    lines.handle(Output("t", "stdout", "x\n" * (1 << 17)))
    waits = []
    monkeypatch.setattr(WriteQueue, "has_room", lambda _, stall_s: waits.append(stall_s))
    lines.handle(Output("t", "stdout", "left out\n"))
    assert waits
    assert set(waits) == {0.0}


@pytest.mark.parametrize(
    ("quiet", "printed"), [(False, "[tfdist] worker-1 failed; restart 1 of 3: all tasks\n"), (True, "")]
)
def test_a_restart_is_announced(quiet, printed):
    restarting = Restarting(1, ("worker-0", "worker-1"), True, "worker-1 failed; restart 1 of 3: all tasks")
    assert Console(quiet=quiet)(restarting) == printed


@pytest.mark.parametrize("terminal", [False, True])
def test_messages_of_others_have_no_controls(terminal):
    evil = "\x1b]0;x\x07a\x9bb\u202e"
    console = Console(terminal)
    assert console(Note(evil, evil)) == "[ab] ab\n"
    assert console(Restarting(1, ("worker-0",), True, evil)) == "[tfdist] ab\n"
    assert console(Output(evil, "stdout", f"{evil}\n")) == "[ab] ab\n"
    assert console(Stopped(("worker-0",), reason=evil)) == "[tfdist] ab: killing 1 task\n"


def test_a_color_that_is_cut_off_is_not_shown():
    console = Console(terminal=True)
    assert console("red \x1b[3") == "[worker-0] red"
    assert console("1mx\n") == " \x1b[31mx\x1b[0m\n"


def test_a_file_gets_a_step_of_one_task_every_10_seconds_its_last_one_and_then_those_of_another():
    console, printed = Console(), []
    for at, task, step in [(0, 0, 1), (9, 1, 1), (9.9, 0, 2), (10.1, 0, 3), (11, 0, 9)]:
        console.time = at
        printed.append(console(Event(f"worker-{task}", 0.0, {"event": "step", "step": step, "steps": 9})))
    assert "".join(printed) == "[worker-0] step 1/9\n[worker-0] step 3/9\n[worker-0] step 9/9\n"
    last = Event("worker-1", 0.0, {"event": "step", "step": 9, "steps": 9})
    assert (console(last), console(exited("worker-0"), last)) == ("", "[worker-1] step 9/9\n")


RUN_DIR = RunDir(Path("runs/r"))
FAILED = {"event": "failed", "type": "ValueError", "message": "no label", "where": "train.py:3"}
TRACEBACK = """\
a last word
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("no label")
errors_impl.UnavailableError: Socket closed
Additional information
"""


def victims(*messages, run_dir=RUN_DIR, **options):
    out = io.StringIO()
    lines = PrefixedLines(out, out, LineOptions(run_dir=run_dir, **options))
    for message in messages:
        lines.handle(message)
    return out.getvalue().splitlines()


def traceback_of(task):
    return [Output(task, "stderr", TRACEBACK[:150]), Output(task, "stderr", TRACEBACK[150:])]


FIRST = [Event("worker-0", 0.0, FAILED), *traceback_of("worker-0"), Exited("worker-0", 1, 0.0, 0, 0.0)]


def test_the_traceback_of_a_task_that_fails_after_another_one_is_a_line_with_its_log():
    second = [Event("worker-1", 0.0, FAILED), *traceback_of("worker-1"), Exited("worker-1", 1, 0.0, 0, 0.0, attempt=2)]
    log = "runs/r/attempt-2/worker-1/stderr.log"
    expected = [
        *(f"[worker-0] {line}" for line in TRACEBACK.splitlines()),
        "[worker-1] a last word",
        f"[worker-1] errors_impl.UnavailableError: Socket closed (5 lines in {log})",
    ]
    assert victims(*FIRST, *second) == expected
    assert victims(*FIRST[1:], *second[1:]) == expected  # an exit code is a failure, too
    assert len(victims(*FIRST, *second, verbose=True)) == 2 * TRACEBACK.count("\n")
    assert len(victims(*FIRST, *second, run_dir=None)) == 2 * TRACEBACK.count("\n")


def test_a_task_that_goes_on_after_its_traceback_is_printed_again():
    step = Event("worker-1", 0.0, STEP.event)
    printed = victims(*FIRST, *traceback_of("worker-1"), step, Output("worker-1", "stderr", "more\n"))
    assert printed[-1] == "[worker-1] more"
    assert any("UnavailableError: Socket closed (5 lines in " in line for line in printed)
    quiet = victims(*FIRST, *traceback_of("worker-1"), step, Output("worker-1", "stderr", "more\n"), quiet=True)
    assert quiet[-1] == "[worker-1] more"


def test_after_a_restart_the_next_failure_is_the_first():
    restart = Restarting(1, ("worker-0", "worker-1"), True, "restarting")
    printed = victims(*FIRST, restart, *traceback_of("worker-1"), Exited("worker-1", 1, 0.0, 0, 0.0, attempt=1))
    assert printed[-1] == "[worker-1] Additional information"
