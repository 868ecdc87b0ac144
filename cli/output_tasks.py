"""The value of --output: whose lines are printed."""

from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Job
from tfdist.launch.text import did_you_mean

ALL, NONE = "all", "none"


def output_tasks(text: str, job: Job) -> frozenset[str] | None:
    """The tasks that a comma-separated list of tasks and roles names; None: all.

    Raises:
        TfdistError: the job has no such task or role.
    """
    tasks = [plan.task.name for plan in job.plans]
    roles = list(dict.fromkeys(plan.task.role for plan in job.plans))
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        if entry not in (ALL, NONE, *roles, *tasks):
            fix = did_you_mean(entry, (ALL, NONE, *roles, *tasks), most=8)
            raise TfdistError(f"--output {text or repr(text)}: no task or role {entry!r}; {fix}")
    if ALL in entries:
        return None
    return frozenset(plan.task.name for plan in job.plans if {plan.task.role, plan.task.name} & set(entries))
