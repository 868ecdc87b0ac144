"""Failures of tasks, with checkpoints and restarts."""

from lab.faults import faults as f
from lab.faults.jobs import (
    COPIED,
    FUNCTION,
    MIRRORED,
    MULTIWORKER,
    ONE_DEVICE,
    PARAMETER_SERVER,
    PARAMETER_SERVER_HOSTS,
)
from lab.faults.scenario import ANY, ENDLESS, STEPS, Expected, Fault, Job, Moment, Scenario
from lab.faults.task_rows import CHIEF, FROZEN, KILLED, PATIENT, PREEMPTED, PS, STALL, STALL_S, W0, W1

RESTARTS = 5
LONG = 1500
"""Steps of a job whose other tasks continue while one is restarted, or noticed to be frozen."""
WORKERS, SERVERS = (W0, W1), (CHIEF, PS)


def _restarted(
    fault: Fault,
    job: Job,
    task: str,
    says: str,
    tasks: tuple[str, ...],
    moment: Moment = Moment.MIDDLE,
    options: tuple[str, ...] = (),
    steps: int = STEPS,
    restarts: int = 1,
) -> Scenario:
    expected = Expected(0, task, says, restarts=restarts, restarted=tasks)
    return Scenario(fault, job, expected, task, moment, options, RESTARTS, steps)


def _killed(
    job: Job,
    task: str,
    tasks: tuple[str, ...],
    moment: Moment = Moment.MIDDLE,
    fault: Fault = f.SIGKILL,
    steps: int = STEPS,
    restarts: int = 1,
    options: tuple[str, ...] = (),
) -> Scenario:
    where = f" on {job.hosts[-1]}" if job.hosts else ""
    says = f"{task} was killed by SIGKILL{where} (not by tfdist)"
    return _restarted(fault, job, task, says, tasks, moment, options, steps, restarts)


RESTART_ROWS: tuple[Scenario, ...] = (
    _killed(ONE_DEVICE, W0, (W0,)),
    _killed(MIRRORED, W0, (W0,)),
    _killed(MULTIWORKER, W1, WORKERS, Moment.START),
    _killed(MULTIWORKER, W1, WORKERS),
    _killed(MULTIWORKER, W0, WORKERS),
    _killed(MULTIWORKER, W1, WORKERS, Moment.END),
    _killed(PARAMETER_SERVER, W1, (W1,)),
    _killed(PARAMETER_SERVER, CHIEF, (CHIEF,)),
    _killed(PARAMETER_SERVER, PS, SERVERS),
    _killed(PARAMETER_SERVER, W1, (W1,), Moment.START),
    _killed(PARAMETER_SERVER, W1, (W1,), fault=f.KILLED_TWICE, steps=LONG, restarts=2),
    _killed(PARAMETER_SERVER_HOSTS, W1, (W1,)),
    _killed(COPIED, W1, WORKERS),
    _killed(FUNCTION, W1, WORKERS),
    _killed(MULTIWORKER, W1, WORKERS, fault=f.SIGKILL_EXECUTED),
    _killed(MULTIWORKER, W1, WORKERS, fault=f.TEMPLATE_THEN_TASK, options=PATIENT),
    _restarted(f.EXCEPTION, MULTIWORKER, W1, "ValueError: bad data", WORKERS),
    _restarted(f.EXIT_0, MULTIWORKER, W1, "worker-1 exited with code 0", WORKERS),
    _restarted(f.EXIT_0, PARAMETER_SERVER, PS, "ps-0 exited with code 0", SERVERS),
    _restarted(f.EXIT_0, PARAMETER_SERVER, W1, "worker-1 exited with code 0", (W1,)),
    _restarted(f.EXIT_42, ONE_DEVICE, W0, "exited with code 42", (W0,), options=("--set", "restart_on=preemption")),
    _restarted(f.SIGSTOP, MULTIWORKER, W1, f"{W1} {FROZEN}", WORKERS),
    _restarted(f.SIGSTOP, PARAMETER_SERVER, PS, f"{PS} {FROZEN}", SERVERS),
    _restarted(f.SIGSTOP, PARAMETER_SERVER, W1, f"{W1} {FROZEN}", (W1,), steps=LONG),
    _restarted(f.SLEEP, MULTIWORKER, W1, f"no step for {STALL_S} s", WORKERS, options=STALL),
    _restarted(f.MEMORY_LIMIT, MULTIWORKER, W1, "out of memory", WORKERS),
    Scenario(
        f.MEMORY_LIMIT, ONE_DEVICE, Expected(KILLED, W0, "out of memory"), W0, Moment.START,
        steps=ENDLESS, restarts=RESTARTS,
    ),
    Scenario(
        f.EXIT_42, MULTIWORKER, Expected(PREEMPTED, W1, "exited with code 42"), W1,
        options=("--set", "restart_on=failure"), steps=ENDLESS, restarts=RESTARTS,
    ),
    Scenario(
        f.ALWAYS, MULTIWORKER, Expected(1, W1, "ValueError: bad data", restarts=2), W1,
        steps=ENDLESS, restarts=RESTARTS,
    ),
    Scenario(
        f.ALWAYS, ONE_DEVICE, Expected(1, W0, "ValueError: bad data", restarts=2), W0, Moment.START,
        steps=ENDLESS, restarts=RESTARTS,
    ),
    Scenario(f.SIGTERM, ONE_DEVICE, Expected(PREEMPTED, None, "interrupted by SIGTERM: saved step"), steps=ENDLESS, restarts=RESTARTS),
    Scenario(f.SIGTERM, MULTIWORKER, Expected(PREEMPTED, None, "interrupted by SIGTERM: saved step"), steps=ENDLESS, restarts=RESTARTS),
    Scenario(f.LAUNCHER_KILLED, MULTIWORKER, Expected(-9), steps=ENDLESS, restarts=RESTARTS),
    _restarted(f.BLOCKED_CONSOLE, MULTIWORKER, W1, "worker-1 was killed by SIGKILL", WORKERS),
    _restarted(f.CLOCK_BACK_KILL, PARAMETER_SERVER, CHIEF, "chief-0 was killed by SIGKILL", (CHIEF,)),
    Scenario(f.CLOCK_BACK, MULTIWORKER, Expected(0, ANY, restarts=None), restarts=RESTARTS),
)  # fmt: skip
