"""`tfdist.run` and `tfdist.check`: a function, or a command, started from Python and notebooks."""

import os
import statistics
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tfdist.cli.check import TIMEOUT_S, check_rows, names
from tfdist.cli.command import command_named, usage_sentence
from tfdist.cli.copied import program_copy
from tfdist.cli.launch import NOT_KEPT, PYTHON_CALL, checked_values
from tfdist.cli.options import refuse_tf_config
from tfdist.cli.run_launch import FinishedJob, RunOptions, console_for, run_job
from tfdist.cli.show.outcome import failure_block, show_outcome
from tfdist.cli.show.output import finish_output, never_block
from tfdist.cli.show.steps import Steps
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.request import Request
from tfdist.launch.agents.inbox import Message, OnMessage, Restarting
from tfdist.launch.agents.messages import Event
from tfdist.launch.cluster import task_order
from tfdist.launch.console.job_state import step_values
from tfdist.launch.console.notebook import in_notebook
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.diagnosis.outcome_lines import lines_of
from tfdist.launch.errors import SIGNALS, ExitCode, TfdistError
from tfdist.launch.function import Runnable, check_call, command_of, folder_of, name_of, with_function
from tfdist.launch.redact import safe_text
from tfdist.launch.text import plain
from tfdist.launch.this_command import carried_out
from tfdist.launch.values import ReturnedValues
from tfdist.models.record import RecordStatus
from tfdist.models.throughput import throughput
from tfdist.strategies.options import option_words, variable_of

if TYPE_CHECKING:
    import pandas as pd

MOST_WINDOWS = 1000
"""Windows of a task that are kept for the throughput of the job."""
_NOT_HERE = (*NOT_KEPT, "command", "requeue")
"""Options of `tfdist launch` that are about its own process, its output or a batch job."""


class RunFailed(RuntimeError):  # noqa: N818 - the run has failed
    """A job of `run` has failed. The text says who failed first and why, what to do, and where the logs are."""

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.outcome)  # as pools of processes send it


@dataclass(frozen=True)
class Result:
    """What a job of `run` has given."""

    values: Mapping[str, Any]
    """What the function returned, by the name of the task, as `worker-0`. Tasks that serve others return nothing."""
    images_per_s: float | None
    """Throughput of the whole job: of the built-in training; of your own program the median that it reported with
    `tfdist.measure`, without the window of the first step. None: it reported none."""
    folder: Path
    """The folder of the run, with its logs."""
    outcome: Outcome = field(repr=False)


def run(
    program: Runnable = (), *, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Result:
    """Run a function or a command as every task of a job, as `tfdist launch` does; returns when the job has ended.

    Args:
        program: a function, or the words of a command. Empty: the built-in training.
        args: of the function.
        kwargs: of the function, too.
        options: those of `tfdist launch`, as in job files: strategy="multiworker", workers=2, hosts=["h1", "h2"],
            copy=True, checkpoint_dir="saved", max_restarts=3, env={"A": "1"}, quiet=True.

    Raises:
        TypeError: there is no such option, or its value is of another type.
        TfdistError: an option is wrong, the function cannot be sent, or hosts cannot run the job; nothing was started.
        RunFailed: the job has failed.
        KeyboardInterrupt: after Ctrl-C, or a notebook's stop button, once the tasks have ended.
    """
    check_call("tfdist.run", program, args, kwargs)
    returned, rates = ReturnedValues(), _Rates()
    with _short_traceback():
        job = _run(program, args, kwargs, options, {"values": returned.note, "throughput": rates.note})
    outcome, record = job.outcome, job.record
    if outcome.status is Status.INTERRUPTED:
        _raise_signal(outcome.exit_code)
    if outcome.status is not Status.OK:
        raise RunFailed(plain(failure_block(outcome.reason, lines_of(outcome))), outcome)
    if record is not None and record.status is not RecordStatus.OK:
        raise RunFailed(plain(f"tfdist: {record.reason}\n  logs: {outcome.run_dir}"), outcome)
    values = returned.values()
    if returned.problems:
        problems = "; ".join(f"{task}: {problem}" for task, problem in returned.problems.items())
        raise RunFailed(plain(safe_text(f"tfdist: what a task returned cannot be read: {problems}")), outcome)
    show_outcome(outcome, record, quiet=job.options.lines.quiet, json=False)
    values = {task: values[task] for task in sorted(values, key=task_order)}
    return Result(values, rates.of_job(job), job.run_dir.path.absolute(), outcome)


def _run(
    program: Runnable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    listeners: Mapping[str, OnMessage],
) -> FinishedJob:
    """Run the job to its end."""
    command = command_named("launch")
    words = _words(command, options)
    if run_words := command_of(program):
        words += ["--", *run_words]
    finished: list[FinishedJob] = []

    def act(request: Request, selection: HostSelection, how: RunOptions) -> None:
        if callable(program):
            with Steps(sys.stderr, quiet=how.lines.quiet) as steps:
                steps.show(f"packing {name_of(program)}")
                request = replace(request, copy=with_function(program, args, kwargs, request.copy))
        job = run_job(request, selection, how, console_for, listeners)
        assert job is not None  # not a dry run
        finished.append(job)

    with carried_out(["tfdist.run", *words]), _streams():
        try:
            context = command.make_context("launch", list(words))
            for name in _NOT_HERE:
                if name not in ("command", "config", "set") and context.params.get(name):
                    raise TfdistError(f"{variable_of(name)}: it is for the command line; unset it for tfdist.run")
            context.meta[PYTHON_CALL] = act
            command.invoke(context)
        except typer.TyperException as error:
            raise TfdistError(usage_sentence(error, ["launch", *words])) from None
    return finished[0]


def check(
    program: Runnable,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    strategy: Sequence[str] = (),
    timeout_s: float | None = None,
    copy: str | bool = False,
    quiet: bool = False,
) -> "pd.DataFrame":
    """Run a function or a command for a few steps under each strategy, as `tfdist check` does, on this machine.

    Args:
        program: a function, or the words of a command.
        args: of the function.
        kwargs: of the function, too.
        strategy: only these.
        timeout_s: limit for the first steps of a strategy. None: 60.
        copy: run in a copy of this folder, or of the named one.
        quiet: show no progress.

    Returns:
        A row for each strategy: check (its name), verdict (ok, warning or failed), text, and fix.

    Raises:
        TypeError: the program is neither.
        TfdistError: an argument is wrong, or the program cannot be started or sent.
        KeyboardInterrupt: after Ctrl-C, once all programs have ended.
    """
    import pandas as pd

    from tfdist.bench.check import plan_check
    from tfdist.launch.machine import local_machines

    check_call("tfdist.check", program, args, kwargs)
    if not program:
        raise TypeError("tfdist.check: no program: give a function, or the words of a command")
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    if not isinstance(limit_s, int | float) or not 0 < limit_s < inf:
        raise TypeError(f"tfdist.check: timeout_s is {timeout_s!r}: give a positive number of seconds")
    refuse_tf_config()
    with _short_traceback(), _streams():
        copied = program_copy(folder_of(copy), own=True, quiet=quiet)
        if callable(program):
            copied = with_function(program, args, kwargs, copied)
        strategies = names([strategy] if isinstance(strategy, str) else strategy)
        plan = plan_check(command_of(program), strategies, local_machines(), copied)
        report = check_rows(plan, limit_s, quiet=quiet)
        if report.code:
            typer.echo(f"logs: {report.folder}", err=True)
    _raise_signal(report.code)
    rows: pd.DataFrame = pd.DataFrame(map(asdict, report.rows), columns=["check", "verdict", "text", "fix"])
    return rows


def _raise_signal(code: int) -> None:
    """Do what a signal does that has ended a job or a check, if its exit code is that of one."""
    if code > SIGNALS:
        raise KeyboardInterrupt if code == ExitCode.INTERRUPTED else SystemExit(code)


def _words(command: Any, options: Mapping[str, Any]) -> list[str]:
    """The words of `tfdist launch` for these options.

    Raises:
        TypeError: one is wrong.
    """
    for name in _NOT_HERE:
        if name in options:
            fix = "give its keys as options" if name in ("set", "config") else "omit it"
            raise TypeError(f"tfdist.run: {name} is an option of the command line alone; {fix}")
    params = {param.name: param for param in command.params if param.name not in _NOT_HERE}
    given = {name: _plain_value(name, value, params.get(name)) for name, value in options.items()}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        values = checked_values(given, list(params.values()))
    except TypeError as error:
        raise TypeError(f"tfdist.run: {error}") from None
    words: list[str] = []
    for name, value in values.items():
        param = params.get(name)
        if value is False and param is not None and not param.secondary_opts:  # there is no --no-NAME
            continue
        words += option_words(name, value)
    return words


def _plain_value(name: str, value: Any, param: Any) -> Any:
    """The value as in a job file: paths are strings, and one string is a list where a list is wanted."""
    if name == "copy":
        return folder_of(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, tuple):
        value = list(value)
    wants_list = param is not None and param.type_descriptor.annotation == list[str]
    return [value] if wants_list and isinstance(value, str) else value


_printing = threading.Lock()
_printers = 0
"""Number of calls that print now, in all threads."""


@contextmanager
def _streams() -> Iterator[None]:
    """Print without ever blocking, as commands do; a notebook's output is no file."""
    global _printers
    with _printing:
        _printers += 1
        if _printers == 1 and not in_notebook():
            never_block()
    try:
        yield
    finally:
        with _printing:
            _printers -= 1
            if not _printers:
                finish_output()


@contextmanager
def _short_traceback() -> Iterator[None]:
    """Raise without the calls in between, which say nothing to a user."""
    try:
        yield
    except TfdistError as error:
        if error.exit_code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt from None
        cause = error.__cause__
        while isinstance(cause, TfdistError):  # the same sentence, without where its values came from
            cause = cause.__cause__
        raise error.with_traceback(None) from cause


class _Rates:
    """The throughput that tasks have reported."""

    def __init__(self) -> None:
        self.by_task: dict[str, deque[float]] = {}
        """Images/s of the last windows, as each task knows them of the whole job; without that of the first step."""

    def note(self, message: Message) -> None:
        """Take note of a window, or of a restart."""
        if isinstance(message, Restarting):
            for task in message.tasks:
                self.by_task.pop(task, None)
        elif isinstance(message, Event) and message.event.get("event") == "step":
            rate = step_values(message.event)[2]
            if message.task not in self.by_task:
                self.by_task[message.task] = deque(maxlen=MOST_WINDOWS)
            elif rate is not None:
                self.by_task[message.task].append(rate)

    def of_job(self, job: FinishedJob) -> float | None:
        """`Result.images_per_s`."""
        if job.record is not None:
            return throughput(job.record) if all(rank.windows for rank in job.record.ranks) else None
        planned = job.planned.job
        medians = [statistics.median(rates) for task in planned.leading if (rates := self.by_task.get(task))]
        if not medians:
            return None
        apart = all(plan.port is None for plan in planned.plans)  # tasks without a cluster train independently
        return sum(medians) if apart else medians[0]
