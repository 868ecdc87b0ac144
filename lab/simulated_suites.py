"""Suites whose arms have a known throughput, for simulations of benches. No GPU is used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from lab.calibrate_statistics import RECORDS
from tfdist.bench.plan import start_s
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.summary import statistics_of
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import load_suite
from tfdist.models.spec import TrainingSpec
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import Exchange

GPU_START_S, XLA_START_S = 15.0, 70.0
"""Seconds of a start on GPUs, warm-up included."""
EFFICIENCY = {
    "one-device": 1.0, "independent": 1.0, "mirrored/auto": 0.9, "multiworker/nccl": 0.88, "mirrored/nccl": 0.9,
    "mirrored/hierarchical-copy": 0.8, "mirrored/reduction-to-one": 0.55, "multiworker/ring": 0.8,
    "central-storage": 0.35, "parameter-server": 0.3,
}  # fmt: skip
"""Assumed: throughput on eight GPUs in float32 over eight times that of one; each doubling loses the same share."""
GAIN = {"mixed_bfloat16": 1.6, "mixed_float16": 1.7, "xla": 1.2}
"""Assumed: throughput of one GPU over that in float32."""


@dataclass(frozen=True)
class Machine:
    """How throughputs on GPUs follow from EFFICIENCY and GAIN."""

    devices: int = 8
    spread: float = 0.1
    """Standard deviation of the logarithms of efficiencies and gains, drawn for each bench."""
    least_shrink: float = 0.0
    """The logarithm of a gain is smaller by this share at least when eight devices exchange; negative: larger."""
    most_shrink: float = 0.3
    """Same, at most. Each combination draws its share; on two and four devices it is a third and two thirds of it."""
    xla: float = 0.0
    """XLA gains up to this share more when eight devices exchange: their one process launches fewer kernels."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Those of the suite gpu that it can run."""
        return _gpu_arms(self.devices)

    def logs(self, draw: np.random.Generator) -> dict[str, float]:
        """Natural logarithm of each arm's images/s over those of one device in float32."""
        efficiency = {
            name: math.log(value) + self.spread * draw.standard_normal() for name, value in EFFICIENCY.items()
        }
        gain = {name: math.log(value) + self.spread * draw.standard_normal() for name, value in GAIN.items()}
        logs = {}
        for arm in self.arms:
            doublings = math.log2(devices_of(arm)) / 3
            exchanges = exchange(arm.choices) is not Exchange.NONE
            kind = next(name for name in EFFICIENCY if arm.name.startswith(name))
            loss = min(efficiency[kind], 0.0) * doublings if exchanges else 0.0
            precision = arm.levels.get("precision", "float32")
            shrink = draw.uniform(self.least_shrink, self.most_shrink) * doublings if exchanges else 0.0
            faster = gain.get(precision, 0.0) * (1 - shrink)
            if precision == "xla" and exchanges:
                faster += math.log1p(draw.uniform(0, self.xla)) * doublings
            logs[arm.name] = math.log(devices_of(arm)) + loss + faster
        return logs


@dataclass(frozen=True)
class SimulatedArm:
    """An arm whose throughput is known."""

    name: str
    log: float
    """The natural logarithm of its true throughput."""
    start_s: float
    """Seconds of a start, warm-up included."""
    devices: int = 2
    exchanges: bool = True
    """Whether its devices exchange gradients."""
    work: str = "float32"
    """Equal for arms that are compared with the same baselines."""


@dataclass(frozen=True)
class SimulatedSuite:
    """The arms of a bench."""

    name: str
    arms: tuple[SimulatedArm, ...]
    same: tuple[str, ...]
    """Two equal arms (A/A), which are measured to the end."""

    @cached_property
    def true(self) -> Mapping[str, float]:
        """`SimulatedArm.log` by name."""
        return {arm.name: arm.log for arm in self.arms}

    @cached_property
    def ranked(self) -> list[str]:
        """The arms that compete, as `summary.rank` chooses them."""
        exchanging = [arm for arm in self.arms if arm.exchanges]
        return [arm.name for arm in [arm for arm in exchanging if arm.devices > 1] or exchanging]

    @cached_property
    def baselines(self) -> Mapping[str, list[str]]:
        """Of each arm the one on one device, if there is one, and then the one without exchange on as many devices."""
        first: dict[tuple[int, str], str] = {}
        for arm in self.arms:
            if arm.devices == 1 or not arm.exchanges:
                first.setdefault((arm.devices, arm.work), arm.name)
        keys = {arm.name: dict.fromkeys([(1, arm.work), (arm.devices, arm.work)]) for arm in self.arms}
        return {arm: [first[key] for key in of_arm if key in first] for arm, of_arm in keys.items()}

    def with_logs(self, logs: Mapping[str, float]) -> "SimulatedSuite":
        """The same arms with other true throughputs."""
        return replace(self, arms=tuple(replace(arm, log=logs[arm.name]) for arm in self.arms))


@cache
def cpu_suite() -> SimulatedSuite:
    """Suite cpu with the throughputs of the recorded bench."""
    folder = read_folder(RECORDS, "")
    recorded = statistics_of(arms_of([folder]), [folder])
    suite = load_suite("cpu")
    seconds = {arm.name: start_s(TrainingSpec(**arm.choices)) + suite.warmup_s for arm in suite.arms}
    arms = (_simulated(arm, recorded.log(arm.name), seconds[arm.name]) for arm in suite.arms)
    return SimulatedSuite("cpu", tuple(arms), ("multiworker/auto", "multiworker/ring"))


@cache
def gpu_suite(gpus: int) -> SimulatedSuite:
    """Suite gpu on a machine with this number of GPUs, with the throughputs that EFFICIENCY and GAIN give."""
    machine = Machine(gpus, spread=0.0, most_shrink=0.0)
    logs = machine.logs(np.random.default_rng(0))
    seconds = {True: XLA_START_S, False: GPU_START_S}
    arms = (_simulated(arm, logs[arm.name], seconds[bool(arm.choices.get("xla"))]) for arm in machine.arms)
    return SimulatedSuite(f"gpu on {gpus}", tuple(arms), ("one-device/float32", "one-device/again"))


def ten_arms(better: float = 0.0) -> SimulatedSuite:
    """Ten arms that compete, the last one better than the others by this share."""
    arms = [SimulatedArm(str(number), 0.0, 9.0) for number in range(10)]
    arms[-1] = replace(arms[-1], log=math.log1p(better))
    name = f"one of ten {100 * better:.0f} % better" if better else "ten equal"
    return SimulatedSuite(name, tuple(arms), ("0", "1"))


def devices_of(arm: Arm) -> int:
    """Its number of devices."""
    spec = TrainingSpec(**arm.choices)
    return spec.devices * spec.workers


def _simulated(arm: Arm, log: float, seconds: float) -> SimulatedArm:
    spec = TrainingSpec(**arm.choices)
    exchanges = exchange(arm.choices) is not Exchange.NONE
    return SimulatedArm(arm.name, log, seconds, devices_of(arm), exchanges, "xla" if spec.xla else spec.precision)


@cache
def _gpu_arms(gpus: int) -> tuple[Arm, ...]:
    return tuple(arm for arm in load_suite("gpu").arms if devices_of(arm) <= gpus)
