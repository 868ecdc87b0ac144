"""A whole bench with simulated arms, of which some are dropped between its starts."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fake_arms import Box, FakeArms
from tfdist.bench.folder import BenchFile, read_bench
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.report.build import make_report
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, local_machines
from tfdist.models.record import RankRecord

MACHINES = local_machines(Machine((0, 1), ()))
SUITE = """
name = "mine"
preset = "smoke"
arms = [
  { name = "one-device", strategy = "one-device" },
  { name = "independent", strategy = "independent", workers = 2 },
  { name = "mirrored", strategy = "mirrored", devices = 2 },
  { name = "central", strategy = "central-storage", devices = 2 },
  { name = "multiworker", strategy = "multiworker", workers = 2 },
  { name = "again", strategy = "multiworker", workers = 2 },
  { name = "ps", strategy = "parameter-server", workers = 2, ps = 1 },
]
[defaults]
dataset = "synthetic"
evaluate = false
"""
STEPS_S = {
    "one-device": 0.2, "independent": 0.1, "mirrored": 0.12, "central": 0.12, "multiworker": 0.25, "again": 0.25,
    "ps": 0.4,
}  # fmt: skip
"""Of each arm."""


@dataclass
class Notes(Progress):
    said: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.said.append(text)


def arms(names: Iterable[str] = STEPS_S, **more: Mapping[str, object]) -> FakeArms:
    two = {"ranks": (RankRecord("worker-0", "box", 2, (), (), {}, 10, 10),)}
    behaviour = {arm: {"step_s": STEPS_S.get(arm, 0.2), "noise": 0.02, **more.get(arm, {})} for arm in names}
    return FakeArms(behaviour=behaviour, records={"mirrored": two, "central": two})


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    return BenchOptions(suite=str(path), out=tmp_path / "out", command="tfdist bench")


def run(session: Session, fakes: FakeArms) -> tuple[int, list[str]]:
    notes = Notes()
    return run_session(session, RunnerHooks(notes, fakes)), notes.said


def saved(session: Session) -> BenchFile:
    bench = read_bench(session.root)
    assert bench is not None
    return bench


def rows(session: Session) -> dict[str, ArmRow]:
    return {row.arm: row for row in summarize([read_folder(session.root, "")])}


def test_slower_arms_are_dropped_and_what_the_others_are_compared_with_is_kept(options: BenchOptions) -> None:
    session, fakes = prepare(options, MACHINES), arms()
    code, said = run(session, fakes)
    starts = Counter(fakes.happened("start"))
    # what is left, its baseline, its ceiling, and a pair of equal arms
    kept = {starts[arm] for arm in ("mirrored", "central", "one-device", "independent", "multiworker", "again")}
    assert (code, starts["ps"], kept) == (0, 1, {3})
    assert said[0] == (
        "after start 1 of 4: not started again, as slower than mirrored for sure: ps; about 5 min left to tell "
        "mirrored and central apart"
    )
    assert saved(session).dropped == {"ps": 1}
    assert {*saved(session).slower} == {"multiworker", "again", "ps", "one-device"}
    found = rows(session)
    assert (found["ps"].status, found["ps"].reason) == ("ok", "slower for sure after 1 of 4 starts")
    assert (found["ps"].rounds, found["mirrored"].rounds) == (3, 9)
    assert session.count_left() == 0


def test_a_bench_ends_when_all_is_decided(options: BenchOptions) -> None:
    session, fakes = prepare(replace(options, equal=0.2), MACHINES), arms()
    _, said = run(session, fakes)
    assert Counter(fakes.happened("start"))["mirrored"] == saved(session).suite.incarnations == 2
    assert said[-1] == "after start 2 of 4: all is decided: the bench ends"
    assert session.count_left() == 0
    assert prepare(BenchOptions(resume=session.root), MACHINES).to_run == ()
    assert rows(session)["mirrored"].rounds_planned == 6


def test_the_report_calls_a_dropped_arm_slower(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    run(session, arms())
    report = make_report([session.root])
    assert report.headline[0].startswith(("Use mirrored or central: ", "Use central or mirrored: "))
    assert "Slower for sure: multiworker, again and ps." in report.headline[0]
    table = json.dumps(report.to_json()["rows"])
    assert "slower for sure after 1 of 4 starts" in table
    few = next(warning for warning in report.warnings if warning.code == "few-starts")
    assert few.advice == "Run 'tfdist bench' with --all and --incarnations 4 or more."


def test_all_measures_every_arm_to_the_end(options: BenchOptions) -> None:
    session, fakes = prepare(replace(options, all=True), MACHINES), arms()
    _, said = run(session, fakes)
    assert set(Counter(fakes.happened("start")).values()) == {4}
    assert (said, saved(session).looks, saved(session).dropped) == ([], 1, {})


@pytest.mark.parametrize(
    "other", [{"all": True}, {"isolated": True}, {"patterns": ("mirrored",), "all": True}], ids=str
)
def test_a_margin_without_dropping_is_refused(options: BenchOptions, other: dict[str, Any]) -> None:
    with pytest.raises(TfdistError, match=r"^--equal 5%: every arm of this bench is measured to the end; omit it"):
        prepare(replace(options, equal=0.05, **other), MACHINES)


def test_an_interrupted_bench_resumes_without_the_arms_that_were_dropped(options: BenchOptions) -> None:
    session = prepare(options, MACHINES)
    code, _ = run(session, arms(central={"ctrl_c": 2} | {}))
    assert code == 130
    first = arms()
    again = prepare(BenchOptions(resume=session.root), MACHINES)
    run(again, first)
    dropped = saved(session).dropped
    assert "ps" in dropped
    assert set(Counter(first.happened("start"))) >= {"mirrored", "central"}
    done = prepare(BenchOptions(resume=session.root), MACHINES)
    assert done.to_run == ()
    more = prepare(BenchOptions(resume=session.root, rounds=12), MACHINES)
    assert {turn.arm for turn in more.to_run}.isdisjoint(dropped)


def test_starts_are_added_for_the_arms_that_are_left(options: BenchOptions) -> None:
    session, fakes = prepare(replace(options, precision=0.04), MACHINES), arms()
    run(session, fakes)
    starts = Counter(fakes.happened("start"))
    assert starts["ps"] < starts["mirrored"] == saved(session).suite.incarnations
    assert starts["mirrored"] >= 6, "a precision needs as many"


def test_the_parts_of_an_explanation_are_kept(options: BenchOptions) -> None:
    session = prepare(replace(options, explain=True), MACHINES)
    fakes = arms(session.arms.specs)
    run(session, fakes)
    starts = Counter(fakes.happened("start"))
    assert starts["no-strategy"] == starts["mirrored"] > starts["ps"]


def test_programs_and_several_hosts_are_dropped_likewise(options: BenchOptions, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tfdist.measure\n")
    Path(str(options.suite)).write_text(SUITE[: SUITE.index("[defaults]")])
    two = {Host(name): Machine((0, 1), ()) for name in ("h1", "h2")}
    for number, machines in enumerate((MACHINES, two)):
        given = replace(options, out=tmp_path / str(number), program=("python", str(tmp_path / "train.py")))
        session, fakes = prepare(given, machines), arms()
        run(session, fakes)
        assert Counter(fakes.happened("start"))["ps"] == 1


def test_a_budget_ends_a_bench_that_drops_arms(options: BenchOptions) -> None:
    session = prepare(replace(options, budget_s=3600.0), MACHINES)
    fakes = arms()
    run(replace(session, budget_s=0.0), fakes)
    assert fakes.starts == []
    assert saved(session).dropped == {}


EFFICIENCIES = {
    "mirrored/auto": 0.9, "mirrored/nccl": 0.9, "multiworker/nccl": 0.88, "mirrored/hierarchical-copy": 0.8,
    "mirrored/reduction-to-one": 0.6, "multiworker/ring": 0.5, "central-storage": 0.35, "parameter-server": 0.3,
}  # fmt: skip
SPEED_UPS = {"mixed_bfloat16": 1.6, "mixed_float16": 1.7, "xla": 1.2}


def gpu_step_s(arm: str, replicas: int) -> float:
    efficiency = next((e for name, e in EFFICIENCIES.items() if arm.startswith(name)), 1.0)
    speed_up = next((times for name, times in SPEED_UPS.items() if arm.endswith(name)), 1.0)
    return 0.1 / (replicas * efficiency * speed_up)


GPU_MACHINES = local_machines(Machine(tuple(range(64)), tuple(f"GPU {number}" for number in range(8))))


def eight_gpus(out: Path) -> Session:
    return prepare(BenchOptions(suite="gpu", out=out, command="tfdist bench"), GPU_MACHINES)


def on_gpus(session: Session, step_s: Callable[[str, int], float] = gpu_step_s) -> FakeArms:
    specs = session.arms.specs
    return FakeArms(
        Box(1e6),
        {arm: {"step_s": step_s(arm, spec.replicas), "noise": 0.015} for arm, spec in specs.items()},
        {
            arm: {"ranks": (RankRecord("worker-0", "box", spec.devices, (), (), {}, 10, 10),)}
            for arm, spec in specs.items()
        },
    )


@pytest.mark.slow
def test_on_eight_gpus_most_combinations_are_predicted_and_the_fastest_is_measured(tmp_path: Path) -> None:
    session = eight_gpus(tmp_path / "out")
    assert session.notes[0].startswith("27 of 60 arms are combinations that the others predict: ")
    specs, fakes = session.arms.specs, on_gpus(session)
    code, said = run(session, fakes)
    assert (code, session.count_left()) == (0, 0)
    starts = Counter(fakes.happened("start"))
    assert sum(starts.values()) < 1.1 * len(specs), "about a quarter of the full design"
    assert "measured from now on: mirrored/auto/8/mixed_bfloat16" in said[0]
    assert "; waiting, as those are predicted to be faster: mirrored/auto/8/float32" in said[0], said[0]
    assert starts["mirrored/auto/8/float32"] == starts["mirrored/nccl/8"] == 1
    # the fastest, its baseline of the same precision, and the ceiling of its size
    assert min(starts[arm] for arm in ("mirrored/auto/8/mixed_float16", "one-device/mixed_float16")) >= 2
    assert starts["independent/8/mixed_float16"] >= 1
    report = make_report([session.root])
    assert report.headline[0].startswith("Use mirrored/auto/8/mixed_float16")
    found = {row.arm: row for row in report.rows}
    predicted = {arm for arm, row in found.items() if row.status == "predicted"}
    assert predicted == specs.keys() - starts.keys()
    assert "independent/2/xla" in predicted
    about = re.fullmatch(r"about (\d+) images/s, not measured", found["independent/2/xla"].reason)
    assert about is not None
    assert int(about[1]) == pytest.approx(2 * 1.2 / 0.1 * 10, rel=0.1)
    assert {row.status for row in report.rows if row.arm not in predicted} == {"ok"}
    assert any(text.startswith(f"{len(predicted)} combinations of the matrix follow from") for text in report.notes)
    assert "Failed, incomplete and invalid arms" not in report.listings


@pytest.mark.slow
def test_arms_that_waited_are_measured_again_if_combinations_are_slower_than_predicted(tmp_path: Path) -> None:
    session = eight_gpus(tmp_path / "out")

    def no_gain_on_several(arm: str, replicas: int) -> float:
        return gpu_step_s("mirrored/auto/8/float32" if arm.startswith("mirrored/auto/8/") else arm, replicas)

    fakes = on_gpus(session, no_gain_on_several)
    fakes.behaviour |= {
        arm: {"step_s": 0.1 / 8 / 0.3, "noise": 0.015}
        for arm in session.arms.specs
        if arm.startswith("multiworker/nccl") and not arm.endswith("float32")
    }
    run(session, fakes)
    starts = Counter(fakes.happened("start"))
    assert starts["mirrored/auto/8/float32"] >= 2
    report = make_report([session.root])
    assert "mirrored/auto/8/float32" in report.headline[0].partition("Slower for sure")[0]


@pytest.mark.slow
def test_arms_that_wait_are_not_called_slower(tmp_path: Path) -> None:
    session = eight_gpus(tmp_path / "out")
    fakes = on_gpus(session)
    fakes.behaviour["mirrored/auto/8/mixed_float16"]["ctrl_c"] = 2
    code, _ = run(session, fakes)
    assert code == 130
    report = make_report([session.root])
    found = {row.arm: row for row in report.rows}
    waiting, slower = found["mirrored/auto/8/float32"], found["central-storage/8"]
    assert (waiting.reason, waiting.slower) == ("not started again after 1 of 4 starts", False)
    assert (slower.reason, slower.slower) == ("slower for sure after 1 of 4 starts", True)
    headline = report.headline[0]
    assert "mirrored/auto/8/float32" not in headline.partition("Slower for sure")[2], headline
    run(prepare(BenchOptions(resume=session.root), GPU_MACHINES), on_gpus(session))
    assert make_report([session.root]).headline[0].startswith("Use mirrored/auto/8/mixed_float16")


def test_all_measures_every_combination(tmp_path: Path) -> None:
    session = prepare(BenchOptions(suite="gpu", all=True, out=tmp_path / "out"), GPU_MACHINES)
    assert {turn.arm for turn in session.to_run} == session.arms.specs.keys()
