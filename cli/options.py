"""The options that describe a training: one row each with name, help panel and help text.

Their types are those of TrainingSpec's fields.

In a text, {choices} stands for the values of a closed choice. A command takes them with `@training_options` and
receives the values that were given as one mapping. Every option can also be set by an environment variable: TFDIST_ and
its name.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import wraps
from typing import Annotated, Any

import typer

from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.source import SourceName
from tfdist.launch.policy import RestartOn
from tfdist.launch.text import flag_of
from tfdist.models.presets import PRESETS
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import field_types

WHAT, SIZE, HOW, TRAIN, DATA, TIMING = "What to run", "Size", "Communication", "Training", "Data", "Timing"
HOSTS, ENVIRONMENT, OUTPUT = "Hosts", "Environment", "Output"

_ROWS: tuple[tuple[str, str, str], ...] = (
    ("strategy", WHAT, "{choices}. Default: auto, which decides by --ps, --workers, the number of hosts and of devices."),
    ("preset", WHAT, "Defaults for all other options: smoke, cpu or reference (the published setup). Default: reference with a GPU, else cpu."),
    ("workers", SIZE, "Number of worker processes on all hosts together. Default for strategies with several: one per GPU, or 2 on a CPU; with --hosts: one per slot."),
    ("ps", SIZE, "Number of parameter servers (parameter-server, between-graph, in-graph). Default: 1; in-graph: 0."),
    ("devices", SIZE, "Devices per task: GPUs, or virtual CPU devices. Default for mirrored and central-storage: all GPUs, or 2 on a CPU."),
    ("cores_per_device", SIZE, "Cores that each CPU device is pinned to. Default: 1; not pinned with your own COMMAND."),
    ("intra_op_threads", SIZE, "TensorFlow's intra-op threads in each task. Default: one per pinned core."),
    ("logical_gpus", SIZE, "Number of parts into which the machine's one GPU is cut, to try several devices on one card."),
    ("communication", HOW, "All-reduce between workers (multiworker): {choices}. Default: auto, which is nccl if all workers have GPUs, else TensorFlow's choice."),
    ("cross_device", HOW, "All-reduce between the devices of one process (mirrored): {choices}."),
    ("packs", HOW, "Number of all-reduces that the gradients are split into (mirrored with nccl or hierarchical-copy)."),
    ("bytes_per_pack", HOW, "Bytes of gradients after which the next all-reduce starts (multiworker, mirrored with auto). Default: one all-reduce."),
    ("gradient_dtype", HOW, "Type in which gradients are exchanged (multiworker, mirrored): {choices}. Default: float32."),
    ("timeout_collective", HOW, "Seconds after which an all-reduce fails if a peer does not join (multiworker). Default: no timeout."),
    ("variable_partitioner", HOW, "Split variables across parameter servers: none, fixed:N, min-size:BYTES or max-size:BYTES."),
    ("gpu_threads", HOW, "Threads that start GPU kernels (TF_GPU_THREAD_MODE): {choices}. Default: global."),
    ("memory_growth", SIZE, "Take GPU memory as it is needed; --no-memory-growth: nearly all of it at the start. Default: on."),
    ("memory_limit", SIZE, "MiB that each task takes of each of its GPUs at the start, and no more. Default: no limit."),
    ("soft_placement", SIZE, "Let TensorFlow run an operation on another device if the requested one has no kernel for it. Default: on."),
    ("log_device_placement", OUTPUT, "Log where TensorFlow places each operation, and count operations by device in placement.csv in the run folder."),
    ("placement", HOW, "Parameter server of each variable: the next in turn (round-robin), or the one with the fewest bytes (greedy)."),
    ("sync", HOW, "Workers wait for each other in each step (between-graph). Default: each steps when it is ready."),
    ("backup_workers", HOW, "With --sync: number of workers that a step does not wait for, whichever are slowest. Default: 0."),
    ("model", TRAIN, "mobilenet_v2, or tiny, which has no BatchNorm and trains in seconds."),
    ("alpha", TRAIN, "Width multiplier of MobileNetV2: 0.35, 0.5, 0.75, 1.0, 1.3 or 1.4."),
    ("image_size", TRAIN, "Height and width of the images in pixels, at least 32."),
    ("classes", TRAIN, "Number of classes of synthetic data."),
    ("bn_momentum", TRAIN, "BatchNorm momentum. Keras' 0.999 lags for thousands of steps; 0.9 suits short trainings."),
    ("batch_size", TRAIN, "Examples per replica and step."),
    ("global_batch_size", TRAIN, "Examples per step over all replicas, instead of --batch-size."),
    ("steps", TRAIN, "Number of training steps, warm-up included (parameter-server, and between-graph without --sync: over all workers)."),
    ("epochs", TRAIN, "Passes over the data set, instead of --steps."),
    ("learning_rate", TRAIN, "Learning rate. Default: 0.001."),
    ("optimizer", TRAIN, "{choices}. Default: adam."),
    ("ema", TRAIN, "Decay of moving averages of the weights, as 0.999; evaluation and export use the averages. Default: none."),
    ("precision", TRAIN, "Keras dtype policy: {choices}. Default: float32."),
    ("keras", TRAIN, "2: tf_keras, works with every strategy. 3: works with some, see 'tfdist strategies'. Default: 2."),
    ("api", TRAIN, "loop: a custom training loop with timing. fit: Model.fit. Default: loop."),
    ("xla", TRAIN, "Compile the training step with XLA."),
    ("seed", TRAIN, "Seed of initial weights, shuffling and synthetic data. Default: 0."),
    ("evaluate", TRAIN, "Measure accuracy on held-out examples after training. Default: if the data set has any."),
    ("dataset", DATA, "synthetic, digits, tfds:NAME (must be prepared), or folder:PATH (one subfolder per class)."),
    ("data_dir", DATA, "Folder of TFDS data. Default: TFDS_DATA_DIR, or ~/tensorflow_datasets."),
    ("shuffle", DATA, "Size of the shuffle buffer in examples. Default: 1024."),
    ("steps_per_call", TRAIN, "Number of steps in one call of the training function (parameter-server: in one scheduled closure). Default: 1."),
    ("steps_per_window", TIMING, "Number of steps per timed window."),
    ("warmup_steps", TIMING, "Minimum number of steps before timing starts. Default: 10."),
)  # fmt: skip

_SPEC_NAMES = {"timeout_collective": "timeout_collective_s", "memory_limit": "memory_limit_mb"}
_TYPES = {**field_types(TrainingSpec), "preset": str, "global_batch_size": int}
_KINDS = {name: _TYPES[_SPEC_NAMES.get(name, name)] for name, _, _ in _ROWS}
CHOICES: Mapping[str, tuple[str, ...]] = {
    name: tuple(map(str, kind))
    for name, kind in (*_KINDS.items(), ("restart_on", RestartOn), ("inherit", SourceName))
    if issubclass(kind, Enum)
}
"""The closed choices: option name -> values."""


_LONGEST_NEGATED = 16
"""Letters of an option that also has a --no- form; the help of longer ones would not fit into 80 columns."""


def variable_of(name: str) -> str:
    """The environment variable of an option: TFDIST_SSH_PORT for `ssh_port` or `--ssh-port`."""
    return "TFDIST_" + name.lstrip("-").replace("-", "_").upper()


def option(
    flag: str,
    text: str,
    panel: str = OUTPUT,
    *,
    short: tuple[str, ...] = (),
    variable: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
    first: Callable[..., Any] | None = None,
    hidden: bool = False,
) -> Any:
    """An option of one command.

    Args:
        flag: `--name`.
        text: its help.
        panel: of the help.
        short: other spellings.
        variable: replaces its environment variable.
        complete: lists values for the shell.
        first: called with the context and the value before the other options are read.
        hidden: left out of the help: a key of the job file that few jobs need.
    """
    return typer.Option(
        flag,
        *short,
        help=re.sub(r"\[(?=[a-z#/@])", r"\\[", text),  # rich would read it as markup
        rich_help_panel=panel,
        envvar=variable or variable_of(flag.partition("/")[0]),
        show_envvar=False,
        autocompletion=complete,
        callback=first,
        is_eager=first is not None,
        hidden=hidden,
    )


Port = Annotated[
    int | None, option("--port", "Port of the first task on each host; the others count up. Default: free ports.", SIZE)
]
Json = Annotated[
    bool, option("--json", "Print the result as JSON in the last line of stdout; all else goes to stderr.")
]


def annotation(name: str, kind: Any, panel: str, text: str) -> Any:
    """The annotation of a command's parameter for one row of a table of options."""
    negated = kind is bool and len(name) <= _LONGEST_NEGATED
    flag = f"{flag_of(name)}/{flag_of('no_' + name)}" if negated else flag_of(name)
    short = ("-H",) if name == "hosts" else ()
    *others, last = CHOICES.get(name, ("",))
    text = text.replace("{choices}", f"{', '.join(others)} or {last}")
    return Annotated[
        kind | None, option(flag, text, panel, short=short, complete=_presets if name == "preset" else None)
    ]


def _presets(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


TRAINING: Mapping[str, Any] = {name: annotation(name, _KINDS[name], panel, text) for name, panel, text in _ROWS}


def training_options(only: tuple[str, ...] = tuple(TRAINING)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `choices` maps TrainingSpec's field names to the values given."""

    def collect(values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {_SPEC_NAMES.get(name, name): value for name, value in values.items() if value is not None}

    return gather("choices", {name: TRAINING[name] for name in only}, collect)


def gather(
    parameter: str, options: Mapping[str, Any], collect: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command `options` and pass `collect` of their values to it as one `parameter`.

    Typer reads options from a signature, so the decorated command gets one that lists them in the place of `parameter`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        parameters: list[inspect.Parameter] = []
        for each in inspect.signature(command).parameters.values():
            parameters += added if each.name == parameter else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            gathered = collect({name: values.pop(name) for name in options})
            command(**{parameter: gathered}, **values)

        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def refuse_tf_config() -> None:
    """Refuse a TF_CONFIG in the environment: every task would inherit it.

    Raises:
        TfdistError: it is set.
    """
    if "TF_CONFIG" in os.environ:
        raise TfdistError(
            f"TF_CONFIG is already set in the environment ({os.environ['TF_CONFIG'][:60]}...): unset it, "
            "or run the one task that it describes with 'tfdist launch --inherit-tf-config'"
        )
