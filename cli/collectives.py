"""`tfdist collectives`."""

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tfdist.bench.collectives.plan import CollectiveOptions
from tfdist.cli.bench import Quiet
from tfdist.cli.durations import parse_seconds
from tfdist.cli.host_options import FOR_A_BENCH, host_options
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.options import HOW, SIZE, TIMING, WHAT, Json, option, refuse_tf_config, training_options
from tfdist.cli.output import never_block, wait_for_reader
from tfdist.cli.run_collectives import run
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.sizes import parse_size, parse_sizes
from tfdist.launch.text import did_you_mean
from tfdist.models.collectives.op import CollectiveOp
from tfdist.strategies import options as closed

Choice = TypeVar("Choice", bound=Enum)

Op = Annotated[str, option("--op", "all-reduce, all-gather, broadcast or reduce-to-one.", WHAT)]
Sizes = Annotated[
    str | None,
    option("--sizes", "1K:256M (each twice the one before), 1K:256M:4 (4 times) or 1K,64K,1M. Default: 1K:256M.", WHAT),
]
Gradients = Annotated[
    bool,
    option(
        "--model-gradients",
        "All gradients of the model in one call, as a training step exchanges them. Without --sizes: only these.",
        WHAT,
    ),
]
Workers = Annotated[
    str | None,
    option(
        "--workers", "Numbers of worker processes on all hosts together, for example 2,4. Default: as for launch.", SIZE
    ),
]
Devices = Annotated[
    str | None,
    option("--devices", "Numbers of devices of one process, for example 2,4. Default: all GPUs, or 2 on a CPU.", SIZE),
]
Communication = Annotated[
    str | None,
    option("--communication", "Between processes: auto, ring, nccl. Default: auto,ring, or ring,nccl with GPUs.", HOW),
]
CrossDevice = Annotated[
    str | None,
    option(
        "--cross-device",
        "Between the devices of one process: auto, nccl, hierarchical-copy, reduction-to-one. Default: all of them.",
        HOW,
    ),
]
Packs = Annotated[
    str | None,
    option("--bytes-per-pack", "Pack sizes to try with --model-gradients, for example 1M,4M. One pack is added.", HOW),
]
Dtype = Annotated[str, option("--gradient-dtype", "float32, bfloat16 or float16.", HOW)]
Rounds = Annotated[int, option("--rounds", "Turns of each arm; 3 or more give intervals.", TIMING)]
Turn = Annotated[str, option("--turn", "Timed seconds of a turn, divided between its sizes.", TIMING)]
Seed = Annotated[int, option("--seed", "Seed of the order of turns and sizes.", TIMING)]
Out = Annotated[Path | None, option("--out", "A new folder for the results. Default: bench_results/TIME-collectives.")]
DryRun = Annotated[bool, option("--dry-run", "Show the turns and the sizes; start nothing.")]


@host_options(FOR_A_BENCH)
@timeout_options()
@training_options(("model", "alpha", "classes"))
def collectives(
    op: Op = "all-reduce",
    sizes: Sizes = None,
    model_gradients: Gradients = False,
    workers: Workers = None,
    devices: Devices = None,
    communication: Communication = None,
    cross_device: CrossDevice = None,
    bytes_per_pack: Packs = None,
    gradient_dtype: Dtype = "float32",
    rounds: Rounds = 6,
    turn: Turn = "5s",
    seed: Seed = 0,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    *,
    selection: HostSelection,
    policy: Policy,
    choices: Mapping[str, Any],
) -> None:
    """Measure all-reduce and other collectives by size. Through tf.distribute, in the words of the NCCL tests.

    \b
    Examples:
      tfdist collectives
      tfdist collectives --hosts h1,h2 --sizes 1K:64M
      tfdist collectives --workers 2,4 --communication ring --sizes 1M:256M:4
      tfdist collectives --devices 2 --cross-device auto,hierarchical-copy
      tfdist collectives --model-gradients --bytes-per-pack 512K,2M,8M
      tfdist collectives --op all-gather --sizes 1M,16M --rounds 10
      tfdist bench --collectives bench_results/20260101T120000Z-collectives

    An arm is a communication between processes (--workers, --communication) or between the devices of one process
    (--devices, --cross-device). Arms take turns, as in a bench; every turn measures all sizes, and is saved when it
    ends. Every result is checked: '#wrong' counts wrong elements.

    The exit code is 1 if an arm failed or a result was wrong, 130 after Ctrl-C, else 0.
    """
    refuse_tf_config()
    options = CollectiveOptions(
        op=_one(CollectiveOp, op, "--op"),
        sizes=parse_sizes(sizes) if sizes else (),
        communication=_several(closed.Communication, communication, "--communication"),
        cross_device=_several(closed.CrossDevice, cross_device, "--cross-device"),
        workers=_numbers(workers, "--workers"),
        devices=_numbers(devices, "--devices"),
        model_gradients=model_gradients,
        model=choices,
        pack_sizes=tuple(parse_size(part, "--bytes-per-pack", 0) for part in _words(bytes_per_pack)),
        gradient_dtype=_one(closed.GradientDtype, gradient_dtype, "--gradient-dtype"),
        rounds=rounds,
        turn_s=parse_seconds(turn, "--turn") or 0.0,
        seed=seed,
        out=out,
        command=redact_command(["tfdist", *sys.argv[1:]]),
    )
    never_block()
    code = run(options, selection, policy, dry_run=dry_run, json=json, quiet=quiet)
    if dry_run:
        wait_for_reader()
    raise typer.Exit(code)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _one(choices: type[Choice], text: str, flag: str) -> Choice:
    try:
        return choices(text.strip())
    except ValueError:
        raise TfdistError(f"{flag} {text}: {did_you_mean(text, map(str, choices))}") from None


def _several(choices: type[Choice], text: str | None, flag: str) -> tuple[Choice, ...]:
    return tuple(dict.fromkeys(_one(choices, word, flag) for word in _words(text)))


def _numbers(text: str | None, flag: str) -> tuple[int, ...]:
    for word in _words(text):
        if not word.isdigit() or int(word) < 2:
            raise TfdistError(f"{flag} {text}: give integers of at least 2, for example 2,4; 1 exchanges nothing")
    return tuple(dict.fromkeys(map(int, _words(text))))
