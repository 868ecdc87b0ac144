"""Faults of hosts, agents and links, with and without restarts."""

from lab.faults import faults as f
from lab.faults import network_faults as n
from lab.faults.jobs import (
    COPIED_HOSTS,
    FUNCTION_HOSTS,
    MULTIWORKER_3_HOSTS,
    MULTIWORKER_HOSTS,
    PARAMETER_SERVER_HOSTS,
    PLAIN,
    PLAIN_3_HOSTS,
    PLAIN_HOSTS,
)
from lab.faults.restart_rows import RESTARTS
from lab.faults.scenario import ANY, ENDLESS, Expected, Fault, Job, Scenario
from lab.faults.task_rows import LOST, W1

LIMIT = ("--launcher-timeout", "8")
"""Tasks on a host that is cut off end before the launcher's end is measured."""
LOST_H2 = "lost the agent on h2"


def _lost(fault: Fault, job: Job, task: str = "", says: str = LOST_H2) -> Scenario:
    options = LIMIT if job.hosts else ()
    return Scenario(fault, job, Expected(LOST, None, says), task, options=options, steps=ENDLESS)


def _elastic(fault: Fault, job: Job, says: str, task: str = "", fewest: int = 1) -> Scenario:
    options = (*LIMIT, "--min-workers", str(fewest))
    expected = Expected(0, None, says, restarts=1)
    return Scenario(fault, job, expected, task, options=options, restarts=RESTARTS, variant="elastic")


HOST_ROWS: tuple[Scenario, ...] = (
    _lost(f.AGENT_KILLED, PLAIN, W1, "lost the agent"),
    _lost(f.AGENT_KILLED, PLAIN_HOSTS, W1),
    _lost(f.AGENT_KILLED, MULTIWORKER_HOSTS, W1),
    _lost(f.AGENT_KILLED, COPIED_HOSTS, W1),
    _lost(f.AGENT_KILLED, FUNCTION_HOSTS, W1),
    Scenario(
        f.AGENT_KILLED, MULTIWORKER_HOSTS, Expected(0, None, LOST_H2, restarts=1), W1, options=LIMIT, restarts=RESTARTS
    ),
    _lost(f.AGENT_BELOW_SHELL, PLAIN_HOSTS, W1),
    Scenario(f.LAUNCHER_KILLED, MULTIWORKER_HOSTS, Expected(-9), options=LIMIT, steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, COPIED_HOSTS, Expected(-9), options=LIMIT, steps=ENDLESS),
    Scenario(f.LAUNCHER_KILLED, FUNCTION_HOSTS, Expected(-9), options=LIMIT, steps=ENDLESS),
    _lost(n.LAUNCHER_CUT_OFF, MULTIWORKER_HOSTS),
    _elastic(n.LAUNCHER_CUT_OFF, MULTIWORKER_HOSTS, LOST_H2),
    _lost(n.LINK_CUT, PLAIN_HOSTS),
    _lost(n.LINK_CUT, MULTIWORKER_HOSTS),
    _lost(n.LINK_CUT, PARAMETER_SERVER_HOSTS),
    _elastic(n.LINK_CUT, MULTIWORKER_HOSTS, LOST_H2),
    _elastic(n.LINK_CUT, MULTIWORKER_3_HOSTS, LOST_H2, fewest=2),
    _elastic(n.LINK_CUT, PARAMETER_SERVER_HOSTS, LOST_H2),
    _lost(n.TWO_HOSTS_CUT, PLAIN_3_HOSTS, says="lost the agents on h"),
    _elastic(n.TWO_HOSTS_CUT, MULTIWORKER_3_HOSTS, "lost the agents on h"),
    Scenario(n.LINK_PAUSE, PLAIN_HOSTS, Expected(0)),
    Scenario(n.LINK_PAUSE, MULTIWORKER_HOSTS, Expected(0, ANY, restarts=None), restarts=RESTARTS),
    Scenario(n.LINK_PAUSE, PARAMETER_SERVER_HOSTS, Expected(0)),
    Scenario(n.LINK_SLOW, MULTIWORKER_HOSTS, Expected(0)),
)
