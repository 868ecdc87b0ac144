"""What a running job waits for, in one line. Pure."""

from collections.abc import Iterable

from tfdist.launch.console.job_state import JobState
from tfdist.launch.console.task_state import Activity, TaskState
from tfdist.launch.events import Phase
from tfdist.launch.text import duration, shortened


def waits_for(job: JobState, now: float) -> str:
    """`waiting for worker-1 to connect`; empty if there is nothing to say."""
    texts = (rule(job, now) for rule in (_stop, _failure, _start, _barrier, _connection, _leaders, _training))
    return next((text for text in texts if text), "")


def _stop(job: JobState, now: float) -> str:
    if job.stopped_at is None or not job.running:
        return ""
    return f"stopping {_names(job.running)}, {duration(now - job.stopped_at)}"


def _failure(job: JobState, now: float) -> str:
    if not job.failed or not job.running:
        return ""
    return f"{job.failed} has failed; waiting for {_names(job.running)}, {duration(now - job.failed_at)}"


def _start(job: JobState, now: float) -> str:
    return _waiting((task for task in job.tasks.values() if task.activity == Activity.WAITING), "start")


def _barrier(job: JobState, now: float) -> str:
    if not any(task.activity == Activity.AT_BARRIER for task in job.leading):
        return ""
    missing = (task for task in job.leading if task.running and task.activity != Activity.AT_BARRIER)
    return _waiting(missing, "reach the start barrier")


def _connection(job: JobState, now: float) -> str:
    if not any(task.activity == Phase.CONNECTING for task in job.running):
        return ""
    return _waiting((task for task in job.running if task.in_cluster and not task.connected), "connect")


def _leaders(job: JobState, now: float) -> str:
    done = [task for task in job.leading if task.activity == Activity.DONE]
    leading = [task for task in job.running if task.leads]
    if done and leading:
        return f"{_names(done)} done; waiting for {_names(leading)}"
    return "" if leading else _waiting(job.running, "end")


def _training(job: JobState, now: float) -> str:
    leading = job.leading
    if not leading or any(task.activity != Activity.TRAINING for task in leading):
        return ""
    return f"{leading[0].name} trains" if len(leading) == 1 else f"all {len(leading)} tasks train"


def _waiting(tasks: Iterable[TaskState], verb: str) -> str:
    names = _names(tasks)
    return f"waiting for {names} to {verb}" if names else ""


def _names(tasks: Iterable[TaskState]) -> str:
    return shortened((task.name for task in tasks), most=2)
