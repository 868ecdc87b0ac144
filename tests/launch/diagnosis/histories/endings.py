"""Roles, signals, time limits, and tasks that tfdist stopped."""

import signal

from tfdist.launch.diagnosis.history import NotJoined, StartTimedOut, TimedOut

from . import Replay, exited, interrupted, stopped, stuck, wrote
from .texts import aborted_by, traceback

PS = {"chief": 1, "worker": 1, "ps": 1}
CLOSED = "UnavailableError: Collective ops is aborted by: Socket closed"
SERVER = "a script without server.join() is the usual cause"
ONE = {"worker": 1}
LOG = "Out of memory: Killed process 4242 (python) total-vm:9000000kB"

ROWS = (
    Replay("all tasks exit with code 0", (exited("worker-0", 0, 1.0), exited("worker-1", 0, 1.1)), "", 0, status="ok"),
    Replay(
        "servers are stopped after the chief",
        (exited("chief-0", 0, 1.0), stopped(1.0, "worker-0", "ps-0"), exited("worker-0", -15, 1.1), exited("ps-0", -9, 6.1)),
        "", 0, roles=PS, status="ok",
    ),
    Replay(
        "a worker aborts after the chief's exit with code 0",
        (exited("chief-0", 0, 1.0), exited("worker-0", 134, 1.1), stopped(1.0, "ps-0"), exited("ps-0", -6, 1.2)),
        "", 0, roles=PS, status="ok",
    ),
    Replay(
        "a worker's abort arrives before the chief's exit with code 0",
        (exited("worker-0", -6, 1.1), exited("chief-0", 0, 1.0), stopped(1.2, "ps-0"), exited("ps-0", -15, 1.3)),
        "", 0, roles=PS, status="ok",
    ),
    Replay(
        "an evaluator is stopped after the workers",
        (exited("worker-0", 0, 1.0), exited("worker-1", 0, 1.2), stopped(1.2, "evaluator-0"), exited("evaluator-0", -15, 1.3)),
        "", 0, roles={"worker": 2, "evaluator": 1}, status="ok",
    ),
    Replay(
        "an evaluator fails while the workers train",
        (wrote("evaluator-0", traceback("ValueError: no checkpoint"), 1.0), exited("evaluator-0", 1, 1.0), stopped(4.0, "worker-0", "worker-1"),
         exited("worker-0", -15, 4.1), exited("worker-1", -15, 4.1)),
        "evaluator-0 exited with code 1: ValueError: no checkpoint", 1, ("evaluator-0",),
        {"worker-0": "stopped by tfdist", "worker-1": "stopped by tfdist"}, roles={"worker": 2, "evaluator": 1},
    ),
    Replay(
        "a leader exits with code 0 because tfdist stopped it after a failure",
        (exited("ps-0", 3, 1.0), stopped(4.0, "chief-0", "worker-0"), exited("chief-0", 0, 4.5), exited("worker-0", -15, 4.1)),
        "ps-0 exited with code 3", 3, ("ps-0",), {"chief-0": "stopped by tfdist", "worker-0": "stopped by tfdist"}, roles=PS,
    ),
    Replay(
        "a ps exits with code 0 before the chief",
        (exited("ps-0", 0, 1.0), stopped(4.0, "chief-0", "worker-0"), exited("chief-0", -15, 4.1), exited("worker-0", -15, 4.1)),
        f"ps-0 exited with code 0, but chief-0 still needs it: {SERVER}", 1, ("ps-0",),
        {"chief-0": "stopped by tfdist", "worker-0": "stopped by tfdist"}, roles=PS,
    ),
    Replay(
        "all servers exit with code 0 before the chief",
        (exited("worker-0", 0, 1.0), exited("ps-0", 0, 1.1), stopped(4.0, "chief-0"), exited("chief-0", -15, 4.1)),
        f"worker-0 and ps-0 exited with code 0, but chief-0 still needs them: {SERVER}", 1, ("worker-0", "ps-0"),
        {"chief-0": "stopped by tfdist"}, roles=PS,
    ),
    Replay(
        "a ps exits with code 0 on another host, and the chief dies of it",
        (exited("ps-0", 0, 1.0), wrote("chief-0", aborted_by(0), 2.0), exited("chief-0", 1, 2.0), stopped(4.0, "worker-0"), exited("worker-0", -15, 4.1)),
        f"ps-0 exited with code 0 on h3, but chief-0 still needs it: {SERVER}", 1, ("ps-0",),
        {"chief-0": f"exited with code 1 on h1: {CLOSED}", "worker-0": "stopped by tfdist on h2"}, roles=PS,
        hosts={"chief-0": "h1", "worker-0": "h2", "ps-0": "h3"},
    ),
    Replay(
        "a chief fails, and then a ps exits with code 0",
        (wrote("chief-0", traceback("ValueError: bad"), 1.0), exited("chief-0", 1, 1.0), exited("ps-0", 0, 1.5), stopped(4.0, "worker-0"), exited("worker-0", -15, 4.1)),
        "chief-0 exited with code 1: ValueError: bad", 1, ("chief-0",), {"worker-0": "stopped by tfdist"}, roles=PS,
    ),
    Replay(
        "a worker exits with code 0 before the cluster has formed",
        (exited("worker-1", 0, 1.0), (14.0, NotJoined("worker-1", ("worker-0",))), stopped(14.0, "worker-0"), exited("worker-0", -15, 14.1)),
        "worker-1 exited with code 0 before it joined the cluster; worker-0 waits for it", 1, ("worker-1",), {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "SIGKILL without evidence of a lack of memory",
        (exited("worker-0", -9, 1.0),), "worker-0 was killed by SIGKILL (not by tfdist)", 137, ("worker-0",), roles=ONE,
    ),
    Replay(
        "SIGKILL by the kernel, as the cgroup counts",
        (exited("worker-0", -9, 1.0, oom_kills=1),), "worker-0 was killed by SIGKILL: out of memory", 137, ("worker-0",), roles=ONE,
    ),
    Replay(
        "SIGKILL by the kernel, as its log says",
        (exited("worker-0", -9, 1.0, kernel_log=LOG),), f"worker-0 was killed by SIGKILL on h1: out of memory (kernel log: {LOG})", 137,
        ("worker-0",), roles=ONE, hosts={"worker-0": "h1"},
    ),
    Replay(
        "a shell whose program was killed for lack of memory",
        (exited("worker-0", 137, 1.0, oom_kills=1),), "worker-0 exited with code 137 (its program was killed by SIGKILL): out of memory", 137, ("worker-0",), roles=ONE,
    ),
    *(
        Replay(
            f"a shell whose program was killed: {code}",
            (exited("worker-0", code, 1.0),), f"worker-0 exited with code {code} (its program was killed by {name})", code, ("worker-0",), roles=ONE,
        )
        for code, name in ((137, "SIGKILL"), (143, "SIGTERM"), (139, "SIGSEGV"), (134, "SIGABRT"))
    ),
    Replay("a crash", (exited("worker-0", -11, 1.0),), "worker-0 was killed by SIGSEGV", 139, ("worker-0",), roles=ONE),
    Replay("SIGTERM from elsewhere", (exited("worker-0", -15, 1.0),), "worker-0 was killed by SIGTERM (not by tfdist)", 143, ("worker-0",), roles=ONE),
    Replay("an unknown signal", (exited("worker-0", -60, 1.0),), "worker-0 was killed by signal 60", 188, ("worker-0",), roles=ONE),
    Replay("the restart code of TensorFlow's preemption handler", (exited("worker-0", 42, 1.0),), "worker-0 exited with code 42 (restart requested)", 42, ("worker-0",), roles=ONE),
    Replay(
        "a stopped task needed SIGKILL",
        (exited("worker-1", 3, 1.0), stopped(4.0, "worker-0"), exited("worker-0", -9, 9.0)),
        "worker-1 exited with code 3", 3, ("worker-1",), {"worker-0": "stopped by tfdist, with SIGKILL after 5 s"},
    ),
    Replay(
        "a stopped shell ends with 143, and one needed SIGKILL at once",
        (exited("worker-1", 3, 1.0), stopped(4.0, "worker-0", "worker-2"), exited("worker-0", 143, 4.1), exited("worker-2", 137, 4.2)),
        "worker-1 exited with code 3", 3, ("worker-1",), {"worker-0": "stopped by tfdist", "worker-2": "stopped by tfdist, with SIGKILL"}, roles={"worker": 3},
    ),
    Replay(
        "a task that could not be killed after a failure",
        (exited("worker-1", 3, 1.0), stopped(4.0, "worker-0"), stuck("worker-0", 14.0)),
        "worker-1 exited with code 3 on h2", 3, ("worker-1",),
        {"worker-0": "could not be killed on h1 (state D: it waits for rpc_wait_bit_killable)"}, hosts={"worker-0": "h1", "worker-1": "h2"},
    ),
    Replay(
        "a task that could not be killed after Ctrl-C",
        (interrupted(1.0), stopped(1.0, "worker-0"), stuck("worker-0", 14.0, wait="")),
        "interrupted by SIGINT", 130, (), {"worker-0": "could not be killed (state D)"}, roles=ONE, status="interrupted",
    ),
    *(
        Replay(
            f"interrupted by {number.name}",
            (interrupted(1.0, number), stopped(1.0, "worker-0", "worker-1"), exited("worker-0", -15, 1.1), exited("worker-1", 1, 1.2)),
            f"interrupted by {number.name}", code, (), {"worker-0": "stopped by tfdist", "worker-1": "stopped by tfdist (exited with code 1)"}, status="interrupted",
        )
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129))
    ),
    Replay(
        "a scheduler's SIGTERM ends a task before the launcher has read its own",
        (exited("worker-0", -15, 1.0), interrupted(1.0, signal.SIGTERM), stopped(1.0, "worker-1"), exited("worker-1", 143, 1.1)),
        "interrupted by SIGTERM", 143, (), {"worker-1": "stopped by tfdist"}, status="interrupted",
    ),
    Replay(
        "a task was killed by another signal than the one that ended the job",
        (exited("worker-0", -9, 1.0), interrupted(1.2, signal.SIGTERM), stopped(1.2, "worker-1"), exited("worker-1", -15, 1.3)),
        "worker-0 was killed by SIGKILL (not by tfdist)", 137, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "a failure before an interruption",
        (exited("worker-0", 4, 1.0), interrupted(1.5), stopped(1.5, "worker-1"), exited("worker-1", -15, 1.6)),
        "worker-0 exited with code 4", 4, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "a failure before the time limit",
        (wrote("worker-0", traceback("ValueError: bad"), 1.0), exited("worker-0", 1, 1.0), (3.0, TimedOut(3.0)), stopped(3.0, "worker-1"), exited("worker-1", -15, 3.1)),
        "worker-0 exited with code 1: ValueError: bad", 1, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "an exit at the time limit that arrives after it",
        ((3.0, TimedOut(3.0)), stopped(3.0, "worker-0", "worker-1"), exited("worker-0", 1, 2.99), exited("worker-1", -15, 3.1)),
        "stopped after --timeout 3 s", 124, (), {"worker-0": "stopped by tfdist (exited with code 1)", "worker-1": "stopped by tfdist"}, status="timeout",
    ),
    Replay(
        "tasks that exit with code 0 when they are interrupted",
        (interrupted(1.0), stopped(1.0, "worker-0", "worker-1"), exited("worker-0", 0, 1.1), exited("worker-1", 0, 1.1)),
        "interrupted by SIGINT", 130, (), {"worker-0": "stopped by tfdist", "worker-1": "stopped by tfdist"}, status="interrupted",
    ),
    Replay(
        "tasks that were not started in time",
        ((60.0, StartTimedOut(60.0, ("worker-1", "worker-2"))), stopped(60.0, "worker-0"), exited("worker-0", -15, 60.1)),
        "worker-1 and worker-2 not started within --start-timeout 60 s", 75, (), {"worker-0": "stopped by tfdist"}, roles={"worker": 3},
    ),
)  # fmt: skip
