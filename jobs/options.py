"""Every option that several commands share: its name, help and type, once. Job files and `--set` read the same table.

In a text, {choices} stands for the values of a closed choice, {strategies} for the strategies that the option changes.
An option of a training has the type of the field of TrainingSpec that it sets. How options are written is in strategies/options.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import RestartOn
from tfdist.launch.quantities import parse_seconds, parse_size
from tfdist.launch.schedulers.table import BATCH_SYSTEMS
from tfdist.launch.text import did_you_mean, listed
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import field_types
from tfdist.strategies.options import SETTINGS, fix_of_choice, option_name

WHAT, SIZE, HOW, TRAIN, TIMING = "What to run", "Size", "Communication", "Training", "Timing"
HOSTS, OUTPUT = "Hosts", "Output"
RECOVERY, TIMEOUTS = "Checkpoints and restarts", "Timeouts"
PANELS = (WHAT, SIZE, TIMING, HOSTS, RECOVERY, OUTPUT, TIMEOUTS, TRAIN, HOW)
"""The parts of a help, in the order in which people need them."""


class Seconds(float):
    """A duration: 5s, 10m, 1h, 30d, or a number of seconds."""


class Bytes(int):
    """A size: 4096, 64K, 64M or 1G, where K is 1024."""


EXPECTED: Mapping[Any, str] = {
    int: "must be an integer",
    float: "must be a number",
    bool: "must be true or false",
    str: "must be a string",
}
"""How to fix a value of another type."""
_FIELDS = {
    "timeout_collective": "timeout_collective_s", "memory_limit": "memory_limit_mb", "start_timeout": "start_timeout_s",
    "grace_period": "grace_s", "launcher_timeout": "launcher_timeout_s",
}  # fmt: skip
"""Fields of TrainingSpec and of Policy that have a unit in their name, by option."""


def choices_of(kind: Any) -> tuple[str, ...]:
    """The values of a closed choice; nothing of another type."""
    return tuple(map(str, kind)) if isinstance(kind, type) and issubclass(kind, Enum) else ()


@dataclass(frozen=True)
class Option:
    """An option of the command line, which is also a key of a job file and a variable TFDIST_NAME."""

    name: str
    """Key in a job file: with _ between words."""
    panel: str
    """The part of the help that lists it."""
    help: str
    type: Any = None
    """None: that of the field of TrainingSpec."""
    least: float | None = None
    """The smallest value."""

    @property
    def kind(self) -> Any:
        """The type of its value."""
        return self.type or _TYPES[self.field]

    @property
    def field(self) -> str:
        """The field of TrainingSpec, or of Policy, that it sets."""
        return _FIELDS.get(self.name, self.name)

    @property
    def choices(self) -> tuple[str, ...]:
        """Its values if they are closed, else nothing."""
        return choices_of(self.kind)

    @property
    def text(self) -> str:
        """The help, with the values of a closed choice and the strategies that it changes."""
        *others, last = self.choices or ("",)
        strategies = ", ".join(name for name, row in CATALOG.items() if self.field in row.options)
        return self.help.replace("{choices}", f"{', '.join(others)} or {last}").replace("{strategies}", strategies)

    @property
    def parser(self) -> Callable[[str], Any] | None:
        """Reads a value that has a notation of its own; None: it has none."""
        if self.kind is Seconds:
            return partial(parse_seconds, flag=option_name(self.name), least=0.0)
        return partial(parse_size, flag=option_name(self.name)) if self.kind is Bytes else None

    def in_unit(self, value: Any) -> Any:
        """The value of the option in the unit of its field."""
        return value >> 20 if self.field.endswith("_mb") else value


_TYPES = field_types(TrainingSpec)
_ONE_PROCESS = listed(row.name for row in CATALOG.values() if row.one_process)
TRAINING = (
    Option("strategy", WHAT, "{choices}. Default: auto, by --ps, --workers, the hosts and devices."),
    Option("preset", WHAT, "Defaults of all other options: smoke, cpu or reference (cats_vs_dogs). Default: reference with a GPU, else cpu.", str),
    Option("workers", SIZE, "Worker processes in all. Default: one per GPU or slot; 2 on a CPU."),
    Option("ps", SIZE, "Number of parameter servers. Default: 1; in-graph: 0."),
    Option("devices", SIZE, f"GPUs or virtual CPU devices of a task. Default for {_ONE_PROCESS}: all GPUs, or 2 on a CPU."),
    Option("cores_per_device", SIZE, "Cores that each CPU device is pinned to. Default: 1; not pinned with your own COMMAND."),
    Option("intra_op_threads", SIZE, "TensorFlow's intra-op threads in each task. Default: one per pinned core."),
    Option("logical_gpus", SIZE, "Number of parts into which the machine's one GPU is cut, to try several devices on one card."),
    Option("communication", HOW, "All-reduce between workers ({strategies}): {choices}. Default: auto: nccl if all workers have GPUs."),
    Option("cross_device", HOW, "All-reduce in a process ({strategies}): {choices}."),
    Option("packs", HOW, "Number of all-reduces that the gradients are split into (mirrored with nccl or hierarchical-copy)."),
    Option("bytes_per_pack", HOW, "Bytes of gradients in each all-reduce, as 4M (multiworker, mirrored with auto). Default: one all-reduce.", Bytes),
    Option("gradient_dtype", HOW, "Type of exchanged gradients ({strategies}): {choices}. Default: float32."),
    Option("timeout_collective", HOW, "Time after which an all-reduce fails if a peer does not join ({strategies}). Default: no timeout.", Seconds),
    Option("variable_partitioner", HOW, "Split variables across parameter servers: none, fixed:N, min-size:BYTES or max-size:BYTES."),
    Option("gpu_threads", HOW, "Threads that start GPU kernels (TF_GPU_THREAD_MODE): {choices}. Default: global."),
    Option("memory_growth", SIZE, "Take GPU memory as it is needed; false: nearly all of it at the start. Default: true."),
    Option("memory_limit", SIZE, "Memory that each task takes of each of its GPUs at the start, and no more, as 8G. Default: no limit.", Bytes),
    Option("soft_placement", SIZE, "Let TensorFlow run an operation on another device if the requested one has no kernel for it. Default: true."),
    Option("log_device_placement", OUTPUT, "Log where TensorFlow places each operation, and count operations by device in placement.csv in the run folder."),
    Option("placement", HOW, "Parameter server of each variable: the next in turn (round-robin), or the one with the fewest bytes (greedy)."),
    Option("sync", HOW, "Workers wait for each other in each step ({strategies})."),
    Option("backup_workers", HOW, "With sync: number of workers that a step does not wait for, whichever are slowest. Default: 0."),
    Option("model", TRAIN, "{choices}; tiny has no BatchNorm and trains in seconds. Default: mobilenet_v2."),
    Option("alpha", TRAIN, "Width multiplier of MobileNetV2: 0.35, 0.5, 0.75, 1.0, 1.3 or 1.4."),
    Option("image_size", TRAIN, "Height and width of the images in pixels, at least 32."),
    Option("classes", TRAIN, "Number of classes of synthetic data."),
    Option("bn_momentum", TRAIN, "BatchNorm momentum. Keras' 0.999 lags for thousands of steps; 0.9 suits short trainings."),
    Option("batch_size", TRAIN, "Examples per replica and step."),
    Option("global_batch_size", TRAIN, "Examples per step over all replicas, instead of --batch-size.", int),
    Option("steps", TRAIN, "Training steps, with warm-up; of all workers if asynchronous."),
    Option("epochs", TRAIN, "Passes over the data set, instead of --steps."),
    Option("learning_rate", TRAIN, "Learning rate. Default: 0.001."),
    Option("optimizer", TRAIN, "{choices}. Default: adam."),
    Option("ema", TRAIN, "Decay of moving averages of the weights, as 0.999; evaluation and export use the averages. Default: none."),
    Option("precision", TRAIN, "Keras dtype policy: {choices}. Default: float32."),
    Option("keras", TRAIN, "2: tf_keras, with every strategy. 3: see 'tfdist strategies'. Default: 2."),
    Option("api", TRAIN, "loop: a custom training loop with timing. fit: Model.fit. Default: loop."),
    Option("xla", TRAIN, "Compile the training step with XLA."),
    Option("meta_optimizer", TRAIN, "Let TensorFlow rewrite the graph before the first step; false: it starts 1 to 2 s earlier. Default: true, except with --preset smoke."),
    Option("seed", TRAIN, "Seed of initial weights, shuffling and synthetic data. Default: 0."),
    Option("evaluate", TRAIN, "Measure accuracy on held-out examples after training. Default: if the data set has any."),
    Option("dataset", TRAIN, "synthetic, digits, tfds:NAME (prepared before), or folder:PATH (a subfolder per class)."),
    Option("data_dir", TRAIN, "Folder of TFDS data. Default: TFDS_DATA_DIR, or ~/tensorflow_datasets."),
    Option("shuffle", TRAIN, "Size of the shuffle buffer in examples. Default: 1024."),
    Option("steps_per_call", TRAIN, "Steps in one call of the training function (parameter-server: in one closure). Default: 1."),
    Option("steps_per_window", TIMING, "Number of steps per timed window."),
    Option("warmup_steps", TIMING, "Minimum number of steps before timing starts. Default: 10."),
    Option("step_times", TIMING, "Read the clock in each step, to name a worker for which the others wait. Default: with several synchronous workers on CPUs."),
    Option("count_updates", TIMING, "Count each worker's updates (parameter-server), to name a slow one. Default: with several workers."),
    Option("log_limit", OUTPUT, "Size of each log of a task, and of the events. Default: 10G.", Bytes),
    Option("copy_limit", OUTPUT, "Size of the compressed folder of --copy. Default: 64M.", Bytes),
)  # fmt: skip
HOST_OPTIONS = (
    Option("hosts", HOSTS, "[user@]host[:slots],... or node[01-04]. Repeatable.", list[str]),
    Option("hostfile", HOSTS, "A host per line: [user@]host [slots=N] [role=ps] [addr=A] [port=P] [gpus=0,1] [python=P] [chdir=D].", Path),
    Option("exclude", HOSTS, "Do not use hosts that match, as 'node0*'. Repeatable.", list[str]),
    Option("workers_per_host", HOSTS, "Workers on each host. Default: one per GPU, or 1.", int),
    Option("transport", HOSTS, f"ssh (default), {', '.join(system.TRANSPORT for system in BATCH_SYSTEMS)}, exec:'kubectl exec -i {{host}} --', or shell:'ssh {{host}} apptainer exec tf.sif {{command}}'.", str),
    Option("ssh", HOSTS, "OpenSSH client with options, as 'ssh -p 2222 -i key'; better in ~/.ssh/config.", str),
    Option("remote_prefix", HOSTS, "Words before the command on other hosts: 'module load cuda &&', 'apptainer exec tf.sif'.", str),
    Option("interface", HOSTS, "Network of the tasks and of NCCL on all hosts, as eth1.", str),
    Option("python", HOSTS, "Python on other hosts. Default: the path of this one if it exists there, else python3.", str),
    Option("chdir", HOSTS, "Working directory on the hosts. Default: the current one if it exists there, else home.", str),
)  # fmt: skip
RECOVERY_OPTIONS = (
    Option("checkpoint_every", RECOVERY, "Save a checkpoint every N steps (200) or after a time (30s, 10m, 1h). Your own program saves by itself in TFDIST_CHECKPOINT_DIR.", str),
    Option("checkpoint_dir", RECOVERY, "Folder that all hosts share, or gs://. Default: checkpoints in the run's folder.", str),
    Option("keep", RECOVERY, "Number of checkpoints to keep, the newest ones. Default: 3.", int, least=1),
    Option("resume", RECOVERY, "Continue a run (last, a name or a path) or a folder. auto: --checkpoint-dir if it holds a checkpoint, else start.", str),
    Option("evaluator", RECOVERY, "Add a task that measures accuracy on held-out examples of each checkpoint, on the CPU.", bool),
    Option("max_restarts", RECOVERY, "Restart failed tasks from the last checkpoint, N times at most.", int, least=0),
    Option("restart_on", RECOVERY, "What to restart after, with --max-restarts: {choices}. preemption is exit code 42. Default: any.", RestartOn),
    Option("min_workers", RECOVERY, "With --max-restarts: continue with fewer workers, at least N, if hosts are lost.", int, least=1),
    Option("stall_timeout", RECOVERY, "Time without a step after which all stacks are saved and the job is stopped or restarted; 0: no limit. Default: 5m.", Seconds),
    Option("stop_on_nan", RECOVERY, "Stop when the loss is not finite. Default: print a warning.", bool),
)  # fmt: skip
TIMEOUT_OPTIONS = (
    Option("start_timeout", TIMEOUTS, "Time for all hosts to be ready, and then for all tasks to be started. Default: 60s.", Seconds, least=1.0),
    Option("grace_period", TIMEOUTS, "Time between SIGTERM and SIGKILL. Default: 5s.", Seconds, least=0.0),
    Option("launcher_timeout", TIMEOUTS, "Time that tasks on other hosts outlive a silent launcher (Ctrl-Z, a cut link). Default: 60s.", Seconds, least=5.0),
)  # fmt: skip

OPTIONS = (*TRAINING, *HOST_OPTIONS, *RECOVERY_OPTIONS, *TIMEOUT_OPTIONS)
KEYS: Mapping[str, Option] = {row.name: row for row in OPTIONS if row.name in SETTINGS}
"""The options that `--set` gives, by key."""


def read_setting(word: str) -> tuple[str, Any]:
    """Key and value of `packs=2`, the argument of `--set`.

    Raises:
        TfdistError: the key does not exist, or its value has another type.
    """
    key, equals, text = word.partition("=")
    key = key.strip().replace("-", "_")
    if key not in KEYS:
        raise TfdistError(f"--set {word}: no key {key!r}; {did_you_mean(key, KEYS)}")
    if not equals:
        raise TfdistError(f"--set {word}: needs a value, as --set {key}=VALUE")
    option = KEYS[key]
    text = text.strip()
    if option.parser is not None:
        return key, option.parser(text)
    if option.choices and text not in option.choices:
        raise TfdistError(f"--set {key}={text}: {fix_of_choice(key, text, option.choices)}")
    try:
        return key, {"true": True, "false": False}[text.lower()] if option.kind is bool else option.kind(text)
    except (KeyError, ValueError):
        raise TfdistError(f"--set {key}={text}: {EXPECTED[option.kind]}") from None
