"""Simulated arms, which answer each release at once."""

import os
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfdist.bench.arm_process import ArmStart, Ended, Post
from tfdist.bench.turns import HostReading, Parked
from tfdist.launch.agents.messages import Inspected
from tfdist.launch.events import Turn
from tfdist.models.record import RankRecord, Record, RecordStatus, Window

GB = 10**9


@dataclass
class Box:
    """The host of all simulated arms."""

    gigabytes: float = 100.0
    """Available without any arm; each process takes one."""
    alive: list[str] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    """What happened to which arm, in order."""

    def reading(self, busy_s: float = 0.0, at: float = 0.0) -> Inspected:
        available = (self.gigabytes - len(self.alive)) * GB
        host = {"busy_s": busy_s, "steal_s": 0.0, "cores": 2.0, "available_bytes": available}
        return Inspected({"worker-0": "S"}, {}, {"worker-0": 0.0}, {"worker-0": GB}, host, time=at)


@dataclass
class FakeArm:
    """Answers each release at once. `ends`: how many releases it survives; `busy`: turns in which others are busy."""

    start: ArmStart
    post: Post
    box: Box
    record: Record
    ends: int = 99
    stubborn: bool = False
    ctrl_c: int = 0
    """At this release, Ctrl-C is pressed and nothing is answered."""
    stopped: int = 0
    """At this release, 'tfdist stop' ends its processes."""
    busy: Sequence[int] = ()
    step_s: float = 0.1
    noise: float = 0.0
    """Standard deviation of the logarithm of a turn's step time."""
    learns: int = 0
    """It is evaluated, and reaches an accuracy of 1.0 in this release, 0.5 before; 0: it is not evaluated."""
    releases: int = 0

    def park(self, windows: Mapping[str, tuple[Window, ...]], busy_s: float = 0.0) -> None:
        readings = (HostReading(self.box.reading(), self.box.reading(busy_s, 2.5)),)
        held_out = {
            "examples": 10 * self.releases,
            "loss": 1.0,
            "accuracy": 0.5 if self.releases < self.learns else 1.0,
        }
        observed = {"worker-0": {"held_out": held_out}} if self.learns and windows else {}
        self.post(Parked(self.start.arm, 0.1, windows, readings, self.record, observed))

    def release(self, turn: Turn) -> None:
        self.releases += 1
        if self.releases == self.ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
            return
        self.box.log.append(("end" if not turn.windows else "turn", self.start.arm))
        if not turn.windows and not self.stubborn:
            self.finish(RecordStatus.OK)
        elif turn.windows and self.releases == self.stopped:
            self.finish(RecordStatus.INTERRUPTED, "stopped by 'tfdist stop'")
        elif turn.windows and self.releases > self.ends:
            self.finish(RecordStatus.FAILED, "worker-0 exited with code 1: boom")
        elif turn.windows:
            draw = random.Random(f"{self.start.arm}/{self.start.incarnation}/{self.releases}")
            step_s = self.step_s * draw.lognormvariate(0.0, self.noise)
            windows = (Window(turn.steps, 10 * turn.steps, step_s * turn.steps, 1.0),) * turn.windows
            self.park({"worker-0": windows}, busy_s=1.0 if self.releases in self.busy else 0.0)

    def interrupt(self, number: int, by: str = "") -> None:
        self.box.log.append((f"signal {number}", self.start.arm))
        self.finish(RecordStatus.INTERRUPTED, f"interrupted {by}")

    def finish(self, status: RecordStatus, reason: str = "") -> None:
        if self.start.arm in self.box.alive:
            self.box.alive.remove(self.start.arm)
            self.post(Ended(self.start.arm, replace(self.record, status=status, reason=reason)))


@dataclass
class FakeArms:
    """Starts simulated arms, as `start_arm`. `behaviour`: fields of FakeArm, by arm."""

    box: Box = field(default_factory=Box)
    behaviour: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of the record, by arm."""
    starts: list[ArmStart] = field(default_factory=list)

    def __call__(self, start: ArmStart, post: Post) -> FakeArm:
        rank = RankRecord("worker-0", "box", 1, (), (), {}, 10, 10)
        hardware = {"cores": [0, 1], "memory_bytes": 8 * GB}
        spec = start.spec.to_json() | ({"command": start.words} if start.words else {})
        record = Record(start.arm, 0, spec, RecordStatus.OK, "", 0, (rank,), hardware=hardware)
        record = replace(record, **self.records.get(start.arm, {}))
        arm = FakeArm(
            start, post, self.box, replace(record, incarnation=start.incarnation), **self.behaviour.get(start.arm, {})
        )  # type: ignore[arg-type]
        self.starts.append(start)
        self.box.alive.append(start.arm)
        self.box.log.append(("start", start.arm))
        start.run_dir.mkdir(parents=True)
        if arm.ends < 0:
            arm.finish(RecordStatus.FAILED, "port 5 on this host cannot be used: choose another")
        else:
            arm.park({})
        return arm

    def happened(self, what: str) -> list[str]:
        return [arm for kind, arm in self.box.log if kind == what]
