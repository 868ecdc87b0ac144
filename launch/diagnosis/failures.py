"""The tasks of a job that failed by themselves. Pure."""

from dataclasses import dataclass

from tfdist.launch.agents.messages import Exited
from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.endings import describe_ending, exit_code
from tfdist.launch.diagnosis.evidence import ErrorText, is_peer_failure, last_lines, reported
from tfdist.launch.errors import ExitCode


@dataclass(frozen=True)
class Diagnosis:
    """Who caused the failure."""

    reason: str
    exit_code: int
    culprits: tuple[str, ...] = ()
    """The tasks that the reason names, the first one first; empty if a host is to blame."""
    not_restarted: str = ""
    """Why a restart would not help; empty if it may."""


@dataclass(frozen=True)
class Failure:
    """A failure that no other task caused, according to its log."""

    task: str
    time: float
    ending: str
    """`exited with code 1 on h2`"""
    raised: ErrorText | None
    code: int
    last_line: str

    @property
    def sentence(self) -> str:
        """`worker-1 exited with code 1: ValueError: bad data`."""
        return f"{self.task} {self.ending}" + (f": {self.raised.headline}" if self.raised else "")

    @property
    def words(self) -> str:
        """The same without the task, in short."""
        return self.raised.headline if self.raised else self.ending.removeprefix("was ")

    @property
    def kind(self) -> tuple[str, int]:
        """Equal for tasks that failed alike."""
        said = "" if self.code == ExitCode.PREEMPTED else self.last_line
        return (self.raised.headline if self.raised else said), self.code


def failures_of(case: Case) -> list[Failure]:
    """The tasks that failed without blaming another one, in the order of their failures."""
    failures = []
    for task in dict.fromkeys([*case.failed_exits, *case.reports]):
        exit = case.failed_exits.get(task)
        if exit is None and task not in case.by_themselves and not is_peer_failure(reported(case.reports[task]).text):
            failures.append(unfinished(case, task, reported(case.reports[task])))
        elif exit is not None and not case.secondary(exit):
            failures.append(failure_of(case, exit, case.exception(task)))
    return sorted(failures, key=lambda failure: failure.time)


def failure_of(case: Case, exit: Exited, raised: ErrorText | None) -> Failure:
    """The failure of a task that has exited."""
    time = min(exit.time, raised.time) if raised is not None else exit.time
    lines = last_lines(exit.task, case.history, raised)
    ending = describe_ending(exit, case.place(exit.task))
    return Failure(exit.task, time, ending, raised, exit_code(exit.code), lines[-1] if lines else "")


def unfinished(case: Case, task: str, raised: ErrorText) -> Failure:
    """The failure of a task that raised an exception, and was stopped by tfdist before it had exited."""
    exit = case.exits.get(task)
    if exit is not None and 0 < exit.code < 128:
        return failure_of(case, exit, raised)
    return Failure(task, raised.time, f"failed{case.place(task)}", raised, ExitCode.FAILED, "")


def single(failure: Failure) -> Diagnosis:
    """The diagnosis that one task is to blame."""
    return Diagnosis(failure.sentence, failure.code, (failure.task,))
