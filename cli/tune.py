"""`tfdist tune`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.bench.options import BenchOptions
from tfdist.bench.session import prepare
from tfdist.bench.tune import search_arms
from tfdist.cli.bench import NOT_FOR_BENCHES, Command, Quiet, Seed, Turn, plan_of, refuse_suite
from tfdist.cli.options import Json, host_options, option, refuse_tf_config, timeout_options
from tfdist.cli.run_tune import run_tune
from tfdist.cli.scheduler import BenchPlan
from tfdist.cli.show.output import never_block
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import TIMING, WHAT
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.strategies.options import StrategyName


def _strategies(incomplete: str) -> list[str]:
    return [str(name) for name in StrategyName if str(name).startswith(incomplete)]


Strategy = Annotated[str, option("--strategy", "The strategy whose options are searched.", WHAT, complete=_strategies)]
Suite = Annotated[
    str,
    option(
        "--suite",
        "A suite whose arms of this strategy are the candidates; the first is the default of the others.",
        WHAT,
    ),
]
Rounds = Annotated[
    int | None,
    option("--rounds", "Turns of the best and of the default in the last stage. Default: the suite's.", TIMING),
]
Out = Annotated[Path | None, option("--out", "A new folder for the results. Default: bench_results/TIME-SUITE.")]
DryRun = Annotated[bool, option("--dry-run", "Show the candidates and about how long it takes; start nothing.")]


@host_options(NOT_FOR_BENCHES)
@timeout_options()
def tune(
    ctx: typer.Context,
    strategy: Strategy,
    command: Command = None,
    suite: Suite = "knobs",
    rounds: Rounds = None,
    turn: Turn = None,
    seed: Seed = None,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    *,
    selection: HostSelection,
    policy: Policy,
) -> None:
    """Find the fastest options of a strategy. Prints them as a 'tfdist launch' command line.

    \b
    Examples:
      tfdist tune --strategy multiworker
      tfdist tune --strategy mirrored --turn 5s
      tfdist tune --strategy multiworker -- python train.py
      tfdist tune --strategy mirrored --suite candidates.toml

    Candidates have 3 turns each in stages that keep the faster half. The last one is then compared with the defaults
    in new turns; only a measurable gain is printed. All turns are kept in a folder for 'tfdist report'.

    The exit code is 0, with or without a gain, or 130 after Ctrl-C.
    """
    refuse_tf_config()
    refuse_suite(command)
    options = BenchOptions(
        suite=suite,
        rounds=rounds,
        out=out,
        seed=seed,
        command=redact_command(["tfdist", *sys.argv[1:]]),
        turn_s=turn,
        program=tuple(command or ()),
        strategy=strategy,
    )
    if ctx.obj is not None:
        ctx.obj.submit(ctx, lambda machines: _plan(options, machines), policy)
        return
    never_block()
    raise typer.Exit(run_tune(options, selection, policy, dry_run=dry_run, json=json, quiet=quiet))


def _plan(options: BenchOptions, machines: Machines) -> BenchPlan:
    session = prepare(options, machines)
    search_arms(session)  # raises if there is nothing to search
    return plan_of(session)
