"""Whether a user's own program trained under the strategy that it was started with. Pure: facts in, state out."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Event, Listening, Started
from tfdist.launch.job import Job
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import counted, listed, one_line
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.choice import StrategyChoice


class StrategyCheck(StrEnum):
    """Whether the strategy in a record's spec is the one that the program trained under."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


_LONGEST = 200
"""Characters of a name or place that a task reports."""
_IN_CURRENT = ("memory_limit_mb", "memory_growth", "soft_placement", "log_device_placement")
"""Options that reach a program through the devices that `current()` configures."""
_SCOPE = "build the model in `with strategy.scope():` (docs/convert.md)"
_SHARD = "give each its part, as in data.shard(context.num_input_pipelines, context.input_pipeline_id)"
_FIX = "build the strategy with tfdist.strategies.current(), and the model in its scope (docs/convert.md)"


@dataclass(frozen=True)
class _Use:
    """A `strategy` event: the strategy that a task has built, or trains under."""

    name: str
    """Name of its class."""
    replicas: int
    """Replicas in sync of the whole job."""
    trains: bool
    line: str = ""
    """Line of the program, as ` (train.py:12)`; empty if unknown."""


@dataclass
class StrategyFacts:
    """What the tasks of a job show about their strategy: events, and servers that listen on the ports in TF_CONFIG."""

    uses: dict[str, _Use] = field(default_factory=dict)
    """The last one of each task."""
    listening: set[str] = field(default_factory=set)
    first_batches: dict[str, str] = field(default_factory=dict)
    """A digest of the first batch of each task."""

    def note(self, message: Message) -> None:
        """Take a message of a task; its start forgets the facts of its last attempt."""
        match message:
            case Started(task):
                self.uses.pop(task, None)
                self.first_batches.pop(task, None)
                self.listening.discard(task)
            case Listening(task):
                self.listening.add(task)
            case Event(task, event={"event": "first_batch", "digest": str(digest)}):
                self.first_batches[task] = digest
            case Event(task, event={"event": "strategy", "name": str(name), "replicas": int(replicas)} as event):
                name, line = one_line(name)[:_LONGEST], one_line(str(event.get("line") or ""))[:_LONGEST]
                self.uses[task] = _Use(name, replicas, event.get("trains") is True, f" ({line})" if line else "")

    def judge(self, choice: StrategyChoice, job: Job) -> tuple[StrategyCheck, str]:
        """The check of a job with this choice, and a sentence with the fix if it is refuted or unknown.

        A job whose program has been seen to train under the strategy is confirmed. So is one of several tasks whose
        servers all listened, if it says nothing more: it builds its strategy, or its sessions, from TF_CONFIG.
        """
        row = CATALOG[choice.strategy]

        def refuted(why: str, fix: str) -> tuple[StrategyCheck, str]:
            return StrategyCheck.REFUTED, f"the program did not train under {choice.strategy}{why}; {fix}"

        uses = [self.uses[task] for task in job.leading if task in self.uses and row.trains_built_in]
        known = row.replicas_known and row.exchange is not Exchange.ASYNC
        replicas = choice.devices if row.exchange is Exchange.NONE else choice.replicas
        for use in (use for use in uses if use.trains):
            if use.name.startswith("_DefaultDistribution") and row.class_name:
                return refuted(f": its model was built without the strategy{use.line}", _SCOPE)
            if row.class_name and not use.name.lstrip("_").startswith(row.class_name):
                return refuted(f" but under {use.name}{use.line}", _FIX)
            if known and use.replicas != replicas:
                trained = counted(use.replicas, "replica")
                return refuted(f": it trained {trained} in sync, not {replicas}{use.line}", _FIX)
        digests = list(self.first_batches.values())
        if row.class_name and len(set(digests)) < len(digests):
            return refuted(": its workers train on the same batches", _SHARD)
        if any(use.trains for use in uses) or not (row.class_name or row.graph):
            return StrategyCheck.CONFIRMED, ""
        if uses:
            return refuted(f": it built the strategy{uses[0].line} and ran no step under it", _SCOPE)
        servers = (job.serving or job.leading) if row.has_cluster else ()
        silent = [task for task in servers if task not in self.listening]
        if servers and not silent:
            return StrategyCheck.CONFIRMED, ""
        if len(silent) > 1:
            return refuted(f": {listed(silent)} listened on no port of TF_CONFIG, so each task trained alone", _FIX)
        return StrategyCheck.UNKNOWN, f"it is unknown whether the program trained under {choice.strategy}; {_FIX}"

    def warnings(self, choice: StrategyChoice, job: Job) -> Iterator[str]:
        """What the user of a program that has trained should know."""
        _, sentence = self.judge(choice, job)
        if sentence:
            yield sentence
        changed = [name for name in _IN_CURRENT if getattr(choice, name) != getattr(StrategyChoice, name)]
        if changed and not self.uses:
            yield f"--set {changed[0]} acts in tfdist.strategies.current(), which the program did not call"
