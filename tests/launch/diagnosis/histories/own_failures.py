"""Tasks that failed by themselves."""

from . import Replay, exited, lost, not_started, reported, stepped, stopped, wrote
from .texts import ABORT, CLOUD, NO_PS, SHAPES, START_UP, TEARDOWN, aborted_by, traceback

BAD = traceback("ValueError: bad data")
MISSING = traceback("ModuleNotFoundError: No module named 'x'")
UNAVAILABLE = "UnavailableError: Collective ops is aborted by: Socket closed"
TWO_HOSTS = {"worker-0": "h1", "worker-1": "h2"}
SIXTY_FOUR = [f"worker-{index}" for index in range(64)]

ROWS = (
    Replay(
        "a failure after the agent of a host was lost whose task had ended",
        (exited("worker-1", 0, 5.0), lost("h2", 6.0), wrote("worker-0", BAD, 9.0), exited("worker-0", 1, 9.1)),
        "worker-0 exited with code 1 on h1: ValueError: bad data", 1, ("worker-0",), {}, hosts=TWO_HOSTS,
    ),
    Replay(
        "an exception, and a peer that dies of it",
        (wrote("worker-1", BAD, 5.0), exited("worker-1", 1, 5.4), wrote("worker-0", aborted_by(1), 6.0), exited("worker-0", 1, 6.5)),
        "worker-1 exited with code 1: ValueError: bad data", 1, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "the peer exits before the culprit",
        (wrote("worker-0", aborted_by(1), 1.0), exited("worker-0", 1, 1.0), exited("worker-1", -9, 1.2)),
        "worker-1 was killed by SIGKILL (not by tfdist)", 137, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "a culprit that takes 8 s to end after its exception",
        (wrote("worker-1", BAD, 5.0), wrote("worker-0", aborted_by(1), 6.0), exited("worker-0", 1, 6.5),
         wrote("worker-1", TEARDOWN, 13.0), exited("worker-1", 1, 13.2)),
        "worker-1 exited with code 1: ValueError: bad data", 1, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "a culprit that is stopped while it cleans up after its exception",
        (wrote("worker-1", BAD, 5.0), wrote("worker-0", aborted_by(1), 6.0), exited("worker-0", 1, 6.5),
         wrote("worker-1", TEARDOWN, 7.0), stopped(9.5, "worker-1"), exited("worker-1", -15, 9.6)),
        "worker-1 failed: ValueError: bad data", 1, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "two that fail alike, of which one is stopped before it has ended",
        (wrote("worker-1", BAD, 5.0), exited("worker-1", 1, 5.4), wrote("worker-0", BAD, 5.5), stopped(8.4, "worker-0"), exited("worker-0", 1, 8.6)),
        "both tasks failed alike: ValueError: bad data", 1, ("worker-1", "worker-0"), {},
    ),
    Replay(
        "one that logs the culprit's error, continues and is stopped",
        (wrote("worker-1", BAD, 5.0), exited("worker-1", 1, 5.4), wrote("worker-0", BAD, 5.5), wrote("worker-0", "next try", 7.0), stopped(8.4, "worker-0"), exited("worker-0", -15, 8.6)),
        "worker-1 exited with code 1: ValueError: bad data", 1, ("worker-1",), {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "a culprit that reported its exception and is killed while it cleans up",
        (reported("worker-1", "ValueError", "bad data", 5.0), stopped(8.0, "worker-0", "worker-1"), exited("worker-0", -15, 8.1), exited("worker-1", -9, 13.1)),
        "worker-1 failed on h2: ValueError: bad data", 1, ("worker-1",), {"worker-0": "stopped by tfdist on h1"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a culprit whose exit with code 1 comes after the stop",
        (reported("worker-1", "ValueError", "bad data", 5.0), stopped(8.0, "worker-0", "worker-1"), exited("worker-0", -15, 8.1), exited("worker-1", 1, 8.3)),
        "worker-1 exited with code 1: ValueError: bad data", 1, ("worker-1",), {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "a culprit that gets more time to end than the others",
        (
            reported("worker-1", "ValueError", "bad data", 5.0),
            stopped(8.0, "worker-0"),
            exited("worker-0", -15, 8.1),
            exited("worker-1", 1, 13.0),
        ),
        "worker-1 exited with code 1: ValueError: bad data",
        1,
        ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "an exit that arrives after the stop but was before it",
        (exited("worker-0", 3, 5.0), stopped(8.0, "worker-1"), exited("worker-1", 4, 4.0, arrives=8.1)),
        "worker-1 exited with code 4 on h2", 4, ("worker-1",), {"worker-0": "exited with code 3 on h1"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "two hosts whose clocks differ, corrected: the earlier exit arrives later",
        (exited("worker-0", 3, 6.0, arrives=6.0), exited("worker-1", 4, 4.5, arrives=6.5), stopped(9.0)),
        "worker-1 exited with code 4 on h2", 4, ("worker-1",), {"worker-0": "exited with code 3 on h1"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a report is evidence before any exit",
        (reported("worker-1", "KeyError", "'label'", 4.0), exited("worker-0", 3, 4.8), exited("worker-1", 1, 9.0)),
        "worker-1 exited with code 1: KeyError: 'label'", 1, ("worker-1",), {"worker-0": "exited with code 3"},
    ),
    Replay(
        "a report of a peer's failure is no evidence",
        (reported("worker-0", "UnavailableError", "Collective ops is aborted by: Socket closed", 4.0), exited("worker-0", 1, 4.2), exited("worker-1", -11, 4.4)),
        "worker-1 was killed by SIGSEGV", 139, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "an exception of the program that a peer's failure caused",
        (wrote("worker-0", traceback("RuntimeError: the epoch failed", cause=UNAVAILABLE), 4.0), exited("worker-0", 1, 4.2), exited("worker-1", -6, 4.5)),
        "worker-1 was killed by SIGABRT", 134, ("worker-1",), {"worker-0": "exited with code 1: RuntimeError: the epoch failed"},
    ),
    Replay(
        "a reported exception that a peer's failure caused",
        (reported("worker-0", "RuntimeError", "the epoch failed", 4.0, causes=UNAVAILABLE), exited("worker-0", 1, 4.2), exited("worker-1", 7, 4.5)),
        "worker-1 exited with code 7", 7, ("worker-1",), {"worker-0": "exited with code 1: RuntimeError: the epoch failed"},
    ),
    Replay(
        "a cloud client that cannot connect is no peer's failure",
        (wrote("worker-0", CLOUD, 3.0), exited("worker-0", 1, 3.1), wrote("worker-1", aborted_by(0), 3.5), exited("worker-1", 1, 3.9)),
        "worker-0 exited with code 1: ServiceUnavailable: 503 failed to connect to all addresses; "
        "last error: UNKNOWN: ipv4:10.0.0.9:443: Failed to connect to remote host: Connection refused",
        1, ("worker-0",), {"worker-1": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "'Socket closed' from a database is no peer's failure",
        (wrote("worker-0", traceback("redis.ConnectionError: Socket closed"), 3.0), exited("worker-0", 1, 3.1), stopped(6.0, "worker-1"), exited("worker-1", -15, 6.0)),
        "worker-0 exited with code 1: ConnectionError: Socket closed", 1, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "what C++ threads log about a dead peer does not hide the task's own exception",
        (wrote("worker-0", START_UP + TEARDOWN + BAD, 3.0), exited("worker-0", 1, 3.1), wrote("worker-1", aborted_by(0), 3.5), exited("worker-1", 1, 3.9)),
        "worker-0 exited with code 1: ValueError: bad data", 1, ("worker-0",), {"worker-1": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "an exception that the program handled is not the cause of its exit",
        (wrote("worker-0", BAD, 3.0), wrote("worker-0", "retrying", 4.0, "stdout"), exited("worker-0", 3, 9.0), stopped(12.0, "worker-1"), exited("worker-1", -15, 12.0)),
        "worker-0 exited with code 3", 3, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "an exception and an uploader that writes lines for seconds after it",
        (wrote("worker-0", BAD, 3.0), wrote("worker-0", "uploading logs", 6.0), exited("worker-0", 1, 9.0), stopped(12.0, "worker-1"), exited("worker-1", -15, 12.0)),
        "worker-0 exited with code 1: ValueError: bad data", 1, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "an exception in a later step of a task that had logged another one",
        (wrote("worker-0", traceback("OSError: disk"), 1.0), stepped("worker-0", 5, 2.0), wrote("worker-0", BAD, 3.0), exited("worker-0", 1, 3.1)),
        "worker-0 exited with code 1: ValueError: bad data", 1, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "a syntax error has no traceback",
        (wrote("worker-0", '  File "train.py", line 1\n    def\n       ^\nSyntaxError: invalid syntax', 1.0), exited("worker-0", 1, 1.1)),
        "worker-0 exited with code 1: SyntaxError: invalid syntax", 1, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "the exception is on stdout",
        (wrote("worker-0", BAD, 1.0, "stdout"), exited("worker-0", 1, 1.1)),
        "worker-0 exited with code 1: ValueError: bad data", 1, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "TensorFlow's headline is the line that says something",
        (wrote("worker-0", SHAPES, 1.0), exited("worker-0", 1, 1.1)),
        "worker-0 exited with code 1: InvalidArgumentError: Collective ops is aborted by: Shape mismatch in the collective instance 100. "
        "Op at device /job:worker/replica:0/task:0/device:CPU:0 expected shape [5] but another member in the group expected shape [10].",
        1, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "collectives that do not fit are no peer's failure",
        (wrote("worker-0", SHAPES, 1.0), exited("worker-0", 1, 1.1), wrote("worker-1", SHAPES, 1.0), exited("worker-1", 1, 1.2)),
        "both tasks failed alike: InvalidArgumentError: Collective ops is aborted by: Shape mismatch in the collective instance 100. "
        "Op at device /job:worker/replica:0/task:0/device:CPU:0 expected shape [5] but another member in the group expected shape [10].",
        1, ("worker-0", "worker-1"),
    ),
    Replay(
        "the same exception in all tasks",
        tuple(entry for at, name in enumerate(SIXTY_FOUR) for entry in (wrote(name, MISSING, 2.0 + at / 50), exited(name, 1, 2.1 + at / 50))),
        "all 64 tasks failed alike: ModuleNotFoundError: No module named 'x'", 1, tuple(SIXTY_FOUR), roles={"worker": 64},
    ),
    Replay(
        "the same exception in many tasks before the others are stopped",
        (*(entry for name in SIXTY_FOUR[:40] for entry in (wrote(name, MISSING, 2.0), exited(name, 1, 2.1))),
         stopped(5.0, *SIXTY_FOUR[40:]), *(exited(name, -15, 5.1) for name in SIXTY_FOUR[40:])),
        "worker-0, worker-1, worker-2, worker-3 and 36 more failed alike: ModuleNotFoundError: No module named 'x'",
        1, tuple(SIXTY_FOUR[:40]), dict.fromkeys(SIXTY_FOUR[40:], "stopped by tfdist"), roles={"worker": 64},
    ),
    Replay(
        "the same last line in all tasks, without an exception",
        tuple(entry for name in SIXTY_FOUR[:3] for entry in (wrote(name, "train.py: no such data set", 1.0), exited(name, 2, 1.0))),
        "all 3 tasks failed alike: exited with code 2", 2, ("worker-0", "worker-1", "worker-2"), roles={"worker": 3},
    ),
    Replay(
        "the same exception in two of three tasks, on two hosts",
        (wrote("worker-0", BAD, 1.0), exited("worker-0", 1, 1.1), wrote("worker-2", BAD, 2.0), exited("worker-2", 1, 2.1), stopped(4.0, "worker-1"), exited("worker-1", -15, 4.1)),
        "worker-0 and worker-2 failed alike: ValueError: bad data", 1, ("worker-0", "worker-2"), {"worker-1": "stopped by tfdist on h2"},
        roles={"worker": 3}, hosts={**TWO_HOSTS, "worker-2": "h3"},
    ),
    Replay(
        "two failures on two hosts that are too close to be ordered",
        (wrote("worker-0", BAD, 5.0), exited("worker-0", 1, 5.2), wrote("worker-3", traceback("KeyError: 'a'"), 5.2), exited("worker-3", 1, 5.3)),
        "worker-0 on h1 and worker-3 on h4 failed within 0.2 s: ValueError: bad data; KeyError: 'a'", 1, ("worker-0", "worker-3"),
        roles={"worker": 4}, hosts={f"worker-{index}": f"h{index + 1}" for index in range(4)},
    ),
    Replay(
        "two failures on one host in the order of their times",
        (exited("worker-1", 4, 5.2), exited("worker-0", 3, 5.0)),
        "worker-0 exited with code 3", 3, ("worker-0",), {"worker-1": "exited with code 4"},
    ),
    Replay(
        "two failures on one host that are too close to be ordered",
        (exited("worker-1", -9, 5.0), exited("worker-0", 3, 5.05)),
        "worker-1 and worker-0 failed within 0.1 s: killed by SIGKILL (not by tfdist); exited with code 3", 137, ("worker-1", "worker-0"),
    ),
    Replay(
        "an exit with a code of its own and no output",
        (exited("worker-1", 7, 1.0), wrote("worker-0", aborted_by(1), 1.5), exited("worker-0", 1, 1.5)),
        "worker-1 exited with code 7", 7, ("worker-1",), {"worker-0": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "a program that is missing",
        (not_started("worker-1", "[Errno 2] No such file or directory: 'x'"), stopped(0.2, "worker-0"), exited("worker-0", -15, 0.3)),
        "worker-1 could not be started on h2: [Errno 2] No such file or directory: 'x'", 127, ("worker-1",), {"worker-0": "stopped by tfdist on h1"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a program that is missing on all hosts",
        (not_started("worker-0", "no such file: 'x'"), not_started("worker-1", "no such file: 'x'")),
        "worker-0 and worker-1 could not be started: no such file: 'x'", 127, ("worker-0", "worker-1"), hosts=TWO_HOSTS,
    ),
    Replay(
        "a C++ abort that names a peer",
        (wrote("worker-0", ABORT, 3.0), exited("worker-0", -6, 3.1), exited("worker-1", -11, 3.3)),
        "worker-1 was killed by SIGSEGV", 139, ("worker-1",), {"worker-0": "was killed by SIGABRT"},
    ),
    Replay(
        "SIGKILL of a task that had lost a peer is its own failure",
        (wrote("worker-0", TEARDOWN, 3.0), exited("worker-0", -9, 3.1), wrote("worker-1", aborted_by(0), 3.5), exited("worker-1", 1, 3.9)),
        "worker-0 was killed by SIGKILL (not by tfdist)", 137, ("worker-0",), {"worker-1": f"exited with code 1: {UNAVAILABLE}"},
    ),
    Replay(
        "a chief whose ps was killed",
        (exited("ps-0", -9, 3.0), wrote("chief-0", NO_PS, 3.5), exited("chief-0", 1, 4.0), stopped(6.0, "worker-0"), exited("worker-0", -15, 6.1)),
        "ps-0 was killed by SIGKILL (not by tfdist)", 137, ("ps-0",),
        {"chief-0": "exited with code 1: UnavailableError: failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.2:39135: recvmsg:Connection reset by peer",
         "worker-0": "stopped by tfdist"},
        roles={"chief": 1, "worker": 1, "ps": 1},
    ),
)  # fmt: skip
