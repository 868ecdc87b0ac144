"""What tasks wrote in real failures with TensorFlow 2.21."""


def traceback(error: str, *, cause: str = "") -> str:
    """A traceback, with the exception that led to it if there is one."""
    frames = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    step()\n'
    joint = "\nThe above exception was the direct cause of the following exception:\n\n"
    return (f"{frames}{cause}\n{joint}" if cause else "") + frames + error


def graph_error(kind: str, message: str) -> str:
    """The last line of a traceback out of a tf.function, and the lines that follow."""
    return (
        f"tensorflow.python.framework.errors_impl.{kind}: Graph execution error:\n\n"
        "Detected at node CollectiveReduceV2 defined at (most recent call last):\n"
        '  File "train.py", line 7, in <module>\n\n'
        f"{message}\n\t [[{{{{node CollectiveReduceV2}}}}]] [Op:__inference_step_33]"
    )


def _remote(role: str, index: int, said: str, call: str) -> str:
    return (
        f"Additional GRPC error information from remote target /job:{role}/replica:0/task:{index} while calling "
        f'/tensorflow.{call}:\n:UNKNOWN:Error received from peer  {{grpc_status:14, grpc_message:"{said}"}}'
    )


RESTART = "The error could be from a previous operation. Restart your program to reset."


def aborted_by(index: int, said: str = "Socket closed") -> str:
    """The end of a worker whose peer has died."""
    message = (
        f"Collective ops is aborted by: {said}\n{_remote('worker', index, said, 'WorkerService/RecvBuf')}\n{RESTART}"
    )
    return traceback(graph_error("UnavailableError", message))


def unhealthy(index: int) -> str:
    """The end of a worker whose peer has sent nothing for 10 s."""
    message = (
        f"Collective ops is aborted by: Error reported from /job:worker/task:{index}: The following tasks are "
        f"unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:{index}\nThe tasks have crashed.\n{RESTART}"
    )
    return traceback(graph_error("UnavailableError", message))


NO_COORDINATOR = traceback(
    graph_error(
        "DeadlineExceededError",
        "Collective ops is aborted by: Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/Heartbeat\n" + RESTART,
    )
)
"""The end of a worker when worker-0, which runs the coordination service, is silent."""
NO_PS = traceback(
    "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n\n"
    "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.2:39135: recvmsg:Connection reset by peer\n"
    + _remote("ps", 0, "failed to connect to all addresses", "eager.EagerService/RunComponentFunction")
)
"""The end of a chief whose ps has died."""
START_UP = (
    "I0000 00:00:1795281669.308559    9108 cudart_stub.cc:31] Could not find cuda drivers on your machine.\n"
    "E0000 00:00:1795281670.343126    9108 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error\n"
)
TEARDOWN = (
    "E0000 00:00:1795281682.379421    9235 base_collective_executor.cc:252] BaseCollectiveExecutor::StartAbort "
    "UNAVAILABLE: Error reported from /job:worker/task:1: The following tasks are unhealthy (stopped sending heartbeats):\n"
    "/job:worker/replica:0/task:1\n"
)
"""What C++ threads of a process log, whatever ends it."""
ABORT = (
    "F0000 00:00:1795281682.379500    9235 coordination_service_agent.cc:302] Terminating: "
    "Error reported from /job:worker/task:1: stopped sending heartbeats\n"
)
SHAPES = traceback(
    graph_error(
        "InvalidArgumentError",
        "Collective ops is aborted by: Shape mismatch in the collective instance 100. Op at device "
        "/job:worker/replica:0/task:0/device:CPU:0 expected shape [5] but another member in the group expected shape [10].",
    )
)
CLOUD = traceback(
    "google.api_core.exceptions.ServiceUnavailable: 503 failed to connect to all addresses; "
    "last error: UNKNOWN: ipv4:10.0.0.9:443: Failed to connect to remote host: Connection refused"
)
"""A cloud client of the user's program."""
