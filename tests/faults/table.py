"""The table of scenarios."""

from tests.faults.disk_faults import FULL_RUNS, RUNS_FILL
from tests.faults.faults import (
    AGENT_AND_PARENT,
    AGENT_BELOW_SHELL,
    AGENT_KILLED,
    BLOCKED_CONSOLE,
    CLOCK_BACK,
    CLOCK_BACK_KILL,
    EXCEPTION,
    EXIT_0,
    EXIT_42,
    LAUNCHER_KILLED,
    MEMORY_LIMIT,
    PORT_TAKEN,
    SIGKILL,
    SIGSTOP,
)
from tests.faults.jobs import (
    MIRRORED,
    MULTIWORKER,
    MULTIWORKER_HOSTS,
    ONE_DEVICE,
    PARAMETER_SERVER,
    PLAIN,
    PLAIN_3_HOSTS,
    PLAIN_HOSTS,
)
from tests.faults.network_faults import LAUNCHER_CUT_OFF, LINK_CUT, LINK_PAUSE, LINK_SLOW, TWO_HOSTS_CUT
from tests.faults.scenario import ENDLESS, Expected, Fault, Job, Moment, Scenario

KILLED, LOST = 137, 69
W0, W1, CHIEF, PS = "worker-0", "worker-1", "chief-0", "ps-0"


def _killed(job: Job, task: str, moment: Moment = Moment.MIDDLE, steps: int = ENDLESS) -> Scenario:
    if moment is Moment.END:
        steps = 60
    expected = Expected(KILLED, task, f"{task} was killed by SIGKILL (not by tfdist)", detected_s=3.5)
    return Scenario(SIGKILL, job, expected, task, moment, steps=steps)


def _failing(fault: Fault, job: Job, task: str, code: int, says: str, moment: Moment = Moment.MIDDLE) -> Scenario:
    return Scenario(fault, job, Expected(code, task, says), task, moment, steps=ENDLESS)


def _hosts(fault: Fault, job: Job, expected: Expected, task: str = "", **values: object) -> Scenario:
    return Scenario(fault, job, expected, task, options=("--launcher-timeout", "8"), **values)  # type: ignore[arg-type]


SCENARIOS: tuple[Scenario, ...] = (
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
    *(
        _failing(EXCEPTION, job, task, 1, f"{task} exited with code 1: ValueError: bad data", moment)
        for job, task, moment in (
            (ONE_DEVICE, W0, Moment.MIDDLE),
            (MIRRORED, W0, Moment.START),
            (MULTIWORKER, W1, Moment.START),
            (MULTIWORKER, W1, Moment.MIDDLE),
            (PARAMETER_SERVER, CHIEF, Moment.MIDDLE),
        )
    ),
    _failing(EXIT_0, MULTIWORKER, W1, 1, "worker-1 exited with code 0", Moment.START),
    _failing(EXIT_0, MULTIWORKER, W1, 1, "worker-1 exited with code 0 while worker-0 still needed it"),
    _failing(EXIT_0, PARAMETER_SERVER, PS, 1, "ps-0 exited with code 0, but chief-0 still needs it"),
    _failing(EXIT_0, PARAMETER_SERVER, W1, 1, "worker-1 exited with code 0"),
    _failing(EXIT_42, ONE_DEVICE, W0, 42, "worker-0 exited with code 42"),
    _failing(EXIT_42, MULTIWORKER, W1, 42, "worker-1 exited with code 42"),
    _failing(SIGSTOP, MULTIWORKER, W1, 1, "worker-1 is stopped (state T: SIGSTOP or a debugger)"),
    _failing(SIGSTOP, PARAMETER_SERVER, W1, 1, "worker-1 is stopped (state T: SIGSTOP or a debugger)"),
    _failing(SIGSTOP, PARAMETER_SERVER, PS, 1, "ps-0 is stopped (state T: SIGSTOP or a debugger)"),
    _failing(MEMORY_LIMIT, ONE_DEVICE, W0, KILLED, "worker-0 was killed by SIGKILL: out of memory"),
    _failing(MEMORY_LIMIT, MULTIWORKER, W1, KILLED, "worker-1 was killed by SIGKILL: out of memory"),
    Scenario(FULL_RUNS, MULTIWORKER, Expected(0), moment=Moment.BEFORE),
    Scenario(RUNS_FILL, MULTIWORKER, Expected(0)),
    Scenario(PORT_TAKEN, PLAIN, Expected(2, None, "cannot be used"), moment=Moment.BEFORE),
    Scenario(AGENT_KILLED, PLAIN, Expected(LOST, None, "lost the agent"), W1, steps=ENDLESS),
    _hosts(AGENT_KILLED, PLAIN_HOSTS, Expected(LOST, None, "lost the agent on h2"), W1, steps=ENDLESS),
    _hosts(AGENT_BELOW_SHELL, PLAIN_HOSTS, Expected(LOST, None, "lost the agent on h2"), W1, steps=ENDLESS),
    _hosts(AGENT_AND_PARENT, PLAIN_HOSTS, Expected(LOST, None, "lost the agent on h2"), W1, steps=ENDLESS),
    Scenario(LAUNCHER_KILLED, PLAIN, Expected(-9), moment=Moment.START, steps=ENDLESS),
    Scenario(LAUNCHER_KILLED, PLAIN, Expected(-9), steps=ENDLESS),
    Scenario(LAUNCHER_KILLED, PARAMETER_SERVER, Expected(-9), steps=ENDLESS),
    _hosts(LAUNCHER_KILLED, MULTIWORKER_HOSTS, Expected(-9), steps=ENDLESS),
    _hosts(LAUNCHER_CUT_OFF, MULTIWORKER_HOSTS, Expected(LOST, None, "lost the agent on h2"), steps=ENDLESS),
    _hosts(LINK_CUT, MULTIWORKER_HOSTS, Expected(LOST, None, "lost the agent on h2"), steps=ENDLESS),
    _hosts(LINK_CUT, PLAIN_HOSTS, Expected(LOST, None, "lost the agent on h2"), steps=ENDLESS),
    _hosts(TWO_HOSTS_CUT, PLAIN_3_HOSTS, Expected(LOST, None, "lost the agents on h2 and h3"), steps=ENDLESS),
    _hosts(LINK_PAUSE, MULTIWORKER_HOSTS, Expected(0)),
    _hosts(LINK_SLOW, MULTIWORKER_HOSTS, Expected(0)),
    Scenario(BLOCKED_CONSOLE, MULTIWORKER, Expected(KILLED, W1, "worker-1 was killed by SIGKILL"), W1, steps=ENDLESS),
    Scenario(CLOCK_BACK, MULTIWORKER, Expected(0)),
    Scenario(CLOCK_BACK_KILL, MULTIWORKER, Expected(KILLED, W1, "worker-1 was killed by SIGKILL"), W1, steps=ENDLESS),
)
