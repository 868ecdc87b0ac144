"""Which arms are traced, where, and when: after their turns, once."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tfdist.bench.group import STEPS, Traces, plan_traces, trace
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import resolve_arms
from tfdist.launch.errors import TfdistError
from tfdist.launch.events import Turn
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, local_machines

ONE = {"strategy": "one-device"}
CPU = Machine((0, 1), ())


@dataclass
class FakeGroup:
    """Writes a trace when it is released for one, unless its profiler is broken."""

    members: dict[str, object]
    broken: bool = False
    released: list[tuple[str, Turn]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def progress(self) -> "FakeGroup":
        return self

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trace(self, arm: str, turn: Turn) -> None:
        self.released.append((arm, turn))
        if not self.broken:
            folder = Path(turn.trace) / "worker-0"
            folder.mkdir(parents=True)
            (folder / "box.xplane.pb").touch()


def test_the_built_in_training_is_traced_and_your_own_program_is_not(tmp_path: Path) -> None:
    arms = resolve_arms([Arm("a/1", ONE), Arm("own", ONE, command=("true",))], local_machines(CPU), "smoke")
    traces = plan_traces(tmp_path, arms)
    assert traces.folders == {"a/1": tmp_path / "traces" / "01-a-1"}
    assert traces.notes == ("own: no trace: it runs your own program, which can call tf.profiler.experimental itself",)


def test_a_bench_without_an_arm_to_trace_is_refused(tmp_path: Path) -> None:
    own = resolve_arms([Arm("own", ONE, command=("true",))], local_machines(CPU), "smoke")
    with pytest.raises(TfdistError, match="--trace: it runs your own program"):
        plan_traces(tmp_path, own)
    remote = resolve_arms([Arm("a", ONE)], {Host("h1", "10.0.0.1"): CPU}, "smoke")
    with pytest.raises(TfdistError, match="--trace: traces would be written on the other hosts"):
        plan_traces(tmp_path, remote)


def test_each_arm_is_traced_once(tmp_path: Path) -> None:
    traces = Traces({"a": tmp_path / "a", "b": tmp_path / "b"})
    group = FakeGroup({"a": None, "c": None})
    for _ in range(2):
        trace(group, traces)
    assert group.released == [("a", Turn(1, STEPS, str(tmp_path / "a")))]
    assert group.notes == ["tracing a"]


def test_a_profiler_that_wrote_nothing_is_noted(tmp_path: Path) -> None:
    group = FakeGroup({"a": None}, broken=True)
    trace(group, Traces({"a": tmp_path / "a"}))
    assert group.notes[-1] == "a: tf.profiler wrote no trace; see the arm's logs in runs/"
