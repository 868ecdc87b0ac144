"""The options of `tfdist collectives` -> its arms on these machines, and the order of their turns. Starts nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import combinations, product
from pathlib import Path
from typing import Any

from tfdist.bench.folder import check_new
from tfdist.bench.plan import PlannedRun, interleave, start_order
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import Arms, resolve_arms
from tfdist.bench.suites.suite import Suite
from tfdist.jobs.exchange_checks import uses_nccl
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.presets import resolve
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machines, combined
from tfdist.launch.quantities import parse_sizes
from tfdist.launch.text import duration
from tfdist.models.collectives.spec import CollectiveOp, collective_refusal
from tfdist.strategies.catalog import CATALOG, gradient_dtype_refusal, refuse
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Communication, CrossDevice, GradientDtype, StrategyName, option_text

COMMAND = ("python", "-m", "tfdist.models.collectives.task")
"""Because of it `resolve_arms` decides on a strategy alone, as for a user's program, and not on a training."""
DEFAULT_SIZES = "1K:64M:4"


@dataclass(frozen=True)
class CollectiveOptions:
    """The command line; None or empty: the default."""

    op: CollectiveOp = CollectiveOp.ALL_REDUCE
    sizes: tuple[int, ...] = ()
    """Bytes."""
    communication: tuple[Communication, ...] = ()
    cross_device: tuple[CrossDevice, ...] = ()
    workers: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    model_gradients: bool = False
    model: Mapping[str, Any] = field(default_factory=dict)
    """`model`, `alpha`, `classes`, as far as they were given."""
    pack_sizes: tuple[int, ...] = ()
    """Bytes; 0: one pack."""
    gradient_dtype: GradientDtype = GradientDtype.FLOAT32
    rounds: int = 12
    """Turns of each arm, over all its starts."""
    incarnations: int = 4
    """Starts of each arm's processes, if there are as many rounds."""
    turn_s: float = 2.0
    seed: int = 0
    out: Path | None = None
    command: str = ""
    """The whole command line, without secrets."""


@dataclass(frozen=True)
class CollectivePlan:
    """A measurement that is ready to run."""

    root: Path
    options: CollectiveOptions
    started: str
    """UTC, ISO 8601."""
    hosts: tuple[str, ...]
    arms: Arms
    """Their specs are CollectiveSpecs."""
    same_arms: tuple[tuple[str, str], ...]
    """See SweepHeader."""
    starts: tuple[tuple[str, ...], ...]
    """Arms of each start of the processes in shuffled order."""
    runs: tuple[PlannedRun, ...]
    """The turns in their order."""


def plan_collectives(options: CollectiveOptions, machines: Machines) -> CollectivePlan:
    """The arms and turns for `options`.

    Raises:
        TfdistError: an option is wrong, or no arm can run; the reason of the first one.
    """
    _check(options)
    if options.model_gradients:
        choices = {"strategy": StrategyName.ONE_DEVICE, **options.model}
        spec = resolve(choices, next(iter(machines.values())), "cpu").spec
        options = replace(options, model={"model": spec.model, "alpha": spec.alpha, "classes": spec.classes})
    now = datetime.now(timezone.utc)
    root = options.out or Path("bench_results") / f"{now:%Y%m%dT%H%M%SZ}-collectives"
    check_new(root, "choose a new folder")
    arms = _resolve(list(_arms(options, machines)), options, machines)
    if not arms.specs:
        raise TfdistError(next(iter(arms.refused.values())))
    arms, same_arms = _with_same_arms(arms)
    names = list(arms.specs)
    numbers = range(1, min(options.incarnations, options.rounds) + 1)
    starts = tuple(tuple(start_order(names, number, options.seed)) for number in numbers)
    runs = interleave(names, options.rounds, options.seed)
    hosts = tuple(host.name for host in machines)
    return CollectivePlan(root, options, now.isoformat(timespec="seconds"), hosts, arms, same_arms, starts, runs)


def _with_same_arms(arms: Arms) -> tuple[Arms, tuple[tuple[str, str], ...]]:
    """The arms, and the pairs of them that do the same; the first one is added again if there is no pair."""

    def work(arm: str) -> StrategyChoice:
        spec = arms.specs[arm]
        ring = spec.communication is Communication.AUTO and not spec.gpus
        return replace(spec, communication=Communication.RING) if ring else spec

    pairs = tuple((arm, other) for other, arm in combinations(arms.specs, 2) if work(arm) == work(other))
    if pairs:
        return arms, pairs
    first = next(iter(arms.specs))
    again = f"{first} (again)"
    return replace(arms, plans={**arms.plans, again: arms.plans[first]}), ((again, first),)


def _check(options: CollectiveOptions) -> None:
    if options.turn_s >= Suite.timeout_s:
        raise TfdistError(f"--turn {duration(options.turn_s)}: must be shorter than {duration(Suite.timeout_s)}")
    if options.rounds < 1:
        raise TfdistError(f"--rounds {options.rounds}: must be at least 1; 3 or more give intervals")
    if options.incarnations < 1:
        raise TfdistError(f"--incarnations {options.incarnations}: must be at least 1; 4 or more see how starts differ")
    if options.model_gradients and options.op is not CollectiveOp.ALL_REDUCE:
        raise TfdistError(f"--op {options.op} --model-gradients: gradients are all-reduced; omit one of them")
    if options.pack_sizes and not options.model_gradients:
        raise TfdistError("--bytes-per-pack: has no effect on single tensors; add --model-gradients")
    for name, value in options.model.items():
        if not options.model_gradients:
            raise TfdistError(f"{option_text(name, value)}: has no effect without --model-gradients")
    within = () if _between_processes(options) else options.cross_device
    if options.pack_sizes and within and CrossDevice.AUTO not in within:
        raise TfdistError(f"--bytes-per-pack: has no effect with --cross-device {within[0]}; use auto, or omit it")


def _between_processes(options: CollectiveOptions) -> bool:
    """Whether the options ask for arms with several processes."""
    return bool(options.communication or options.workers) or not (options.cross_device or options.devices)


def _arms(options: CollectiveOptions, machines: Machines) -> Iterator[Arm]:
    """Workers with each communication, then the devices of one process with each cross-device operation.

    Options that only concern one of these kinds select it. Without any, a single host measures both.
    """
    gpus = bool(combined(machines).gpus)
    if _between_processes(options):
        default = (Communication.RING, Communication.NCCL) if gpus else (Communication.AUTO, Communication.RING)
        values = options.communication or default
        for arm in _product(StrategyName.MULTI_WORKER, "communication", values, "workers", options.workers):
            yield replace(arm, hosts=min(len(machines), arm.choices.get("workers", len(machines))))
    within = bool(options.cross_device or options.devices)
    if within or (len(machines) == 1 and not options.communication and not options.workers):
        operations = options.cross_device or [each for each in CrossDevice if gpus or each is not CrossDevice.NCCL]
        yield from _product(StrategyName.MIRRORED, "cross_device", operations, "devices", options.devices)


def _product(
    strategy: StrategyName, key: str, values: Sequence[str], size: str, counts: Sequence[int]
) -> Iterator[Arm]:
    """An arm with each of `values` of `key`, for each of `counts`; without any, for the default of `size`."""
    for count, value in product(counts or (None,), values):
        name = f"{strategy}/{value}" + (f", {count} {size}" if len(counts) > 1 else "")
        yield Arm(name, {"strategy": strategy, key: value, **({size: count} if count else {})}, 1, COMMAND)


def _resolve(wanted: Sequence[Arm], options: CollectiveOptions, machines: Machines) -> Arms:
    """The arms with their specs, each with the reason if it cannot run."""
    arms = Arms({}, {}, ())
    for arm in wanted:
        try:
            one = resolve_arms([arm], machines, None)
            plans = {name: _with_cases(name, planned, options) for name, planned in one.plans.items()}
        except TfdistError as error:
            one = Arms({}, {arm.name: str(error).removeprefix(f"arm {arm.name!r}: ")}, ())
            plans = {}
        refused = {**arms.refused, **one.refused}
        arms = Arms({**arms.plans, **plans}, refused, arms.warnings + one.warnings)
    return arms


def _with_cases(arm: str, planned: Planned, options: CollectiveOptions) -> Planned:
    """The arm whose tasks exchange what the options ask for."""
    choice = planned.spec
    between = CATALOG[choice.strategy].all_reduce == "communication"
    if choice.replicas < 2:
        flag = "--workers" if between else "--devices"
        raise TfdistError(f"{flag} {choice.replicas}: a single rank exchanges nothing; use 2 or more")
    refuse(collective_refusal(options.op, choice), f"--op {options.op} under {arm}")
    dtype = options.gradient_dtype
    refuse(gradient_dtype_refusal(dtype, uses_nccl(choice)), f"--gradient-dtype {dtype} under {arm}")
    packs = between or choice.cross_device is CrossDevice.AUTO
    cases = {
        "op": options.op,
        "sizes": options.sizes or (() if options.model_gradients else parse_sizes(DEFAULT_SIZES)),
        "model_gradients": options.model_gradients,
        "pack_sizes": tuple(dict.fromkeys((0, *options.pack_sizes))) if packs else (0,),
        "gradient_dtype": dtype,
        "turn_s": options.turn_s,
        "seed": options.seed,
        **options.model,
    }
    request = planned.request  # of the measuring program, as if it were the user's
    return plan(replace(request, command=(), collective=cases), planned.machines)
