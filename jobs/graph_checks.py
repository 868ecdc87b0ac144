"""Checks of trainings in graph mode (tf.compat.v1): what their sessions cannot do is refused."""

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Precision, StrategyName


def check_backup_workers(choice: StrategyChoice) -> None:
    """Refuse backup workers of asynchronous workers, and as many as there are workers.

    Raises:
        TfdistError: one of these.
    """
    backup = f"--set backup_workers={choice.backup_workers}"
    if choice.backup_workers and not choice.sync:
        raise TfdistError(f"{backup}: asynchronous workers wait for nobody; add --sync, or omit it")
    if choice.backup_workers >= choice.workers:
        raise TfdistError(
            f"{backup}: a step needs the gradients of at least one of the {choice.workers} workers; use "
            f"{choice.workers - 1} or fewer"
        )


def check_graph(spec: TrainingSpec) -> None:
    """Refuse options that a training in graph mode would ignore.

    Raises:
        TfdistError: one of them is set.
    """
    if not CATALOG[spec.strategy].graph:
        return
    refused = (
        (f"--precision {spec.precision}", spec.precision is not Precision.FLOAT32, "it trains in float32"),
        ("--xla", spec.xla, "its graphs are not compiled"),
        (f"--steps-per-call {spec.steps_per_call}", spec.steps_per_call > 1, "each step is a call of a session"),
        ("step_times", spec.step_times, "its sessions do not report the times of steps"),
    )
    for option, chosen, reason in refused:
        if chosen:
            raise TfdistError(f"{option} --strategy {spec.strategy}: {reason}; omit it")


def check_not_graph(choice: StrategyChoice) -> None:
    """Refuse a strategy without tf.distribute for a custom program.

    Raises:
        TfdistError: it is one.
    """
    if CATALOG[choice.strategy].graph:
        raise TfdistError(
            f"--strategy {choice.strategy}: a COMMAND gets a strategy of tf.distribute, and this is none; omit the "
            f"COMMAND, or use --strategy {StrategyName.PARAMETER_SERVER}, whose TF_CONFIG is the same"
        )
