"""What a collective measurement exchanges, and how: complete before any process starts. Tasks receive it as JSON."""

from dataclasses import dataclass
from typing import ClassVar

from tfdist.models.collectives.op import CollectiveOp
from tfdist.models.spec import Architecture
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import GradientDtype


@dataclass(frozen=True)
class CollectiveSpec(StrategyChoice):
    """A strategy, and the operation that its replicas run with buffers of several sizes."""

    VARIABLE: ClassVar[str] = "TFDIST_COLLECTIVE_SPEC"

    op: CollectiveOp = CollectiveOp.ALL_REDUCE
    sizes: tuple[int, ...] = ()
    """Bytes of single tensors: of each rank's buffer; for all-gather, of the result."""
    model_gradients: bool = False
    """Also exchange all gradients of the model in one call, as a training step does."""
    pack_sizes: tuple[int, ...] = (0,)
    """CommunicationOptions.bytes_per_pack values for the model's gradients; 0: one all-reduce for all of them."""
    model: Architecture = Architecture.MOBILENET_V2
    alpha: float = 1.0
    classes: int = 1000
    gradient_dtype: GradientDtype = GradientDtype.FLOAT32
    turn_s: float = 5.0
    """Timed seconds of a turn, divided equally between the sizes; at least one operation of each is run."""
    seed: int = 0
    """Seed of the order of sizes in each turn."""
