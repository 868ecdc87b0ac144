"""Following the files of a run while they grow."""

from tests.launch.jobs import python_job, run
from tfdist.launch.agents.messages import Event, Exited, Output, Started
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.follow import CHUNK, GrowingFile, RunFollower, TaskLog, step_of, wait_for_end
from tfdist.launch.runs.launcher import this_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter


def append(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def texts(messages):
    return [(message.task, message.stream, message.text) for message in messages]


def test_a_growing_file_is_read_from_where_it_was_left(tmp_path):
    file = GrowingFile(tmp_path / "log")
    assert file.read() == b""
    append(file.path, b"a")
    assert (file.read(), file.read()) == (b"a", b"")
    append(file.path, b"x" * CHUNK + b"y")
    assert (len(file.read()), file.read()) == (CHUNK, b"y")


def test_a_hole_is_skipped(tmp_path):
    file = GrowingFile(tmp_path / "log")
    append(file.path, b"a")
    assert file.read() == b"a"
    with file.path.open("r+b") as log:
        log.truncate(1 << 40)
    assert file.read().strip(b"\0") == b""  # the rest of the first block
    assert file.read() == b""
    with file.path.open("r+b") as log:
        log.seek(1 << 40)
        log.write(b"end")
    assert file.read() == b"end"


def test_output_comes_in_whole_lines_and_the_rest_at_the_end(tmp_path):
    run_dir = RunDir(tmp_path)
    follower = RunFollower(run_dir)
    log = run_dir.log("worker-0", "stdout")
    append(log, b"one\ntw")
    assert texts(follower.output()) == [("worker-0", "stdout", "one\n")]
    append(log, b"o\nthr\xff")
    append(run_dir.log("worker-1", "stderr"), b"new\n")
    assert texts(follower.output()) == [("worker-0", "stdout", "two\n"), ("worker-1", "stderr", "new\n")]
    assert texts(follower.output()) == []
    assert texts(follower.output(ended=True)) == [("worker-0", "stdout", "thr\udcff")]


def test_a_line_longer_than_a_chunk_comes_in_pieces_of_whole_characters(tmp_path):
    run_dir = RunDir(tmp_path)
    line = "x" + "é" * (2 * CHUNK) + "\n"
    append(run_dir.log("worker-0", "stdout"), line.encode() + b"end")
    *pieces, last = [message.text for message in RunFollower(run_dir).output(ended=True)]
    assert ("".join(pieces), last) == (line, "end")
    assert max(map(len, pieces)) <= 2 * CHUNK


def test_only_the_last_lines_are_left_after_skipping(tmp_path):
    run_dir = RunDir(tmp_path)
    append(run_dir.log("worker-0", "stdout"), b"".join(b"%d\n" % n for n in range(100)))
    append(run_dir.log("worker-1", "stdout"), b"only\n")
    append(run_dir.log("worker-2", "stdout"), b"a\nb\nc")
    follower = RunFollower(run_dir)
    follower.skip_to_tail(2)
    assert [message.text for message in follower.output(ended=True)] == ["98\n99\n", "only\n", "b\n", "c"]


def test_the_messages_of_a_real_run_are_read_back(tmp_path):
    code = (
        "import os, json; os.write(int(os.environ['TFDIST_EVENTS_FD']), json.dumps({'event': 'step', 'step': 7}).encode() + b'\\n')\n"
        "print('hi')"
    )
    _, messages = run(python_job(code, {"worker": 2}), tmp_path)
    follower = RunFollower(RunDir(tmp_path))
    found = list(follower.events(ended=True))
    for kind in (Started, Event, Exited):
        assert [message for message in found if isinstance(message, kind)] == messages.of(kind)
    assert sorted(texts(follower.output(ended=True))) == sorted(texts(messages.of(Output)))


def test_entries_that_are_no_messages_are_left_out(tmp_path):
    run_dir = RunDir(tmp_path)
    append(run_dir.events, b'{"kind": "Refused", "host": "h", "message": "Output"}\njunk\n[1]\n{"kind": "Started"}\n')
    append(run_dir.events, b'{"kind": "Started", "task": "worker-0", "attempt": 0, "pid": 1, "time": 2.0, "new": 3}\n')
    assert list(RunFollower(run_dir).events()) == [Started("worker-0", 1, 2.0)]


def test_a_task_is_followed_from_its_latest_attempt_to_the_next_one(tmp_path):
    run_dir = RunDir(tmp_path)
    append(run_dir.log("worker-0", "stdout", 9), b"old\n")
    append(run_dir.log("worker-0", "stdout", 10), b"now\n")
    log = TaskLog(run_dir, "worker-0", "stdout")
    assert log.read() == b"now\n"
    append(run_dir.log("worker-0", "stdout", 11), b"next\n")
    append(run_dir.log("worker-0", "stdout", 10), b"late\n")
    assert (log.read(), log.read(), log.read()) == (b"late\n", b"next\n", b"")


def test_waiting_ends_with_the_run_after_a_last_look(tmp_path, monkeypatch):
    monkeypatch.setattr("tfdist.launch.runs.follow.LAUNCHER_S", 0.0)  # this process stands in for it
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, this_launcher().to_json())
    looks, pauses = [], []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            save_json(run_dir.outcome, {"format": 1, "status": "ok"})

    wait_for_end(run_dir, looks.append, pause)
    assert looks == [False, False, True]
    assert all(seconds >= 0.1 for seconds in pauses)


def test_events_so_far_and_lines_that_are_not_wanted_are_left_out(tmp_path):
    run_dir = RunDir(tmp_path)
    with RunWriter(run_dir) as writer:
        writer.write(Started("worker-0", 7, 1.0))
        follower = RunFollower(run_dir)
        follower.skip_events()
        for task in ("worker-0", "worker-1"):
            writer.write(Event(task, 2.0, {"event": "step", "step": 1}))
        writer.write(Exited("worker-0", 0, 3.0, 0, 0.0))
        messages = list(follower.events(wanted=lambda line: step_of(line) != "worker-0"))
    assert [(type(message), message.task) for message in messages] == [(Event, "worker-1"), (Exited, "worker-0")]
