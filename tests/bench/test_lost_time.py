"""The parts of a loss, on turns whose parts are known."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.bench.lost_time import (
    LossByTurn,
    LostTime,
    Part,
    Slowest,
    Turns,
    UnknownLoss,
    loss_by_turn,
    mean_losses,
    phases_of,
)
from tfdist.bench.references import Reference
from tfdist.models.record import Record

from .conftest import record

STEPS = 8
SECONDS = st.floats(1e-3, 0.5)


def times(local_s: Sequence[float], common_s: float, clocks: Sequence[float]) -> dict[str, dict[str, object]]:
    """What the tasks observe: rank r needs `local_s[r]`, then all wait for the last one, and `common_s` more."""
    step_s = max(local_s) + common_s
    done = [number * step_s for number in range(STEPS)]
    rows = [[0.0, *(end + local for end in done[:-1])] for local in local_s]
    return {
        f"worker-{index}": {"step_times": {"start": clock, "ready": [ready], "done": done, "gradient_bytes": 4000}}
        for index, (ready, clock) in enumerate(zip(rows, clocks, strict=True))
    }


def arm(strategy: str, local_s: Sequence[float], common_s: float = 0.0, clocks: Sequence[float] = (0, 0)) -> Record:
    """A turn of ranks that step together, or one after the other if nothing is common."""
    hosts = ["box" if clock == 0 else f"box-{clock:g}" for clock in clocks][: len(local_s)]
    every = [[max(local_s) + common_s]] * len(local_s)
    made = record(strategy, every, strategy=strategy, workers=len(local_s), hosts=hosts)
    return replace(made, observed=times(local_s, common_s, clocks[: len(local_s)]))


def one(strategy: str, step_s: float) -> Record:
    return record(strategy, [[step_s]], strategy=strategy)


def references(
    plain: float = 0.098, single: float = 0.1, local: float = 0.105, update: float = 0.005
) -> dict[Reference, Turns]:
    independent = arm("independent", [local, local], update)
    return {
        Reference.PLAIN: {1: one("no-strategy", plain)},
        Reference.ONE_DEVICE: {1: one("one-device", single)},
        Reference.INDEPENDENT: {1: independent},
    }


def explained(turns: Turns, known: dict[Reference, Turns]) -> LostTime:
    loss = loss_by_turn("arm", turns, known)
    assert isinstance(loss, LossByTurn)
    (found,) = mean_losses([loss])
    return found


def milliseconds(found: LostTime) -> dict[Part, float]:
    return {part: round(mean.value, 6) for part, mean in found.parts.items()}


def test_each_part_is_found_under_its_name() -> None:
    found = explained({1: arm("multiworker", [0.108, 0.138], 0.045)}, references())
    assert milliseconds(found) == {
        Part.SHARED: 10.0,
        Part.STRATEGY: 5.0,  # 2 of one device, and local phases of 108 instead of 105
        Part.EXCHANGE: 40.0,  # 45 without the update
        Part.WAITING: 30.0,
        Part.TIMING: 0.0,
    }
    assert (found.ideal.value, found.step.value, found.loss.value) == pytest.approx((98.0, 183.0, 85.0))
    assert (found.slowest, found.gradient_bytes) == (Slowest("worker-1", "box", 1.0), 4000)
    assert found.step.low is None
    assert not found.parts[Part.EXCHANGE].differs  # one round has no interval


def test_clocks_of_hosts_are_aligned_by_the_end_of_the_steps() -> None:
    shifted = explained({1: arm("multiworker", [0.108, 0.138], 0.045, clocks=(0, 5))}, references())
    same = explained({1: arm("multiworker", [0.108, 0.138], 0.045)}, references())
    assert milliseconds(shifted) == pytest.approx(milliseconds(same), abs=1e-6)
    assert shifted.slowest == Slowest("worker-1", "box-5", 1.0)


def test_the_replicas_of_one_process_wait_for_each_other() -> None:
    two = record("mirrored", [[0.2]], strategy="mirrored", devices=2, examples=20)
    stamps = {"start": 0.0, "ready": [[0.0, 0.10, 0.3], [0.0, 0.15, 0.35]], "done": [0.0, 0.2, 0.4]}
    phases = phases_of(replace(two, observed={"worker-0": {"step_times": stamps}}))
    assert phases is not None
    assert [rank.name for rank in phases.ranks] == ["worker-0, replica 0", "worker-0, replica 1"]
    assert phases.exchange_ms == pytest.approx(50)
    assert phases.waiting_ms.tolist() == pytest.approx([50, 0])
    assert phases.last.tolist() == [0, 1]


def test_real_data_is_compared_with_the_same_arm_on_synthetic_data() -> None:
    known = {**references(), Reference.SYNTHETIC: {1: arm("multiworker", [0.108, 0.108], 0.045)}}
    found = explained({1: replace(arm("multiworker", [0.148, 0.148], 0.045), observed={})}, known)
    assert milliseconds(found)[Part.INPUT] == 40.0
    assert milliseconds(found)[Part.EXCHANGE] == 40.0
    assert found.loss.value == pytest.approx(193 - 98)


def test_without_step_times_exchange_and_waiting_are_one_part() -> None:
    found = explained({1: replace(arm("multiworker", [0.108, 0.138], 0.045), observed={})}, references())
    assert milliseconds(found) == {Part.SHARED: 10.0, Part.STRATEGY: 2.0, Part.NOT_SEPARATED: 73.0}


def test_a_step_of_all_workers_of_an_asynchronous_job_is_compared() -> None:
    """The chief counts 20 examples in 2 steps a window: 2 workers took one each."""
    chief = record("ps", [[0.25]], strategy="parameter-server", workers=2, ps=1, tasks=["chief-0"], examples=20)
    windows = tuple(replace(window, steps=2) for window in chief.ranks[0].windows)
    chief = replace(chief, ranks=(replace(chief.ranks[0], windows=windows),))
    found = explained({1: chief}, references())
    assert found.step.value == pytest.approx(250.0)
    assert milliseconds(found)[Part.NOT_SEPARATED] == pytest.approx(140.0)


@pytest.mark.parametrize("missing", [Reference.INDEPENDENT, Reference.ONE_DEVICE])
def test_without_the_arms_it_is_compared_with_a_loss_has_a_reason(missing: Reference) -> None:
    known = {which: turns for which, turns in references().items() if which not in (missing, Reference.PLAIN)}
    found = loss_by_turn("arm", {1: arm("multiworker", [0.1, 0.1])}, known)
    assert isinstance(found, UnknownLoss)
    assert str(missing) in found.reason


def test_arms_without_a_common_round_have_a_reason() -> None:
    found = loss_by_turn("arm", {2: arm("multiworker", [0.1, 0.1])}, references())
    assert isinstance(found, UnknownLoss)
    assert "no round in common" in found.reason


@settings(max_examples=60)
@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=5))
def test_the_parts_sum_to_the_loss(rounds: list[tuple[float, ...]]) -> None:
    turns, known = {}, {which: {} for which in references()}
    for number, (plain, single, local, first, second, common) in enumerate(rounds, start=1):
        turns[number] = replace(arm("multiworker", [first, second], common), round=number)
        for which, of_round in references(plain, single, local, common / 2).items():
            known[which][number] = replace(of_round[1], round=number)
    found = explained(turns, known)
    assert found.ideal.value + sum(mean.value for mean in found.parts.values()) == pytest.approx(found.step.value)
    assert sum(mean.value for mean in found.parts.values()) == pytest.approx(found.loss.value, abs=1e-9)


BASE = {Part.SHARED: 8.0, Part.STRATEGY: 8.0, Part.EXCHANGE: 20.0, Part.WAITING: 10.0, Part.INPUT: 4.0}
ARMS = ("first", "second", "third")


def planted(delays: Mapping[Part, float], turns: Iterable[tuple[int, Callable[[str], float]]]) -> tuple[LostTime, ...]:
    """Arms on real data that lose BASE and these delays, in milliseconds.

    Args:
        delays: milliseconds by part.
        turns: the number of the start and the factor of each arm's times, for each round.
    """
    seconds = {part: (base + delays.get(part, 0)) / 1000 for part, base in BASE.items()}
    known: dict[str, dict[Reference, dict[int, Record]]] = {name: {which: {} for which in Reference} for name in ARMS}
    real: dict[str, dict[int, Record]] = {name: {} for name in ARMS}
    local = 0.095 + seconds[Part.SHARED]
    own = local - 0.002 + seconds[Part.STRATEGY]
    for number, (start, factor) in enumerate(turns, start=1):
        plain, single = one("no-strategy", 0.098 * factor("plain")), one("one-device", 0.1 * factor("one"))
        slow = factor("independent")
        shared = {
            Reference.PLAIN: plain,
            Reference.ONE_DEVICE: single,
            Reference.INDEPENDENT: arm("independent", [local * slow] * 2, 0.005 * slow),
        }
        for name in ARMS:
            slow, slow_input = factor(f"{name} (synthetic)"), factor(name)
            locals_s = [own, own + seconds[Part.WAITING]]
            common_s = 0.005 + seconds[Part.EXCHANGE]
            synthetic = arm("multiworker", [slow * each for each in locals_s], slow * common_s)
            measured = one("multiworker", slow_input * (max(locals_s) + common_s + seconds[Part.INPUT]))
            measured = replace(measured, spec={**measured.spec, "workers": 2}, ranks=(*measured.ranks, *measured.ranks))
            every = {**shared, Reference.SYNTHETIC: synthetic}
            for which, turn in every.items():
                known[name][which][number] = replace(turn, round=number, incarnation=start)
            real[name][number] = replace(measured, round=number, incarnation=start)
    losses = [loss_by_turn(name, real[name], known[name]) for name in ARMS]
    return mean_losses([loss for loss in losses if isinstance(loss, LossByTurn)])


@pytest.mark.parametrize("part", BASE)
def test_a_planted_delay_is_found_in_its_part_and_in_no_other(part: Part) -> None:
    for found in planted({part: 30.0}, [(start, lambda arm: 1.0) for start in (1, 1, 2, 2)]):
        assert milliseconds(found) == pytest.approx({**BASE, Part.TIMING: 0.0, part: BASE[part] + 30}, abs=1e-6)
        assert found.largest() is part
        assert len(found.step.starts) == 2


def bench(generator: random.Random, starts: int, sd: float) -> Iterator[tuple[int, Callable[[str], float]]]:
    """Rounds of arms whose starts differ by `sd`; turns by 3 %, and 3 % more that all arms share."""
    for start in range(1, starts + 1):
        luck: dict[str, float] = defaultdict(lambda: generator.gauss(1, sd))
        for _ in range(3):
            drift = generator.gauss(1, 0.03)
            yield start, lambda arm: luck[arm] * drift * generator.gauss(1, 0.03)  # noqa: B023


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("starts", "sd", "most"),
    [
        pytest.param(4, 0.0, 0.99, marks=pytest.mark.thorough),
        (4, 0.023, 0.99),
        pytest.param(2, 0.023, 1.0, marks=pytest.mark.thorough),
    ],
)
def test_an_interval_holds_a_planted_delay_in_about_95_percent_of_benches(starts: int, sd: float, most: float) -> None:
    """The three arms of 120 benches, which have the starts of their references in common: 95 % are +-1.2 to 2 %."""
    generator, delays = random.Random(7), dict.fromkeys(BASE, 15.0)
    found = [lost for _ in range(120) for lost in planted(delays, bench(generator, starts, sd))]
    for part, base in BASE.items():
        held = [lost.parts[part].low <= base + 15 <= lost.parts[part].high for lost in found]
        assert 0.91 <= sum(held) / len(held) <= most, part
