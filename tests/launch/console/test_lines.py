import io

from tfdist.launch.agents.messages import Event, Heartbeat, Output
from tfdist.launch.console.lines import PrefixedLines, Quiet, prefixed

NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795221002.108703    9122 port.cc:153] oneDNN custom operations are on.
W0000 00:00:1795221002.108703    9122 port.cc:153] something else
2026-11-20 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary
To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild TensorFlow
E0000 00:00:1795221007.512158    9122 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
"""


def test_tensorflows_start_up_lines_are_hidden_unless_verbose_and_errors_are_shown():
    assert prefixed("worker-0", NOISE, verbose=False) == ""
    assert prefixed("worker-0", NOISE, verbose=True).count("[worker-0] ") == 6
    error = "E0000 00:00:1795221007.5 9122 grpc_server_lib.cc:1] Could not start gRPC server\nI am a person\n"
    assert prefixed("worker-0", error, verbose=False).count("[worker-0] ") == 2


def test_lines_go_to_the_stream_they_came_from():
    out, err = io.StringIO(), io.StringIO()
    lines = PrefixedLines(out, err)
    lines.handle(Output("worker-1", "stdout", "a\nb\n"))
    lines.handle(Output("worker-0", "stderr", "c\n"))
    lines.handle(
        Event("worker-0", 0.0, {"event": "step", "step": 5, "steps": 20, "images_per_s": 1234.56, "loss": 0.5})
    )
    assert out.getvalue() == "[worker-1] a\n[worker-1] b\n[worker-0] step 5/20  1,234.6 images/s  loss 0.5000\n"
    assert err.getvalue() == "[worker-0] c\n"


def test_quiet_prints_nothing():
    out = io.StringIO()
    Quiet(out, out).handle(Output("t", "stdout", "x\n"))
    assert out.getvalue() == ""


def test_numbers_too_large_for_a_float_are_omitted():
    lines = PrefixedLines(out := io.StringIO(), out)
    lines.handle(Event("worker-0", 0.0, {"event": "step", "step": 1, "images_per_s": 10**400, "loss": -(10**400)}))
    assert out.getvalue() == "[worker-0] step 1\n"


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


def test_lines_left_out_are_reported_at_the_end(unread, monkeypatch):
    monkeypatch.setattr("tfdist.launch.console.stream.FULL_BYTES", 0)
    with PrefixedLines(unread.stream, io.StringIO()) as lines:
        lines.handle(Output("t", "stdout", "x\n" * (1 << 17)))
        lines.handle(Output("t", "stdout", "left out\n"))
    assert unread.rest().endswith(b"[t] x\n[tfdist] 1 line not shown; the logs keep all\n")


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


def test_quiet_shows_nothing():
    lines = Quiet(io.StringIO(), io.StringIO())
    lines.handle(Output("worker-1", "stderr", "x\n"))
    assert not lines.shows("worker-1", ("x",))
