"""How long starts and turns took, and the estimate of the next bench from that."""

import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.conftest import record, save_record
from tfdist.bench.durations import LAST, Durations, choice_of, costs_on, durations, remember
from tfdist.bench.folder import BenchFile, BenchPaths, read_bench, read_lines
from tfdist.bench.history import history_file
from tfdist.bench.plan import BY_TABLE, Costs, seconds_left, start_s
from tfdist.bench.plan import incarnations as starts_of
from tfdist.bench.reading import read_records
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import Suite
from tfdist.launch.json_files import append_line, dumps, save_json
from tfdist.models.record import Record, RecordStatus, TurnRecord, Window
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

RECORDED = Path(__file__).parents[2] / "bench_results"
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SUITE = Suite(
    (Arm("a", {"strategy": "one-device"}), Arm("b", {"strategy": "one-device"})), "mine", preset="smoke", turn_s=2.0
)
BENCH = BenchFile(replace(SUITE, rounds=2, incarnations=2), "tfdist bench", BEGAN.isoformat(), ())
BY_SPEC = 2 * (start_s(TrainingSpec()) + SUITE.warmup_s)
"""What the table says of a start of both arms."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "it's; state"))
    return tmp_path / "it's; state" / "tfdist" / "durations.csv"


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def arm(name: str, number: int, begun: float, ended: float, **changes: Any) -> Record:
    first = replace(record(name), round=0, incarnation=number, started=at(begun), wall_s=ended - begun, order=number)
    return replace(first, **changes)


def turn(name: str, number: int, begun: float, round: int = 1, repeated: bool = False) -> TurnRecord:
    windows = {"worker-0": (Window(1, 10, 2.0, 1.0),)}
    return TurnRecord(name, round, number, 1, int(begun), at(begun), windows, repeated=repeated)


def start(
    number: int, begun: float, ready_s: float, turn_s: float, round: int = 1
) -> tuple[list[Record], list[TurnRecord]]:
    """Of two arms that are ready after `ready_s`, with a turn each."""
    first = begun + ready_s
    turns = [turn("a", number, first, round), turn("b", number, first + turn_s, round)]
    ended = first + 2 * turn_s
    return [arm("a", number, begun, ended), arm("b", number, begun + 1, ended)], turns


def test_arms_start_together_and_repeated_turns_and_the_end_belong_to_the_turns() -> None:
    records, turns = start(1, 0, 20, 4)
    again, more = start(2, 1000, 30, 4, round=2)  # a pause between the two is no part of the bench
    repeated = turn("a", 2, 1038, 2, repeated=True)
    again = [replace(one, wall_s=one.wall_s + 4) for one in again]
    found = durations(BENCH, [*records, *again], [*turns, *more, repeated])
    assert found == Durations(50, pytest.approx(2 * BY_SPEC), 20 / 4 - 2)


def test_arms_that_start_again_beside_others_count_once() -> None:
    records, turns = start(1, 0, 20, 4)
    again, more = start(2, 100, 10, 4)
    found = durations(BENCH, [*records, *again], [*turns, *more])
    assert found == Durations(30, pytest.approx(BY_SPEC), 16 / 2 - 2)


@pytest.mark.parametrize("changes", [{"status": RecordStatus.FAILED}, {"wall_s": 0.0}])
def test_a_start_that_did_not_end_well_does_not_count(changes: dict[str, Any]) -> None:
    records, turns = start(1, 0, 20, 4)
    again, more = start(2, 100, 600, 4)
    again[1] = replace(again[1], **changes)
    found = durations(BENCH, [*records, *again], [*turns, *more])
    assert found is not None
    assert found.starts_s == 20
    assert durations(BENCH, again, more) is None


def test_a_time_that_is_none_counts_as_not_measured() -> None:
    records, turns = start(1, 0, 20, 4)
    assert durations(BENCH, [replace(records[0], started="yesterday"), records[1]], turns) is None


def test_arms_that_are_measured_alone_start_one_after_the_other_without_forks() -> None:
    suite = replace(SUITE, isolated=True)
    records = [arm("a", 1, 0, 14), arm("b", 1, 20, 34)]
    found = durations(replace(BENCH, suite=suite), records, [turn("a", 1, 10), turn("b", 1, 30)])
    by_table = 2 * (start_s(TrainingSpec(), isolated=True) + suite.warmup_s)
    assert found == Durations(20, pytest.approx(by_table), 4 - 2)
    assert by_table > BY_SPEC


def bench(root: Path, ready_s: float, turn_s: float, suite: Suite = SUITE, machine: str = "this") -> None:
    """A bench with one start, whose durations are remembered."""
    root.mkdir(parents=True, exist_ok=True)
    save_json(BenchPaths(root).bench, BenchFile(suite, "tfdist bench", at(0), ()).to_json())
    records, turns = start(1, 0, ready_s, turn_s)
    for one in records:
        save_record(root, one)
    for each in turns:
        append_line(BenchPaths(root).turns, dumps(each.to_json()))
    assert remember(root, machine) == ""


def test_the_next_bench_is_estimated_from_the_last_ones(tmp_path: Path) -> None:
    assert costs_on("this", SUITE) == BY_TABLE
    for number in range(LAST + 2):
        bench(tmp_path / str(number), ready_s=10.0 * number, turn_s=2.0 + number)
    found = costs_on("this", SUITE)
    assert found.starts == pytest.approx(65 / BY_SPEC, rel=1e-3), "the median of 20, 30, ... 110 s"
    assert found.edge_s == pytest.approx(6.5)
    assert costs_on("other", SUITE) == BY_TABLE


def test_a_bench_that_is_resumed_counts_once(tmp_path: Path) -> None:
    bench(tmp_path / "a", 10, 3)
    bench(tmp_path / "b", 30, 3)
    shutil.rmtree(tmp_path / "b")
    bench(tmp_path / "b", 20, 3)
    assert costs_on("this", SUITE).starts == pytest.approx(15 / BY_SPEC, rel=1e-3)


def test_benches_of_the_same_suite_come_before_those_of_the_same_preset(tmp_path: Path) -> None:
    bench(tmp_path / "a", 10, 3)
    other = replace(SUITE, name="other")
    assert costs_on("this", other).starts == pytest.approx(10 / BY_SPEC, rel=1e-3)
    bench(tmp_path / "b", 40, 3, other)
    assert costs_on("this", other).starts == pytest.approx(40 / BY_SPEC, rel=1e-3)
    assert costs_on("this", SUITE).starts == pytest.approx(10 / BY_SPEC, rel=1e-3)
    assert costs_on("this", replace(SUITE, preset="cpu")) == BY_TABLE


def test_a_program_of_ones_own_starts_like_itself_and_not_like_the_training(tmp_path: Path) -> None:
    def suite(*command: str) -> Suite:
        return replace(SUITE, arms=tuple(replace(one, command=command) for one in SUITE.arms))

    bench(tmp_path / "a", 10, 3)
    bench(tmp_path / "b", 40, 3, suite("python", "train.py", "--rate", "0.1"))
    assert costs_on("this", SUITE).starts == pytest.approx(10 / BY_SPEC, rel=1e-3)
    found = costs_on("this", replace(suite("python", "train.py", "--rate", "0.2"), name="other"))
    assert found.starts == pytest.approx(40 / BY_SPEC, rel=1e-3)
    assert costs_on("this", suite("python", "eval.py")) == BY_TABLE


def test_a_bench_without_a_turn_is_not_added(tmp_path: Path, state: Path) -> None:
    save_json(BenchPaths(tmp_path).bench, BenchFile(SUITE, "tfdist bench", at(0), ()).to_json())
    assert remember(tmp_path, "this") == ""
    BenchPaths(tmp_path).bench.write_text("{")
    assert remember(tmp_path, "this") == ""
    assert not state.exists()


def test_a_history_that_cannot_be_written_is_a_warning(tmp_path: Path, state: Path) -> None:
    bench(tmp_path / "a", 10, 3)
    state.unlink()
    state.parent.rmdir()
    state.parent.write_text("a file")
    assert "is not added to" in remember(tmp_path / "a", "this")
    assert costs_on("this", SUITE) == BY_TABLE


WORDS = st.text(st.characters(exclude_categories=["Cs", "Nd"]))


@given(st.lists(st.one_of(WORDS, st.sampled_from(["0", "-1", "nan", "inf", "1e400"])), max_size=4))
def test_lines_without_seconds_are_ignored(cells: list[str]) -> None:
    path = history_file("durations.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    line = ",".join(["this", "/results/0", "mine", "smoke", *cells])
    head = "machine,folder,suite,kind,starts_s,by_table_s,edge_s"
    path.write_text(f"{head}\n{line}\n", encoding="utf-8", errors="replace")
    assert costs_on("this", SUITE) == BY_TABLE


def test_what_a_record_says_of_a_start_is_what_the_plan_said() -> None:
    spec = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2, gpus=True, xla=True)
    assert start_s(choice_of(spec.to_json())) == start_s(spec)
    program = StrategyChoice(strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=1)
    assert start_s(choice_of({**program.to_json(), "command": "python train.py"})) == start_s(program)


def estimate(root: Path, costs: Costs) -> tuple[float, float]:
    """What the estimate says of the turns that a recorded bench has measured, and how long they took."""
    found = read_bench(root)
    assert found is not None
    records = [one for one in read_records(BenchPaths(root).records)[0] if one.incarnation]
    turns, _ = read_lines(BenchPaths(root).turns, TurnRecord.from_json)
    specs = {one.arm: choice_of(one.spec) for one in records}
    seconds = seconds_left(starts_of(found.plan, found.ends), specs, found.suite, costs)
    begun = min(datetime.fromisoformat(one.started) for one in records)
    ended = max(datetime.fromisoformat(one.started) + timedelta(seconds=one.wall_s) for one in records)
    assert {(each.arm, each.round) for each in turns} == {(run.arm, run.round) for run in found.plan}
    return seconds, (ended - begun).total_seconds()


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("20261124T102831Z-cpu", "20261124T124638Z-cpu-explain"), ("compare/base", "compare/again"),
     ("compare/again", "compare/burned"), ("prediction/fitted", "prediction/slow")],
)  # fmt: skip
def test_a_recorded_bench_is_estimated_from_an_earlier_one_of_its_machine(earlier: str, later: str) -> None:
    assert remember(RECORDED / earlier, "this") == ""
    found = read_bench(RECORDED / later)
    assert found is not None
    estimated, measured = estimate(RECORDED / later, costs_on("this", found.suite))
    assert estimated == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("name", ["20261124T102831Z-cpu", "batch", "classic", "peers", "peers-jax", "storage"])
def test_a_recorded_bench_that_is_repeated_is_estimated_to_take_as_long(name: str) -> None:
    assert remember(RECORDED / name, "this") == ""
    found = read_bench(RECORDED / name)
    assert found is not None
    estimated, measured = estimate(RECORDED / name, costs_on("this", found.suite))
    assert estimated == pytest.approx(measured, rel=0.05)
