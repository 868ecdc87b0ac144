"""Every task that failed blames another one."""

from . import Replay, exited, lost, reported, state, stepped, stopped, wrote
from .texts import NO_COORDINATOR, NO_PS, TEARDOWN, aborted_by, traceback, unhealthy

HEARTBEATS = (
    "UnavailableError: Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are "
    "unhealthy (stopped sending heartbeats):"
)
CLOSED = "UnavailableError: Collective ops is aborted by: Socket closed"
DEADLINE = "DeadlineExceededError: Collective ops is aborted by: Deadline Exceeded"
TWO_HOSTS = {"worker-0": "h1", "worker-1": "h2"}
THREE_HOSTS = {**TWO_HOSTS, "worker-2": "h3"}
FROZEN = (wrote("worker-0", unhealthy(1), 9.0), exited("worker-0", 1, 9.3))

ROWS = (
    Replay(
        "a host loses power: TensorFlow notices it before the launcher does",
        (*FROZEN, lost("h2", 0.5)),
        "lost the agent on h2: no message for 10 s", 69, (),
        {"worker-0": f"exited with code 1 on h1: {HEARTBEATS}", "worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a host is lost before anything else happens",
        (lost("h2", 1.0, "Connection to h2 closed by remote host."), stopped(3.0, "worker-0"), exited("worker-0", -15, 3.1)),
        "lost the agent on h2: Connection to h2 closed by remote host.", 69, (),
        {"worker-0": "stopped by tfdist on h1", "worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "an agent receives SIGTERM, as when its host shuts down, and stops its tasks",
        (lost("h2", 1.0, "received SIGTERM"), exited("worker-1", -15, 0.99, arrives=1.1), stopped(3.0, "worker-0"), exited("worker-0", -15, 3.1)),
        "lost the agent on h2: received SIGTERM", 69, (),
        {"worker-0": "stopped by tfdist on h1", "worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "several hosts are lost at once",
        (lost("h2", 1.0), lost("h3", 1.7), stopped(4.0, "worker-0"), exited("worker-0", -15, 4.1)),
        "lost the agents on h2 and h3: no message for 10 s", 69, (),
        {"worker-0": "stopped by tfdist on h1", "worker-1": "was lost with h2", "worker-2": "was lost with h3"},
        roles={"worker": 3}, hosts=THREE_HOSTS,
    ),
    Replay(
        "several hosts are lost for different reasons",
        (lost("h2", 1.0, "timeout"), lost("h3", 1.5, "its stream ended")),
        "lost the agents on h2 (timeout) and h3 (its stream ended)", 69, (),
        {"worker-1": "was lost with h2", "worker-2": "was lost with h3"}, roles={"worker": 3}, hosts=THREE_HOSTS,
    ),
    Replay(
        "a host whose loss the launcher learns of after the stop",
        (*FROZEN, stopped(21.0, "worker-1"), lost("h2", 0.5)),
        "lost the agent on h2: no message for 10 s", 69, (),
        {"worker-0": f"exited with code 1 on h1: {HEARTBEATS}", "worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a task fails by itself before another host is lost",
        (exited("worker-0", 3, 1.0), lost("h2", 2.5)),
        "worker-0 exited with code 3 on h1", 3, ("worker-0",), {"worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a host is lost before a task fails by itself",
        (lost("h2", 0.5), exited("worker-0", 3, 8.0)),
        "lost the agent on h2: no message for 10 s", 69, (),
        {"worker-0": "exited with code 3 on h1", "worker-1": "was lost with h2"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a worker is stopped by SIGSTOP",
        (*FROZEN, state("worker-1", "T", "do_signal_stop"), stopped(12.3, "worker-1"), exited("worker-1", -9, 17.3)),
        "worker-1 is stopped (state T: SIGSTOP or a debugger)", 1, ("worker-1",), {"worker-0": f"exited with code 1: {HEARTBEATS}"},
    ),
    Replay(
        "a worker is stopped by a debugger on another host",
        (*FROZEN, state("worker-1", "t", "ptrace_stop"), stopped(12.3, "worker-1"), exited("worker-1", -9, 17.3)),
        "worker-1 on h2 is stopped (state T: SIGSTOP or a debugger)", 1, ("worker-1",),
        {"worker-0": f"exited with code 1 on h1: {HEARTBEATS}"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "the worker with the coordination service is stopped by SIGSTOP",
        (wrote("worker-1", NO_COORDINATOR, 9.0), exited("worker-1", 1, 9.3), state("worker-0", "T"), stopped(12.3, "worker-0"), exited("worker-0", -9, 17.3)),
        "worker-0 is stopped (state T: SIGSTOP or a debugger)", 1, ("worker-0",), {"worker-1": f"exited with code 1: {DEADLINE}"},
    ),
    Replay(
        "the worker with the coordination service does not answer",
        (wrote("worker-1", NO_COORDINATOR, 9.0), exited("worker-1", 1, 9.3), state("worker-0", "S"), stopped(21.3, "worker-0"), exited("worker-0", -15, 21.4)),
        "worker-0 no longer answered worker-1", 1, ("worker-0",), {"worker-1": f"exited with code 1: {DEADLINE}"},
    ),
    Replay(
        "a worker that the others name",
        (wrote("worker-0", unhealthy(1), 9.0), exited("worker-0", 1, 9.3), wrote("worker-2", unhealthy(1), 9.1), exited("worker-2", 1, 9.5),
         stopped(21.3, "worker-1"), exited("worker-1", -15, 21.4)),
        "worker-1 on h2 no longer answered worker-0 and worker-2", 1, ("worker-1",),
        {"worker-0": f"exited with code 1 on h1: {HEARTBEATS}", "worker-2": f"exited with code 1 on h3: {HEARTBEATS}"},
        roles={"worker": 3}, hosts=THREE_HOSTS,
    ),
    Replay(
        "a worker in uninterruptible sleep that another one names",
        (*FROZEN, state("worker-1", "D", "nfs_wait_bit_killable"), stopped(21.3, "worker-1"), exited("worker-1", -15, 21.4)),
        "worker-1 no longer answered worker-0 (state D: it waits for nfs_wait_bit_killable)", 1, ("worker-1",), {"worker-0": f"exited with code 1: {HEARTBEATS}"},
    ),
    Replay(
        "most of the others name the same worker; a chain of failures names victims, too",
        (wrote("worker-0", aborted_by(3), 9.0), exited("worker-0", 1, 9.3), wrote("worker-1", aborted_by(0), 9.2), exited("worker-1", 1, 9.5),
         wrote("worker-2", aborted_by(3), 9.1), exited("worker-2", 1, 9.4), stopped(21.0, "worker-3", "worker-4"), exited("worker-3", -15, 21.1), exited("worker-4", -15, 21.1)),
        "worker-3 no longer answered worker-0 and worker-2", 1, ("worker-3",),
        {**{f"worker-{index}": f"exited with code 1: {CLOSED}" for index in range(3)}, "worker-4": "stopped by tfdist"}, roles={"worker": 5},
    ),
    Replay(
        "a majority is right about the worker that does not answer",
        (*(entry for index in (0, 1, 2) for entry in (wrote(f"worker-{index}", unhealthy(4 if index else 3), 9.0), exited(f"worker-{index}", 1, 9.0 + index / 10))),
         stopped(21.0, "worker-3", "worker-4"), exited("worker-3", -15, 21.1), exited("worker-4", -15, 21.1)),
        "worker-4 no longer answered worker-1 and worker-2", 1, ("worker-4",),
        {"worker-0": "exited with code 1: " + HEARTBEATS.replace("task:1", "task:3"),
         **{f"worker-{index}": "exited with code 1: " + HEARTBEATS.replace("task:1", "task:4") for index in (1, 2)}, "worker-3": "stopped by tfdist"},
        roles={"worker": 5},
    ),
    Replay(
        "a peer that wrote nothing for long while the others did",
        (stepped("worker-0", 9, 2.0), stepped("worker-1", 9, 2.0), stepped("worker-2", 9, 2.0), stepped("worker-0", 40, 20.0), stepped("worker-2", 40, 20.0),
         wrote("worker-0", aborted_by(2), 21.0), exited("worker-0", 1, 21.0), wrote("worker-2", aborted_by(0), 21.2), exited("worker-2", 1, 21.2),
         stopped(33.0, "worker-1"), exited("worker-1", -15, 33.1)),
        "worker-1 wrote no step or output for 19 s before worker-0 failed", 1, ("worker-1",),
        {"worker-0": f"exited with code 1: {CLOSED}", "worker-2": f"exited with code 1: {CLOSED}"}, roles={"worker": 3},
    ),
    Replay(
        "all tasks blame each other: the first one is named",
        (wrote("worker-0", aborted_by(1), 3.0), exited("worker-0", 1, 3.0), wrote("worker-1", aborted_by(0), 3.4), exited("worker-1", 1, 3.4)),
        f"worker-0 exited with code 1: {CLOSED}", 1, ("worker-0",), {"worker-1": f"exited with code 1: {CLOSED}"},
    ),
    Replay(
        "all tasks but a silent evaluator blame each other: nobody waits for an evaluator",
        (wrote("evaluator-0", "ready", 0.5), wrote("worker-0", aborted_by(1), 23.0), exited("worker-0", 1, 23.0), wrote("worker-1", aborted_by(0), 23.4),
         exited("worker-1", 1, 23.4), stopped(35.0, "evaluator-0"), exited("evaluator-0", -15, 35.1)),
        f"worker-0 exited with code 1: {CLOSED}", 1, ("worker-0",), {"worker-1": f"exited with code 1: {CLOSED}", "evaluator-0": "stopped by tfdist"},
        roles={"worker": 2, "evaluator": 1},
    ),
    Replay(
        "a task only reports a peer's failure and is then stopped",
        (reported("worker-0", "UnavailableError", "Collective ops is aborted by: Socket closed", 3.0), stopped(15.0, "worker-0", "worker-1"),
         exited("worker-0", -9, 20.0), exited("worker-1", -15, 15.1)),
        "worker-0 failed: UnavailableError: Collective ops is aborted by: Socket closed", 1, ("worker-0",), {"worker-1": "stopped by tfdist"},
    ),
    Replay(
        "a worker exits with code 0 while another one needs it",
        (exited("worker-1", 0, 1.0), wrote("worker-0", aborted_by(1), 2.0), exited("worker-0", 1, 2.0)),
        "worker-1 exited with code 0 while worker-0 still needed it", 1, ("worker-1",), {"worker-0": f"exited with code 1: {CLOSED}"},
    ),
    Replay(
        "a worker exits with code 0, and another one fails by itself",
        (exited("worker-1", 0, 1.0), wrote("worker-0", traceback("ValueError: my own mistake"), 2.0), exited("worker-0", 1, 2.0)),
        "worker-0 exited with code 1: ValueError: my own mistake", 1, ("worker-0",),
    ),
    Replay(
        "an exception after which a stopped task went on is not the cause",
        (wrote("worker-1", traceback("OSError: retry"), 1.0), stepped("worker-1", 3, 2.0), *FROZEN, stopped(21.0, "worker-1"), exited("worker-1", -15, 21.1)),
        "worker-1 no longer answered worker-0", 1, ("worker-1",), {"worker-0": f"exited with code 1: {HEARTBEATS}"},
    ),
    Replay(
        "an exception that SIGTERM caused is not the cause",
        (*FROZEN, stopped(21.0, "worker-1", "worker-2"), wrote("worker-2", traceback("RuntimeError: stopped"), 21.1), exited("worker-2", 1, 21.2), exited("worker-1", -15, 21.1)),
        "worker-1 no longer answered worker-0", 1, ("worker-1",),
        {"worker-0": f"exited with code 1: {HEARTBEATS}", "worker-2": "stopped by tfdist (exited with code 1)"}, roles={"worker": 3},
    ),
    Replay(
        "a KeyboardInterrupt in a stopped task is not the cause",
        (*FROZEN, wrote("worker-2", traceback("KeyboardInterrupt"), 20.0), stopped(21.0, "worker-1", "worker-2"), exited("worker-2", -15, 21.1), exited("worker-1", -15, 21.1)),
        "worker-1 no longer answered worker-0", 1, ("worker-1",),
        {"worker-0": f"exited with code 1: {HEARTBEATS}", "worker-2": "stopped by tfdist"}, roles={"worker": 3},
    ),
    Replay(
        "a culprit without a report whose C++ threads still log",
        (wrote("worker-1", traceback("ValueError: bad data"), 5.0), *FROZEN, wrote("worker-1", TEARDOWN, 10.0), stopped(12.0, "worker-1"), exited("worker-1", -15, 12.1)),
        "worker-1 failed: ValueError: bad data", 1, ("worker-1",), {"worker-0": f"exited with code 1: {HEARTBEATS}"},
    ),
    Replay(
        "a ps does not answer its chief",
        (wrote("chief-0", NO_PS, 9.0), exited("chief-0", 1, 9.3), stopped(21.3, "ps-0", "worker-0"), exited("ps-0", -15, 21.4), exited("worker-0", -15, 21.4)),
        "ps-0 no longer answered chief-0", 1, ("ps-0",),
        {"chief-0": "exited with code 1: UnavailableError: failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.2:39135: recvmsg:Connection reset by peer",
         "worker-0": "stopped by tfdist"},
        roles={"chief": 1, "worker": 1, "ps": 1},
    ),
)  # fmt: skip
