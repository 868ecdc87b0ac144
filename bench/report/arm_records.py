"""The records of each arm, and what follows from them without a comparison. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tfdist.bench.design import Block
from tfdist.bench.disturbance import Disturbance, disturbances
from tfdist.bench.reading import ResultFolder
from tfdist.bench.references import NO_EFFECT
from tfdist.bench.suites.suite import BASE, Suite
from tfdist.bench.until import unneeded
from tfdist.launch.text import counted
from tfdist.models.record import Record, RecordStatus
from tfdist.models.strategy_check import StrategyCheck
from tfdist.models.throughput import examples_per_step, measuring_ranks, throughput, window_step_ms
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Communication, StrategyName


def label_of(folder: str, text: str) -> str:
    """The name of an arm, or a sentence, after its folder in a report over several."""
    return f"{folder}: {text}" if folder else text


def arm_of(folder: str, text: str) -> str:
    """The opposite of `label_of`: a name or a sentence without its folder."""
    return text.removeprefix(label_of(folder, ""))


@dataclass(frozen=True)
class ArmRecords:
    """One arm of one folder."""

    folder: str
    """The folder's label; empty in a report over one."""
    arm: str
    records: tuple[Record, ...]
    """Records by round; several in a round if the arm was measured in several groups."""
    rounds_planned: int
    spec: Mapping[str, Any]
    """Complete if there is a record of a run, else the choices in the suite."""
    baseline: str | None
    """Name of the folder's arm with which all are compared; None: the one-device arm of the same work."""
    dropped: str
    """Why it was not measured to the end: `slower for sure after 1 of 4 starts`; empty: it was to be."""
    slower: bool
    """Whether a look between the starts found that it is slower than the best for sure."""
    looks: int
    """The number of looks at its bench; with 1, no arm is dropped and the bench does not end early."""
    equal: float
    """The share by which arms may differ that count as equal."""

    @property
    def label(self) -> str:
        """Unique in a report."""
        return label_of(self.folder, self.arm)

    @property
    def strategy(self) -> StrategyName:
        """A row of the catalog."""
        return StrategyName(self.spec["strategy"])

    @cached_property
    def measured(self) -> tuple[Record, ...]:
        """The records with figures."""
        return tuple(record for record in self.records if record.status == RecordStatus.OK)

    def strategy_note(self, check: StrategyCheck) -> str:
        """What the first start with this result says about its strategy; empty: none has it."""
        return next((record.strategy_note for record in self.measured if record.strategy_check is check), "")

    @property
    def refutation(self) -> str:
        """Why its program did not train under its strategy; empty: it did, as far as is known."""
        return self.strategy_note(StrategyCheck.REFUTED)

    @property
    def has_base(self) -> bool:
        """Whether it is compared with an earlier version of itself."""
        return self.baseline == self.arm + BASE

    @cached_property
    def rates(self) -> Mapping[Block, float]:
        """Images/s of each turn. Without incarnations each turn has fresh processes.

        Arms with another baseline are in other blocks: what slows both versions of an arm, and no other, is no noise.
        """
        apart = f"{self.folder}\n{self.baseline}"
        return {
            Block(record.group, record.round, record.incarnation or record.round, apart): throughput(record)
            for record in self.measured
        }

    @cached_property
    def step_ms(self) -> Sequence[float]:
        """`window_step_ms` of all rounds."""
        return [value for record in self.measured for value in window_step_ms(record)]

    @property
    def rounds(self) -> int:
        """The number of rounds with figures."""
        return len({record.round for record in self.measured})

    @property
    def starts(self) -> tuple[Record, ...]:
        """One record with figures for each start of the arm's processes."""
        return tuple({record.incarnation or -record.round: record for record in self.measured}.values())

    @cached_property
    def devices(self) -> int | None:
        """Replicas of the whole job; None if nothing was measured and the machine would have decided."""
        if self.measured:
            return devices_of(self.measured[0])
        workers, devices, strategy = self.spec.get("workers"), self.spec.get("devices"), CATALOG[self.strategy]
        by_machine = (strategy.many_processes and workers is None) or (
            "devices" in strategy.options and workers is devices is None
        )
        return None if by_machine or not strategy.replicas_known else int((workers or 1) * (devices or 1))


def arms_of(folders: Sequence[ResultFolder], baseline: str | None = None) -> tuple[ArmRecords, ...]:
    """The arms of every folder in the order of the suite, those that never ran included.

    `baseline`: an arm in place of the suite's, or of each arm's earlier version.
    """
    arms = []
    for folder in folders:
        suite = folder.bench.suite if folder.bench else None
        choices = {arm.name: arm.choices for arm in suite.arms} if suite else {}
        skipped = Counter(run.arm for run in unneeded(folder.bench, folder.records)) if folder.bench else Counter()
        turns = Counter(run.arm for run in folder.bench.plan) if folder.bench else Counter()
        dropped = folder.bench.dropped if folder.bench else {}
        base_of = {name: pair[1] for pair in suite.version_pairs for name in pair} if suite else {}
        grouped: dict[str, list[Record]] = {name: [] for name in choices}
        for record in sorted(folder.records, key=lambda record: (record.round, record.order)):
            grouped.setdefault(record.arm, []).append(record)
        for arm, records in grouped.items():
            spec = records[0].spec if records else choices[arm]
            planned = (turns[arm] or suite.rounds) - skipped[arm] if suite else len(records)
            looks, slower = (folder.bench.looks, arm in folder.bench.slower) if folder.bench else (1, False)
            why = ""
            if starts := dropped.get(arm):
                reason = "slower for sure" if slower else "not started again"
                why = f"{reason} after {starts} of {counted(looks, 'start')}"
            label = folder.label if len(folders) > 1 else ""
            chosen = baseline or base_of.get(arm) or (suite.baseline if suite else None)
            equal = suite.equal if suite else Suite.equal
            arms.append(ArmRecords(label, arm, tuple(records), planned, spec, chosen, why, slower, looks, equal))
    return tuple(arms)


def devices_of(measured: Record) -> int:
    """Number of replicas of the job. A TPU's number of cores is in the records of its tasks."""
    if not CATALOG[StrategyName(measured.spec["strategy"])].replicas_known:
        return sum(rank.replicas for rank in measured.ranks)
    return int(measured.spec["workers"] * measured.spec["devices"])


_NO_EFFECT = (*NO_EFFECT, "timeout_collective_s")
"""Fields of a spec that do not affect a turn."""


def effective_spec(arm: ArmRecords) -> dict[str, str]:
    """What happens in a turn. Between workers on CPUs TensorFlow's automatic choice is the ring."""
    values = dict(arm.measured[0].spec if arm.measured else arm.spec)
    ring = CATALOG[arm.strategy].all_reduce == "communication" and not values.get("gpus")
    if ring and values.get("communication") == Communication.AUTO:
        values["communication"] = Communication.RING
    return {key: str(value) for key, value in values.items() if key not in _NO_EFFECT}


def same_work(arm: ArmRecords) -> tuple[object, ...]:
    """Equal for measured arms of the same configuration on as many hosts (A/A)."""
    return arm.measured[0].hosts, *sorted(effective_spec(arm).items())


def batches(measured: Record) -> tuple[float, int]:
    """Examples in a step of one device and of all, without backup workers; of the user's own program as measured."""
    devices, batch = devices_of(measured), measured.spec.get("batch_size")
    if batch:
        return batch, batch * (devices - int(measured.spec.get("backup_workers", 0)))
    every = examples_per_step(measured)
    return int(every // devices) if every % devices == 0 else every / devices, round(every)


def disturbances_of(turn: Record) -> tuple[Disturbance, ...]:
    """What disturbed a turn."""
    return disturbances({rank.task: rank.windows for rank in measuring_ranks(turn)}, turn.hosts_usage)


def between_epochs(records: Sequence[Record]) -> str:
    """`0.41 s, about every 31 steps, 3 % of the time`, of the task that is away longest; empty: no epoch has ended."""
    ranks = [max(measuring_ranks(each), key=lambda rank: sum(w.between_s for w in rank.windows)) for each in records]
    windows = [window for rank in ranks for window in rank.windows]
    epochs, seconds = sum(window.epochs for window in windows), math.fsum(window.between_s for window in windows)
    if not epochs:
        return ""
    every = counted(round(sum(window.steps for window in windows) / epochs), "step")
    share = seconds / (seconds + math.fsum(window.elapsed_s for window in windows))
    return f"{seconds / epochs:.2f} s, about every {every}, {100 * share:.0f} % of the time"


def _pinned(record: Record) -> bool:
    """Whether its devices are CPU cores of their own."""
    return bool(record.spec.get("cores_per_device")) and not record.spec.get("gpus")


def devices_outnumber_cores(record: Record) -> bool:
    """Whether pinned devices need more cores than the job's hosts have (all counted like the first)."""
    cores = len(record.hardware.get("cores", ())) * record.hosts
    return bool(cores and _pinned(record) and devices_of(record) * record.spec["cores_per_device"] > cores)


def mark_seconds(sentence: str, arms: Sequence[ArmRecords]) -> str:
    """A sentence about seconds or images/s, marked if an arm that it is about shares cores."""
    records = [record for arm in arms for record in arm.measured]
    # launch/job.py pins parameter servers to the workers' cores
    if any(devices_outnumber_cores(each) or (_pinned(each) and each.spec.get("ps")) for each in records):
        why = "on cores that its processes share: on other hardware the seconds differ"
        return f"{sentence.removesuffix('.')} ({why})."
    return sentence
