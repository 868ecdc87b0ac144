"""Every option that describes a training, once: its flag, its environment twin TFDIST_..., its help.

A command takes them all with `@training_options` and receives what was given as one mapping, by TrainingSpec's names.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import Api, Communication, CrossDevice, Keras, Placement, StrategyName

WHAT, WHERE, HOW, TRAIN, DATA, TIMING = "What runs", "How many", "Communication", "Training", "Data", "Measuring"
HOSTS = "Hosts"
OUTPUT = "Output"

_ROWS: tuple[tuple[str, Any, str, str], ...] = (
    ("strategy", StrategyName, WHAT, "auto: parameter-server with --ps, multiworker with --workers, mirrored with several devices, else one-device."),
    ("preset", str, WHAT, "smoke, cpu or reference: values for all that is not given. Default: reference if a GPU is there, else cpu."),
    ("workers", int, WHERE, "Worker processes in total, on all hosts. Default where a strategy has several: one a GPU, or 2 on a CPU; with hosts: as many as they take."),
    ("ps", int, WHERE, "Parameter servers (parameter-server only; default 1)."),
    ("devices", int, WHERE, "Devices of each task: GPUs, or virtual CPU devices. Default for mirrored and central-storage: all GPUs, or 2."),
    ("cores_per_device", int, WHERE, "Cores that a CPU device is pinned to (default 1; with a COMMAND of your own: no pinning)."),
    ("communication", Communication, HOW, "All-reduce between workers (multiworker)."),
    ("cross_device", CrossDevice, HOW, "All-reduce between the devices of one process (mirrored)."),
    ("packs", int, HOW, "Pack the gradients into so many pieces (mirrored with nccl or hierarchical-copy)."),
    ("bytes_per_pack", int, HOW, "Pack gradients up to so many bytes per all-reduce (multiworker)."),
    ("timeout_collective", float, HOW, "Seconds until an all-reduce that a peer does not join fails (multiworker; default: never)."),
    ("variable_partitioner", str, HOW, "Split variables over parameter servers: none, fixed:N, min-size:BYTES or max-size:BYTES."),
    ("placement", Placement, HOW, "Which parameter server gets a variable: the next one, or the one with the fewest bytes (greedy)."),
    ("model", str, TRAIN, "mobilenet_v2, or tiny (no BatchNorm, trains in seconds)."),
    ("alpha", float, TRAIN, "MobileNetV2's width: 0.35, 0.5, 0.75, 1.0, 1.3 or 1.4."),
    ("image_size", int, TRAIN, "Side of the square images in pixels, at least 32."),
    ("classes", int, TRAIN, "Classes of synthetic data; real data sets bring their own number."),
    ("bn_momentum", float, TRAIN, "BatchNorm's momentum: Keras' 0.999 lags for thousands of steps, 0.9 suits short trainings."),
    ("batch_size", int, TRAIN, "Examples per replica and step."),
    ("global_batch_size", int, TRAIN, "Examples per step of all replicas together, instead of --batch-size."),
    ("steps", int, TRAIN, "Training steps in all, warm-up included (parameter-server: scheduled over all workers)."),
    ("epochs", int, TRAIN, "Passes over the data set, instead of --steps."),
    ("learning_rate", float, TRAIN, "Step size of the optimizer (default 0.001)."),
    ("optimizer", str, TRAIN, "adam or sgd."),
    ("precision", str, TRAIN, "float32, mixed_bfloat16 or mixed_float16."),
    ("keras", Keras, TRAIN, "2: tf_keras, works with every strategy. 3: where it works ('tfdist strategies' says)."),
    ("api", Api, TRAIN, "loop: our timed training loop. fit: Model.fit."),
    ("xla", bool, TRAIN, "Compile the step with XLA."),
    ("seed", int, TRAIN, "Of initial weights, shuffling and synthetic data (default 0)."),
    ("evaluate", bool, TRAIN, "Measure accuracy on held-out examples at the end (default: if the data set has some)."),
    ("dataset", str, DATA, "synthetic, digits, tfds:NAME (prepared data), or folder:PATH (one subfolder a class)."),
    ("data_dir", str, DATA, "HostSelection TFDS data is (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."),
    ("shuffle", int, DATA, "Shuffle buffer in examples (default 1024)."),
    ("steps_per_window", int, TIMING, "Steps between two looks at the clock."),
    ("warmup_steps", int, TIMING, "Steps at least that are trained but not timed (default 10)."),
)  # fmt: skip

RENAMED = {"timeout_collective": "timeout_collective_s"}
"""Options whose field in TrainingSpec names its unit."""


def flag_of(name: str) -> str:
    """`--ssh-port` for `ssh_port`."""
    return "--" + name.replace("_", "-")


def twin(name: str) -> str:
    """The environment variable that stands for an option: TFDIST_SSH_PORT for `ssh_port` or `--ssh-port`."""
    return "TFDIST_" + name.lstrip("-").replace("-", "_").upper()


def option(flag: str, text: str, panel: str = OUTPUT, short: tuple[str, ...] = (), variable: str | None = None) -> Any:
    """An option of one command, with its environment twin: TFDIST_ and the flag, unless that name is taken."""
    variable = variable or twin(flag)
    text = re.sub(r"\[(?=[a-z#/@])", r"\\[", text)  # or rich takes it for mark-up and leaves it out
    return typer.Option(flag, *short, help=text, rich_help_panel=panel, envvar=variable)


Port = Annotated[int | None, option("--port", "First task's port; the next ones count up. Default: free ones.", WHERE)]


def _annotation(name: str, kind: Any, panel: str, text: str) -> Any:
    flags = f"{flag_of(name)}/{flag_of('no_' + name)}" if kind is bool else flag_of(name)
    return Annotated[
        kind | None,
        typer.Option(flags, help=text, rich_help_panel=panel, envvar=twin(name), show_default=False),
    ]


TRAINING: Mapping[str, Any] = {name: _annotation(name, kind, panel, text) for name, kind, panel, text in _ROWS}
OF_A_STRATEGY = ("strategy", "keras", *(name for name, _, panel, _ in _ROWS if panel in (WHERE, HOW)))
"""Options that also mean something to a program of the user's own; those of the training do not."""


def training_options(only: tuple[str, ...] = tuple(TRAINING)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options named; its `choices` are those that were given, by TrainingSpec's field names."""

    def collect(given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {RENAMED.get(name, name): value for name, value in given.items() if value is not None}

    return gather("choices", {name: TRAINING[name] for name in only}, collect)


def gather(
    parameter: str, options: Mapping[str, Any], collect: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command many options and hand them over as one `parameter`: what `collect` makes of their values.

    Typer reads a command's signature, so the signature is made to hold them, where `parameter` is: that is their place
    in --help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        every: list[inspect.Parameter] = []
        for each in inspect.signature(command).parameters.values():
            every += added if each.name == parameter else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            given = {name: values.pop(name) for name in options}
            command(**{parameter: collect(given)}, **values)

        wrapped.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {each.name: each.annotation for each in every}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def refuse_tf_config() -> None:
    """TF_CONFIG in our own environment would reach every task and contradict what we compute.

    Raises:
        TfdistError: it is set.
    """
    if "TF_CONFIG" in os.environ:
        raise TfdistError(
            f"TF_CONFIG is already set in the environment ({os.environ['TF_CONFIG'][:60]}...): unset it, "
            "or run the one task that it describes with 'tfdist launch --inherit-tf-config'"
        )
