"""Failures of tasks, without restarts."""

from lab.faults import faults as f
from lab.faults.jobs import (
    COPIED,
    FUNCTION,
    MIRRORED,
    MULTIWORKER,
    ONE_DEVICE,
    OWN,
    OWN_PLAIN,
    PARAMETER_SERVER,
    PLAIN,
)
from lab.faults.scenario import ANY, ENDLESS, MIDDLE_STEP, Expected, Fault, Job, Moment, Scenario

KILLED, STALLED, PREEMPTED, LOST = 137, 76, 42, 69
W0, W1, CHIEF, PS = "worker-0", "worker-1", "chief-0", "ps-0"
FROZEN = "is stopped (state T: SIGSTOP or a debugger)"
STALL_S = 20
PATIENT = ("--start-timeout", "240")
"""Waits for a template on a busy machine, too, where tasks would be executed after 14 s."""
STALL = ("--stall-timeout", str(STALL_S))


def _killed(job: Job, task: str, moment: Moment = Moment.MIDDLE, fault: Fault = f.SIGKILL) -> Scenario:
    expected = Expected(KILLED, task, f"{task} was killed by SIGKILL (not by tfdist)", detected_s=3.0)
    return Scenario(fault, job, expected, task, moment, steps=MIDDLE_STEP if moment is Moment.END else ENDLESS)


def _raises(job: Job, task: str, moment: Moment = Moment.MIDDLE, fault: Fault = f.EXCEPTION) -> Scenario:
    return _ends(fault, job, task, 1, f"{task} exited with code 1: ValueError: bad data", moment)


def _ends(fault: Fault, job: Job, task: str, code: int, says: str, moment: Moment = Moment.MIDDLE) -> Scenario:
    return Scenario(fault, job, Expected(code, task, says), task, moment, steps=ENDLESS)


def _frozen(job: Job, task: str) -> Scenario:
    return Scenario(f.SIGSTOP, job, Expected(1, task, f"{task} {FROZEN}", detected_s=20.0), task, steps=ENDLESS)


def _sleeps(job: Job, task: str) -> Scenario:
    expected = Expected(STALLED, task, f"no step for {STALL_S} s")
    return Scenario(f.SLEEP, job, expected, task, options=STALL, steps=ENDLESS)


TASK_ROWS: tuple[Scenario, ...] = (
    _killed(ONE_DEVICE, W0, Moment.START),
    _killed(ONE_DEVICE, W0),
    _killed(ONE_DEVICE, W0, Moment.END),
    _killed(MIRRORED, W0),
    _killed(MULTIWORKER, W1, Moment.START),
    _killed(MULTIWORKER, W1),
    _killed(MULTIWORKER, W0),
    _killed(MULTIWORKER, W1, Moment.END),
    _killed(PARAMETER_SERVER, CHIEF),
    _killed(PARAMETER_SERVER, W1),
    _killed(PARAMETER_SERVER, PS, Moment.START),
    _killed(PARAMETER_SERVER, PS),
    _killed(COPIED, W1),
    _killed(FUNCTION, W1),
    _killed(MULTIWORKER, W1, fault=f.SIGKILL_EXECUTED),
    _killed(PARAMETER_SERVER, W1, fault=f.SIGKILL_EXECUTED),
    Scenario(f.TEMPLATE_KILLED, MULTIWORKER, Expected(0), moment=Moment.IMPORT),
    Scenario(f.TEMPLATE_KILLED, MULTIWORKER, Expected(0), options=PATIENT),
    Scenario(f.TEMPLATE_KILLED, PARAMETER_SERVER, Expected(0), moment=Moment.IMPORT),
    Scenario(f.TEMPLATE_FROZEN, MULTIWORKER, Expected(0), moment=Moment.IMPORT),
    _raises(ONE_DEVICE, W0),
    _raises(MIRRORED, W0, Moment.START),
    _raises(MULTIWORKER, W1, Moment.START),
    _raises(MULTIWORKER, W1),
    _raises(PARAMETER_SERVER, CHIEF),
    _raises(FUNCTION, W1),
    _raises(OWN, W1, fault=f.SLOW_END),
    _ends(f.SLOW_END, OWN_PLAIN, W1, 1, "ValueError: bad data"),
    Scenario(
        f.ALIKE, MULTIWORKER, Expected(1, ANY, "both tasks failed alike: ValueError: bad data"), W0, steps=ENDLESS
    ),
    _ends(f.EXIT_0, MULTIWORKER, W1, 1, "worker-1 exited with code 0", Moment.START),
    _ends(f.EXIT_0, MULTIWORKER, W1, 1, "worker-1 exited with code 0 while worker-0 still needed it"),
    _ends(f.EXIT_0, PARAMETER_SERVER, PS, 1, "ps-0 exited with code 0, but chief-0 still needs it"),
    _ends(f.EXIT_0, PARAMETER_SERVER, W1, 1, "worker-1 exited with code 0"),
    _ends(f.EXIT_42, ONE_DEVICE, W0, PREEMPTED, "worker-0 exited with code 42"),
    _ends(f.EXIT_42, MULTIWORKER, W1, PREEMPTED, "worker-1 exited with code 42"),
    _frozen(MULTIWORKER, W1),
    _frozen(PARAMETER_SERVER, W1),
    _frozen(PARAMETER_SERVER, PS),
    _sleeps(ONE_DEVICE, W0),
    _sleeps(MULTIWORKER, W1),
    _sleeps(PARAMETER_SERVER, CHIEF),
    _ends(f.MEMORY_LIMIT, ONE_DEVICE, W0, KILLED, "worker-0 was killed by SIGKILL: out of memory"),
    _ends(f.MEMORY_LIMIT, MULTIWORKER, W1, KILLED, "worker-1 was killed by SIGKILL: out of memory"),
    Scenario(f.PORT_TAKEN, PLAIN, Expected(2, None, "cannot be used"), moment=Moment.BEFORE),
    Scenario(f.LAUNCHER_KILLED, PLAIN, Expected(-9), moment=Moment.START, steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, PLAIN, Expected(-9), steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, PARAMETER_SERVER, Expected(-9), steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, COPIED, Expected(-9), steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, FUNCTION, Expected(-9), steps=ENDLESS),
    _ends(f.BLOCKED_CONSOLE, MULTIWORKER, W1, KILLED, "worker-1 was killed by SIGKILL"),
    Scenario(f.CLOCK_BACK, PLAIN, Expected(0)),
    Scenario(f.CLOCK_BACK, MIRRORED, Expected(0)),
    Scenario(f.CLOCK_BACK, PARAMETER_SERVER, Expected(0)),
    _ends(f.CLOCK_BACK_KILL, PLAIN, W1, KILLED, "worker-1 was killed by SIGKILL"),
    _ends(f.CLOCK_BACK_KILL, PARAMETER_SERVER, CHIEF, KILLED, "chief-0 was killed by SIGKILL"),
)
