"""What failed first, in a few words for those who watch. Pure."""

from tfdist.launch.agents.inbox import AgentLost
from tfdist.launch.agents.messages import Exited
from tfdist.launch.diagnosis.history import Freeze, History, NotFinite, NotJoined, ReportedError, Stall
from tfdist.launch.text import shortened


def first_failure(history: History) -> str:
    """`worker-1 failed`; the diagnosis at the end says why, and may find another culprit."""
    for entry in history.entries:
        match entry:
            case ReportedError(task):
                return f"{task} failed"
            case Exited(task, code) if code != 0:
                return f"{task} failed"
            case AgentLost(host):
                return f"lost {host}"
            case NotJoined(task):
                return f"{task} did not join the cluster"
            case Freeze(tasks):
                return f"{shortened(tasks)} stopped by a signal"
            case Stall(timeout_s):
                return f"no step for {timeout_s:g} s"
            case NotFinite(task, step, loss):
                return f"loss of {task} is {loss} at step {step}"
    return "a task has ended too early"
