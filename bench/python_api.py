"""`tfdist.bench.run`: a bench started from Python."""

import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdist.bench.options import BenchOptions
    from tfdist.bench.runner import RunnerHooks
    from tfdist.launch.function import Runnable
    from tfdist.launch.machine import Machines


def run(
    suite: "str | Path | Callable[..., Any] | None" = None,
    *,
    program: "Runnable" = (),
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    copy: str | bool = False,
    arms: Sequence[str] = (),
    rounds: int | None = None,
    turn_s: float | None = None,
    incarnations: int | None = None,
    budget_s: float | None = None,
    seed: int | None = None,
    all: bool = False,
    explain: bool = False,
    out: str | Path | None = None,
    quiet: bool = True,
) -> Path:
    """Measure a suite on this machine and write its report, as `tfdist bench` does.

    Args:
        suite: a built-in one, as `cpu` or `convergence`, or a .toml file. None: gpu on a machine with GPUs, else cpu.
            Or a function, in place of `program`.
        program: a function that calls `tfdist.measure`, or the words of a command that does, to be measured in place
            of the built-in training.
        args: of the function.
        kwargs: of the function, too.
        copy: run in a copy of this folder, or of the named one.
        arms: only those whose name matches one of these patterns, as `mirrored/*`.
        rounds: turns of each arm; None here and below: the suite's value.
        turn_s: timed seconds of a turn.
        incarnations: starts of each arm's processes.
        budget_s: as many rounds as fit into this time.
        seed: of the order of turns.
        all: measure every arm to the end, slower ones, too.
        explain: say where time is lost; adds the arms that this needs.
        out: a new folder. None: bench_results/TIME-SUITE.
        quiet: print no progress.

    Returns:
        The folder, for `load`. An arm that failed has a row with its reason.

    Raises:
        TypeError: the program is neither a function nor words, or its arguments do not fit.
        TfdistError: an argument or the suite is wrong, and no process was started; or the first arm that runs measures
            no step, or a result cannot be saved.
        KeyboardInterrupt: after Ctrl-C. The turns so far are in the folder, and reported.
    """
    from tfdist.bench.options import BenchOptions
    from tfdist.bench.progress import progress_on
    from tfdist.bench.runner import RunnerHooks
    from tfdist.launch.function import check_call, command_of, folder_of, with_function
    from tfdist.launch.machine import local_machines
    from tfdist.launch.packing import pack

    if callable(suite):
        program, suite = suite, None
    check_call("tfdist.bench.run", program, args, kwargs)
    folder = folder_of(copy)
    copied = None if folder is None else pack(folder)
    if callable(program):
        copied = with_function(program, args, kwargs, copied)
    options = BenchOptions(
        suite=None if suite is None else str(suite),
        rounds=rounds,
        patterns=tuple(arms),
        out=None if out is None else Path(out),
        seed=seed,
        all=all,
        command="tfdist.bench.run",
        turn_s=turn_s,
        incarnations=incarnations,
        budget_s=budget_s,
        program=command_of(program),
        copy=copied,
        explain=explain,
    )
    with progress_on(sys.stdout, quiet) as progress:
        return run_options(options, local_machines(), RunnerHooks(progress))


def run_options(options: "BenchOptions", machines: "Machines", hooks: "RunnerHooks") -> Path:
    """Run a bench on these machines and write its report; returns its folder, and raises, as `run`."""
    from tfdist.bench.report.write import report_bench
    from tfdist.bench.run_session import run_session
    from tfdist.bench.session import prepare

    session = prepare(options, machines)
    code = run_session(session, hooks)
    _, warning = report_bench(session.root, session.bench.machine)
    if warning:
        warnings.warn(warning, stacklevel=3)
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    return session.root
