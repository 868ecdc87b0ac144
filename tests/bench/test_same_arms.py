"""The history of equal arms: what a bench adds, and the floor that follows from it."""

import csv
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.history import history_file
from tfdist.bench.report.build import summarize_report
from tfdist.bench.same_arms import FEWEST_PAIRS, SamePair, floor_on, machine_name, remember
from tfdist.bench.statistics import FLOOR, Comparison
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.machine import Machine


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "it's; state"))
    return tmp_path / "it's; state" / "tfdist" / "same_arms.csv"


def pair(ratio: float, error: float | None = 0.01) -> SamePair:
    return SamePair("b", "a", Comparison(ratio, None, 12, 1), error)


def measured(machine: str, sd: float, number: int, error: float = 0.01) -> None:
    draw = random.Random(1)
    for index in range(number):
        ratio = math.exp(draw.gauss(0, math.hypot(sd, error)))
        assert remember([pair(ratio, error)], machine, Path(f"/results/{index}")) == ""


def test_a_machine_without_history_has_the_default() -> None:
    measured("other", 0.05, FEWEST_PAIRS)
    measured("this", 0.05, FEWEST_PAIRS - 1)
    assert floor_on("this") == FLOOR


@pytest.mark.parametrize("sd", [0.0, 0.03])
def test_the_floor_is_what_pairs_differ_by_beyond_their_own_noise(sd: float) -> None:
    measured("this", sd, 400)
    assert floor_on("this") == pytest.approx(sd, abs=0.004)


def test_a_bench_that_is_resumed_counts_once(state: Path) -> None:
    measured("this", 0.0, FEWEST_PAIRS - 1)
    remember([pair(1.5)], "this", Path("/results/0"))
    assert floor_on("this") == FLOOR
    assert len(state.read_text().splitlines()) == 1 + FEWEST_PAIRS


def test_pairs_of_few_starts_are_not_added(state: Path) -> None:
    remember([pair(1.1, None)], "this", Path("/results/0"))
    assert not state.exists()


def test_a_bench_with_equal_arms_adds_them(state: Path) -> None:
    times = (0.1, 0.101, 0.1, 0.102)
    records = [
        record(arm, [[factor * time]], round=number)
        for arm, factor in (("a", 1.0), ("b", 1.02))
        for number, time in enumerate(times, start=1)
    ]
    _, pairs = summarize_report([folder(records)])
    remember(pairs, "this", Path("/results/x"))
    (line,) = csv.DictReader(state.read_text().splitlines())
    assert (line["machine"], line["folder"], line["arm"], line["other"]) == ("this", "/results/x", "b", "a")
    assert float(line["ratio"]) == pytest.approx(1 / 1.02, abs=1e-3)
    assert 0 <= float(line["error"]) < 0.001


def test_a_history_that_cannot_be_written_is_a_warning(state: Path) -> None:
    state.parent.parent.write_text("a file")
    assert "is not added to" in remember([pair(1.0)], "this", Path("/results/0"))


WORDS = st.text(st.characters(exclude_categories=["Cs", "Nd"]))  # without digits, of which a ratio could be made


@given(st.lists(st.one_of(WORDS, st.sampled_from(["this", "0", "-1", "nan", "inf", "x", "1e400"])), max_size=6))
def test_lines_that_are_no_pairs_are_ignored(cells: list[str]) -> None:
    text = "\n".join(",".join(["this", str(number), *cells]) for number in range(2 * FEWEST_PAIRS))
    path = history_file("same_arms.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("machine,folder,arm,other,ratio,error\n" + text, encoding="utf-8", errors="replace")
    assert floor_on("this") == FLOOR


def test_the_name_of_a_machine_is_its_hardware() -> None:
    assert machine_name({LOCAL: Machine((0, 1), ("H100",))}).endswith(", 2 cores, H100")
