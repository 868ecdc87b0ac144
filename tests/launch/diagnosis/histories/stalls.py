"""Jobs that took no more steps."""

from tfdist.launch.diagnosis.history import Stall

from . import Happened, Replay, exited, state, stepped, stopped, wrote

TF = "/usr/lib/python3/dist-packages/tensorflow/python/eager/execute.py"
STDLIB = "/usr/lib/python3.11/threading.py"
PROGRAM = "/home/me/train.py"
IN_TENSORFLOW = f"""\
--- 2026-01-01T00:00:00Z process 11, from faulthandler
Thread 0x00007f2 (most recent call first):
  File "{STDLIB}", line 327 in wait
  File "{STDLIB}", line 982 in run

Current thread 0x00007f1 (most recent call first):
  File "{TF}", line 53 in quick_execute
  File "{PROGRAM}", line 30 in train_step
  File "{PROGRAM}", line 40 in <module>
"""
IN_LOAD = f"""\
--- 2026-01-01T00:00:00Z process 12, from faulthandler
Current thread 0x00007f1 (most recent call first):
  File "{STDLIB}", line 327 in wait
  File "{PROGRAM}", line 12 in load
  File "{PROGRAM}", line 40 in <module>
"""
IN_GENERATOR = f"""\
--- 2026-01-01T00:00:00Z process 13, from py-spy
Process 13: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 13 (idle): "MainThread"
    quick_execute ({TF}:53)
    <module> ({PROGRAM}:40)
Thread 14 (idle): "Dummy-1"
    read_image ({PROGRAM}:7)
    generator_py_func (/usr/lib/python3/dist-packages/tensorflow/python/data/ops/from_generator_op.py:300)
"""
AT_BARRIER = """\
--- 2026-01-01T00:00:00Z process 12, from faulthandler
Current thread 0x00007f1 (most recent call first):
  File "/opt/tfdist/launch/events.py", line 82 in wait_at_barrier
  File "/opt/tfdist/models/training/pace.py", line 100 in _train_steps
"""
FROM_PROC = "--- 2026-01-01T00:00:00Z process 12, from /proc\n  main thread python: state S, waits in futex_wait\n"
TWO_HOSTS = {"worker-0": "h1", "worker-1": "h2"}
BOTH = {"worker-0": "stopped by tfdist", "worker-1": "stopped by tfdist"}


def stalled(at: float = 345.0, **cores_used: float) -> Happened:
    used = {task.replace("_", "-"): cores for task, cores in cores_used.items()}
    return at, Stall(300.0, used)


def ended(*tasks: str) -> tuple[Happened, ...]:
    """The launcher stops the job."""
    return (stopped(345.0, *tasks), *(exited(task, -15, 345.5) for task in tasks))


def stacks(task: str, text: str) -> Happened:
    return wrote(task, text, 340.0, "stacks")


WORKERS = ("worker-0", "worker-1")
EQUAL = (stepped("worker-0", 45, 44.0), stepped("worker-1", 45, 44.0))

ROWS = (
    Replay(
        "a worker is outside TensorFlow while the other waits in it",
        (*EQUAL, stacks("worker-0", IN_TENSORFLOW), stacks("worker-1", IN_LOAD), stalled(), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is in load() at /home/me/train.py:12, not in TensorFlow", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "the stacks count more than the steps, which tasks may report at different times",
        (
            stepped("worker-0", 40, 44.0), stepped("worker-1", 45, 44.0),
            stacks("worker-0", IN_TENSORFLOW), stacks("worker-1", IN_LOAD), stalled(), *ended(*WORKERS),
        ),
        "no step for 300 s: worker-1 on h2 is in load() at /home/me/train.py:12, not in TensorFlow", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist on h1"}, hosts=TWO_HOSTS,
    ),
    Replay(
        "a worker waits for its data, which a function of the program loads in a thread of TensorFlow",
        (*EQUAL, stacks("worker-0", IN_TENSORFLOW), stacks("worker-1", IN_GENERATOR), stalled(), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is in read_image() at /home/me/train.py:7, not in TensorFlow", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "a worker that waits at the barrier is not behind",
        (stacks("worker-0", AT_BARRIER), stacks("worker-1", IN_LOAD), stalled(), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is in load() at /home/me/train.py:12, not in TensorFlow", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "two of three workers are outside TensorFlow",
        (
            stacks("worker-0", IN_LOAD), stacks("worker-1", IN_TENSORFLOW), stacks("worker-2", IN_LOAD), stalled(),
            *ended("worker-0", "worker-1", "worker-2"),
        ),
        "no step for 300 s: worker-0 is in load() at /home/me/train.py:12; worker-2 is in load() at "
        "/home/me/train.py:12, not in TensorFlow", 76, ("worker-0", "worker-2"), {"worker-1": "stopped by tfdist"},
        roles={"worker": 3},
    ),
    Replay(
        "workers that wait in TensorFlow may have reported different steps",
        (
            stepped("worker-0", 45, 44.0), stepped("worker-1", 40, 40.0), stacks("worker-0", IN_TENSORFLOW),
            stacks("worker-1", IN_TENSORFLOW), stalled(), *ended(*WORKERS),
        ),
        "no step for 300 s: no task is behind the others (step 45)", 76, (), BOTH,
    ),
    Replay(
        "a worker has taken fewer steps, and not all stacks are known",
        (
            stepped("worker-0", 45, 44.0), stepped("worker-1", 40, 40.0), stepped("worker-2", 45, 44.0),
            stacks("worker-0", IN_TENSORFLOW), stacks("worker-1", FROM_PROC), stalled(),
            *ended("worker-0", "worker-1", "worker-2"),
        ),
        "no step for 300 s: worker-1 is behind (step 40, the others 45)", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist", "worker-2": "stopped by tfdist"}, roles={"worker": 3},
    ),
    Replay(
        "a worker that never reports a step is not behind for that",
        (stepped("worker-0", 45, 44.0), stalled(), *ended(*WORKERS)),
        "no step for 300 s: no task is behind the others (step 45)", 76, (), BOTH,
    ),
    Replay(
        "a worker is suspended",
        (*EQUAL, state("worker-1", "T", "do_signal_stop"), state("worker-0", "S"), stalled(), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is stopped (state T: SIGSTOP or a debugger)", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "a worker waits for a file server",
        (*EQUAL, state("worker-1", "D", "rpc_wait_bit_killable"), state("worker-0", "S"), stalled(), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is in the kernel (state D: waits for rpc_wait_bit_killable)", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "a worker computes while the other is idle",
        (*EQUAL, stacks("worker-1", FROM_PROC), stalled(worker_0=0.02, worker_1=1.03), *ended(*WORKERS)),
        "no step for 300 s: worker-1 is busy (1.0 cores), worker-0 idle", 76, ("worker-1",),
        {"worker-0": "stopped by tfdist"},
    ),
    Replay(
        "nothing shows which worker is behind",
        (*EQUAL, stacks("worker-0", IN_TENSORFLOW), stacks("worker-1", IN_TENSORFLOW), stalled(worker_0=0.0, worker_1=0.0), *ended(*WORKERS)),
        "no step for 300 s: no task is behind the others (step 45)", 76, (), BOTH,
    ),
    Replay(
        "all workers are in the same function",
        (*EQUAL, stacks("worker-0", IN_LOAD), stacks("worker-1", IN_LOAD), stalled(), *ended(*WORKERS)),
        "no step for 300 s: no task is behind the others (step 45)", 76, (), BOTH,
    ),
    Replay(
        "the only task hangs in its program",
        (stepped("worker-0", 3, 4.0), stacks("worker-0", IN_LOAD), stalled(), *ended("worker-0")),
        "no step for 300 s: worker-0 is in load() at /home/me/train.py:12", 76, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "the only task hangs in TensorFlow",
        (stepped("worker-0", 3, 4.0), stacks("worker-0", IN_TENSORFLOW), stalled(), *ended("worker-0")),
        "no step for 300 s: worker-0 is in TensorFlow, called from train_step() at /home/me/train.py:30", 76,
        ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "the only task hangs, and its stacks are unknown",
        (stepped("worker-0", 3, 4.0), stacks("worker-0", FROM_PROC), stalled(), *ended("worker-0")),
        "no step for 300 s: worker-0 hangs", 76, ("worker-0",), roles={"worker": 1},
    ),
    Replay(
        "a server outside TensorFlow only serves, and the chief is behind",
        (
            stepped("chief-0", 3, 4.0), stacks("chief-0", IN_LOAD), stacks("worker-0", IN_TENSORFLOW),
            stacks("ps-0", IN_LOAD), stalled(), *ended("chief-0", "worker-0", "ps-0"),
        ),
        "no step for 300 s: chief-0 is in load() at /home/me/train.py:12, not in TensorFlow", 76, ("chief-0",),
        {"worker-0": "stopped by tfdist", "ps-0": "stopped by tfdist"}, roles={"chief": 1, "worker": 1, "ps": 1},
    ),
    Replay(
        "a task that fails before the job is stopped for a stall is the culprit",
        (*EQUAL, exited("worker-1", 3, 344.0), stalled(), stopped(345.0, "worker-0"), exited("worker-0", -15, 345.5)),
        "worker-1 exited with code 3", 3, ("worker-1",), {"worker-0": "stopped by tfdist"},
    ),
)  # fmt: skip
