"""Checks of a complete spec: what cannot work is refused before anything starts, what may surprise is a warning.

Every check raises a TfdistError for the first problem.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from tfdist.jobs import exchange_checks
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.machine import Machine
from tfdist.launch.text import counted
from tfdist.models.datasets.table import PREPARED, SYNTHETIC
from tfdist.models.spec import Architecture, TrainingSpec, whole_calls
from tfdist.strategies.catalog import CATALOG, keras_refusal, refuse
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Api, GpuThreads, Keras, StrategyName, option_text, parse_partitioner


def check_straggler(spec: TrainingSpec) -> None:
    """Refuse a slow worker that does not exist, is not slow, or cannot be slowed.

    Raises:
        TfdistError: one of these.
    """
    if not (isfinite(spec.slow_ms) and spec.slow_ms >= 0):
        raise TfdistError(f"slow_ms = {spec.slow_ms:g}: must be 0 or more milliseconds")
    if not (isfinite(spec.slow_factor) and spec.slow_factor >= 1):
        raise TfdistError(f"slow_factor = {spec.slow_factor:g}: must be 1 or more")
    slow = spec.slow_ms > 0 or spec.slow_factor > 1
    if slow and spec.slow_worker is None:
        raise TfdistError("slow_ms and slow_factor have no effect without slow_worker: set slow_worker = 0")
    if spec.slow_worker is None:
        return
    if not slow:
        raise TfdistError(f"slow_worker = {spec.slow_worker} is not slower: set slow_ms or slow_factor")
    count = spec.workers if CATALOG[spec.strategy].many_processes else spec.devices
    if not 0 <= spec.slow_worker < count:
        raise TfdistError(f"slow_worker = {spec.slow_worker}: must be 0 to {count - 1}, one of {count}")
    _check_graph("slow_worker", spec)


def check_step_times(spec: TrainingSpec) -> None:
    """Refuse step times where the steps are not those of tfdist's loop.

    Raises:
        TfdistError: they would have no effect.
    """
    if not spec.step_times:
        return
    _check_graph("step_times", spec)
    if not spec.synchronous:
        raise TfdistError(f"step_times: {spec.strategy} has no steps that all workers take together; omit it")
    if spec.steps_per_call > 1:
        raise TfdistError(f"step_times with steps_per_call = {spec.steps_per_call}: only with 1; omit one of them")


def _check_graph(key: str, spec: TrainingSpec) -> None:
    if spec.api is not Api.LOOP:
        raise TfdistError(f"{key} with api = {spec.api}: only tfdist's own loop has it; use api = loop")
    problem = CATALOG[spec.strategy].clock_problem
    if problem:
        raise TfdistError(f"{key}: {problem}; omit it")


_INSTEAD_OF_NCCL = {"communication": "ring or auto", "cross_device": "hierarchical-copy, reduction-to-one or auto"}


def check_gpus(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    """Refuse options for GPUs on a machine without any, and those that contradict each other.

    TensorFlow takes a limited memory at the start: of a device with a limit, it refuses to let the memory grow.

    Raises:
        TfdistError: the first problem.
    """
    nccl = [
        (option_text(field, "nccl"), f"use {others}")
        for field, others in _INSTEAD_OF_NCCL.items()
        if getattr(choice, field) == "nccl"
    ]
    limit, growth = choice.memory_limit_mb, choice.memory_growth
    memory = [] if limit is None else [option_text("memory_limit_mb", limit)]
    if "memory_growth" in chosen:
        memory.append(option_text("memory_growth", growth))
    threads = [] if choice.gpu_threads is GpuThreads.GLOBAL else [option_text("gpu_threads", choice.gpu_threads)]
    for option, fix in (*((option, "omit it") for option in (*threads, *memory)), *nccl):
        if not machine.gpus:
            raise MissingHardwareError(f"{option} needs GPUs, and none was found: {fix}")
    if len(memory) > 1:
        raise TfdistError(f"{' and '.join(memory)}: TensorFlow takes a limited memory at once; omit one of them")
    if choice.logical_gpus is None:
        return
    parts = f"--set logical_gpus={choice.logical_gpus}"
    if memory:
        raise TfdistError(f"{memory[0]}: {parts} gives each part of the GPU a fixed share of its memory; omit one")
    if machine.hosts > 1:
        raise TfdistError(f"{parts} cuts the GPU of one host, not of {machine.hosts}: omit it")
    if nccl:
        option, fix = nccl[0]
        why = "NCCL accepts each physical GPU once, so not the parts of one that come from"
        raise TfdistError(f"{option}: {why} {parts}; {fix}")


_MINIMUM = {
    "workers": 1, "ps": 0, "devices": 1, "cores_per_device": 1, "intra_op_threads": 1, "logical_gpus": 2, "packs": 1,
    "memory_limit_mb": 1, "bytes_per_pack": 1, "classes": 2, "batch_size": 1, "steps": 1, "epochs": 1,
    "steps_per_window": 1, "steps_per_call": 1, "warmup_steps": 0, "backup_workers": 0, "shuffle": 1, "seed": 0,
    "image_size": 32,  # MobileNetV2 halves the image five times
}  # fmt: skip
_MAX_SEED = 2**32 - 1  # of NumPy
_ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)


def check(spec: TrainingSpec, chosen: Mapping[str, Any], machine: Machine) -> None:
    """Refuse what cannot work or would have no effect.

    Args:
        spec: all values, defaults included.
        chosen: the values that the user set, by field.
        machine: the combined hosts.
    """
    _check_ranges(spec)
    check_strategy(spec, chosen, machine)
    check_combinations(spec)
    check_effect(spec, chosen)
    if "steps" in chosen or "warmup_steps" in chosen:
        check_length(spec)


def check_strategy(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    """The part of `check` that also applies to custom programs."""
    _check_minimums(choice)
    timeout_s = choice.timeout_collective_s
    if timeout_s is not None and not timeout_s > 0:
        raise TfdistError(f"--set timeout_collective={timeout_s:g}: must be positive; omit it for no limit")
    parse_partitioner(choice.variable_partitioner)
    _check_options(choice, chosen)
    check_gpus(choice, chosen, machine)
    exchange_checks.check_all_reduce(choice)
    exchange_checks.check_backup_workers(choice)
    _check_devices(choice, chosen, machine)


def check_combinations(spec: TrainingSpec) -> None:
    """Refuse combinations of strategy, Keras, API, precision and devices that TensorFlow cannot train."""
    if not CATALOG[spec.strategy].trains_built_in:
        raise TfdistError(f"--strategy {spec.strategy}: only for your own program; add it, as -- python train.py")
    keras = f"--keras {spec.keras}"
    refuse(keras_refusal(spec.strategy, spec.keras, spec.api), f"{keras} --api {spec.api} --strategy {spec.strategy}")
    exchange_checks.check_graph(spec)
    exchange_checks.check_precision(spec)
    exchange_checks.check_exchange(spec)
    check_straggler(spec)
    check_step_times(spec)
    # with keras 3.15.1, `steps_per_execution` fails under MirroredStrategy
    if spec.keras is Keras.THREE and spec.api is Api.FIT and spec.steps_per_call > 1 and exchange_checks.several(spec):
        raise TfdistError(
            f"{keras} --api {spec.api} --steps-per-call {spec.steps_per_call}: Keras 3's fit fails with several steps "
            "in a call of several replicas; use --api loop or --keras 2"
        )
    exchange_checks.check_replicas(spec)
    if spec.xla:
        refusals = CATALOG[spec.strategy].xla_refusals
        api = "" if len(refusals) == len(Api) else f" --api {spec.api}"
        refuse(refusals.get(spec.api), f"--xla{api} --strategy {spec.strategy}")


def check_effect(spec: TrainingSpec, chosen: Mapping[str, Any]) -> None:
    """Refuse options that the model, the data set or the device would ignore."""
    ignored = (
        ("bn_momentum", f"--model {spec.model}", spec.model == Architecture.TINY),
        ("shuffle", f"--dataset {spec.dataset}", spec.dataset == SYNTHETIC),
        ("data_dir", f"--dataset {spec.dataset}", not spec.dataset.startswith(PREPARED)),
        ("cores_per_device", "a GPU", spec.gpus),
    )
    for field, option, has_no_effect in ignored:
        if has_no_effect and field in chosen:
            raise TfdistError(f"{option_text(field, chosen[field])} has no effect with {option}: omit it")
    if spec.count_updates and (spec.synchronous or spec.api is not Api.LOOP):
        raise TfdistError(
            f"count_updates has no effect with --strategy {spec.strategy} --api {spec.api}: omit it, or use "
            f"--strategy {StrategyName.PARAMETER_SERVER} --api {Api.LOOP}"
        )
    if "steps_per_window" in chosen and spec.steps_per_window % spec.steps_per_call:
        raise TfdistError(
            f"--set steps_per_window={spec.steps_per_window}: a window is a whole number of calls; omit it, or use "
            f"{whole_calls(spec.steps_per_window, spec.steps_per_call)} with --steps-per-call {spec.steps_per_call}"
        )


def check_length(spec: TrainingSpec) -> None:
    """Refuse a training with fewer timed than warm-up steps."""
    if spec.steps < max(1, 2 * spec.warmup_steps):
        least = 2 * spec.warmup_steps
        what, fix = f"--steps {spec.steps}: too few", f"use --steps {least} or more"
        if spec.epochs:
            what = f"--epochs {spec.epochs}: {spec.steps} steps are too few"
            fix = f"use more, or --steps {least} in place of --epochs"
        raise TfdistError(f"{what} to time after {spec.warmup_steps} warm-up steps; {fix}, or --set warmup_steps=0")


INITIAL_SHARE = 0.1
"""Share of the initial weights in the averages, above which a warning is printed."""


def warnings_of(choice: StrategyChoice, machine: Machine) -> Iterator[str]:
    """What works but may surprise, for any program or, with a TrainingSpec, for the built-in training."""
    cores = choice.replicas * (choice.cores_per_device or 0)
    if choice.logical_gpus is not None:
        yield f"{choice.logical_gpus} logical GPUs share one card: do not infer scaling from this run"
    elif not machine.gpus and cores > len(machine.cores):
        each = counted(choice.cores_per_device or 0, "core")
        yield (
            f"{choice.replicas} devices with {each} each share {len(machine.cores)} cores "
            f"and slow each other down: do not infer scaling from this run"
        )
    if not isinstance(choice, TrainingSpec):
        return
    if choice.xla and not machine.gpus and choice.model is Architecture.MOBILENET_V2:
        yield "--xla on a CPU is about 100 times slower for MobileNetV2 (its depthwise gradients)"
    initial = 0.0 if choice.ema is None else choice.ema**choice.steps
    if initial > INITIAL_SHARE and choice.evaluate:
        yield (
            f"--set ema={choice.ema:g}: after {counted(choice.steps, 'step')} the averages are {initial:.0%} initial "
            "weights, so the accuracy will be too low; use a lower decay or more --steps"
        )


def _check_ranges(spec: TrainingSpec) -> None:
    if spec.seed > _MAX_SEED:
        raise TfdistError(f"--set seed={spec.seed}: must be at most {_MAX_SEED}")
    if spec.alpha not in _ALPHAS:
        raise TfdistError(f"--set alpha={spec.alpha}: choose from {', '.join(map(str, _ALPHAS))}")
    if not 0.0 <= spec.bn_momentum < 1.0:
        raise TfdistError(f"--set bn_momentum={spec.bn_momentum:g}: must be at least 0 and less than 1")
    if not spec.learning_rate > 0:
        raise TfdistError(f"--set learning_rate={spec.learning_rate:g}: must be positive")
    ema = spec.ema
    limits = "must be more than 0 and less than 1, as 0.999"
    if ema is not None and not 0.0 < ema < 1.0:
        raise TfdistError(f"--set ema={ema:g}: {limits}; omit it to keep no averages")


def _check_minimums(choice: StrategyChoice) -> None:
    for field, minimum in _MINIMUM.items():
        value = getattr(choice, field, None)
        if value is not None and value < minimum:
            raise TfdistError(f"{option_text(field, value)}: must be at least {minimum}")


def _check_options(choice: StrategyChoice, chosen: Mapping[str, Any]) -> None:
    """Refuse an option that the strategy would ignore, unless it is the default."""
    for field, value in chosen.items():
        takers = [row.name for row in CATALOG.values() if field in row.options]
        if takers and choice.strategy not in takers and value != getattr(type(choice), field):
            raise TfdistError(
                f"{option_text(field, value)} has no effect under --strategy {choice.strategy}: "
                f"omit it, or use {', '.join(takers)}"
            )
    row = CATALOG[choice.strategy]
    if "ps" in row.options and choice.ps < row.least_ps:
        raise TfdistError(f"--ps 0: {choice.strategy} keeps its variables on parameter servers; use --ps 1 or more")


def _check_devices(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    if machine.hosts > 1 and not CATALOG[choice.strategy].many_processes:
        raise TfdistError(
            f"--strategy {choice.strategy} is one process, and {machine.hosts} hosts were given: "
            f"use --strategy multiworker, or choose one host with --hosts"
        )
    if machine.gpus and choice.replicas > len(machine.gpus):
        raise MissingHardwareError(
            f"{choice.replicas} devices ({counted(choice.workers, 'worker')} x {choice.devices}) but only "
            f"{counted(len(machine.gpus), 'GPU')}: use fewer --workers or --devices"
        )
    exchange_checks.check_replicas(choice, TfdistError if "devices" in chosen else MissingHardwareError)
