"""Faults of disks, of the run's folder and of checkpoints."""

from lab.faults import disk_faults as d
from lab.faults.jobs import MULTIWORKER, ONE_DEVICE, PARAMETER_SERVER
from lab.faults.restart_rows import RESTARTS, WORKERS
from lab.faults.scenario import SAVED, Expected, Fault, Job, Moment, Scenario
from lab.faults.task_rows import CHIEF, W0

NOT_SAVED = "the trained model could not be saved"


def _killed(fault: Fault, job: Job, task: str, tasks: tuple[str, ...], moment: Moment = Moment.MIDDLE) -> Scenario:
    expected = Expected(0, task, f"{task} was killed by SIGKILL (not by tfdist)", restarts=1, restarted=tasks)
    return Scenario(fault, job, expected, task, moment, restarts=RESTARTS)


def _full(job: Job, task: str) -> Scenario:
    """The training goes on; only its last save is needed."""
    return Scenario(d.CHECKPOINTS_FILL, job, Expected(1, task, NOT_SAVED), options=SAVED)


DISK_ROWS: tuple[Scenario, ...] = (
    Scenario(d.FULL_RUNS, MULTIWORKER, Expected(0), moment=Moment.BEFORE),
    Scenario(d.RUNS_FILL, MULTIWORKER, Expected(0)),
    Scenario(d.RUNS_FILL, ONE_DEVICE, Expected(0), restarts=RESTARTS),
    *(_full(job, task) for job, task in ((ONE_DEVICE, W0), (MULTIWORKER, W0), (PARAMETER_SERVER, CHIEF))),
    Scenario(d.CHECKPOINTS_FULL_FOR_A_WHILE, MULTIWORKER, Expected(0), options=SAVED),
    Scenario(d.READ_ONLY, MULTIWORKER, Expected(2, None, "checkpoints"), moment=Moment.BEFORE, restarts=RESTARTS),
    Scenario(d.BECOMES_READ_ONLY, ONE_DEVICE, Expected(1, W0, NOT_SAVED), options=SAVED),
    _killed(d.CORRUPT, ONE_DEVICE, W0, (W0,)),
    _killed(d.CORRUPT, MULTIWORKER, W0, WORKERS),
    _killed(d.CORRUPT, PARAMETER_SERVER, CHIEF, (CHIEF,)),
    _killed(d.KILL_IN_SAVE, ONE_DEVICE, W0, (W0,), Moment.SAVE),
    _killed(d.KILL_IN_SAVE, MULTIWORKER, W0, WORKERS, Moment.SAVE),
    _killed(d.KILL_IN_SAVE, PARAMETER_SERVER, CHIEF, (CHIEF,), Moment.SAVE),
)
