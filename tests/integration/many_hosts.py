"""A launcher of many agents on this machine, run as a program: python many_hosts.py HOSTS FROZEN START_TIMEOUT_S.

FROZEN is `none`, or after which message one of the agents is stopped by SIGSTOP: `alive`, `hello`. Prints what happened
as JSON.
"""

import fcntl
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tfdist.launch.agents.connect import connect
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy

SMALL_PIPE = 8192
MOST_PIPES = 3000
FREEZE = str(Path(__file__).with_name("freeze.py"))


def use_up_pipes() -> list[int]:
    """Open pipes until a new one is small, as for users who have many (pipe-user-pages-soft in man 7 pipe)."""
    pipes: list[int] = []
    while len(pipes) < 2 * MOST_PIPES:
        pipes += os.pipe()
        if fcntl.fcntl(pipes[-1], fcntl.F_GETPIPE_SZ) <= SMALL_PIPE:
            break
    return pipes


def main(number: int, frozen: str, start_timeout_s: float) -> dict[str, object]:
    """Connect, then check the hosts as a launch does."""
    pipes = use_up_pipes()
    plain = Host("", "127.0.0.1", python=sys.executable, prefix=("sh", "-c", 'exec "$@"', "stand-in"))
    hosts = [replace(plain, name=f"h{index}") for index in range(number)]
    if frozen != "none":
        hosts[number // 2] = replace(hosts[number // 2], prefix=(sys.executable, FREEZE, frozen))
    machines = dict.fromkeys(hosts, Machine((0,), (), slots=1))
    shape = Shape({"worker": RoleShape(number, computes=True, leads=True, serves=False)}, has_cluster=True)
    job = plan_job(shape, Program(("true",), {}, "/"), machines)
    result: dict[str, object] = {"small_pipes": fcntl.fcntl(pipes[-1], fcntl.F_GETPIPE_SZ) <= SMALL_PIPE, "error": ""}
    started = time.monotonic()
    try:
        with connect(hosts, Policy(start_timeout_s=start_timeout_s)) as fleet:
            result["connected_s"] = time.monotonic() - started
            preflight(job, fleet, needs_tensorflow=False)
            result["ready_s"] = time.monotonic() - started
    except TfdistError as error:
        result["error"] = str(error)
    return {**result, "ended_s": time.monotonic() - started}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))))
