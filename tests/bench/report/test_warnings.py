from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.report.build import notes_on
from tfdist.bench.report.summary import summarize
from tfdist.bench.report.warnings import SamePair, same_pairs
from tfdist.models.record import HostUsage, Record, WindowUsage

from .rows import codes, folder, rows_of, three, timed, warnings_of

WORKERS = {"strategy": "multiworker", "workers": 2, "tasks": ["worker-0"]}


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(pair.arm, pair.other) for pair in same_pairs(summarize([folder(records)]))]


def pair_of(records: Sequence[Record]) -> SamePair:
    (pair,) = same_pairs(summarize([folder(records)]))
    return pair


def test_on_cpus_the_automatic_all_reduce_between_workers_is_the_ring() -> None:
    auto, ring = three("auto", **WORKERS), three("ring", **WORKERS, communication="ring")
    assert pairs_of([*auto, *ring]) == [("ring", "auto")]
    gpus = {**WORKERS, "gpus": True}
    assert pairs_of([*three("auto", **gpus), *three("ring", **gpus, communication="ring")]) == []


def test_the_length_of_a_training_does_not_make_another_configuration() -> None:
    assert pairs_of([*three("a", steps=10), *three("b", steps=20), *three("c", batch_size=32)]) == [("b", "a")]


def test_the_ratio_has_an_interval() -> None:
    pair = pair_of([*timed("a", 0.1, 0.101, 0.099), *timed("b", 0.1, 0.1, 0.1)])
    assert pair.comparison.ratio == pytest.approx(1.0, abs=1e-3)
    assert not pair.differs
    assert set(pair.to_json()) == {"arm", "other", "ratio", "low", "high", "rounds"}


def with_usage(one: Record, **changes: object) -> Record:
    (rank,) = one.ranks
    usage = WindowUsage(0.05, 0.05, 0.0, 1)
    (window,) = (replace(window, usage=usage, **changes) for window in rank.windows)  # type: ignore[arg-type]
    return replace(one, ranks=(replace(rank, windows=(window,)),))


def test_a_task_that_does_nothing_is_named_with_its_seconds() -> None:
    slow = timed("a", 0.1, 60.0, 0.1, 0.1)
    away = [with_usage(one, epochs=2, between_s=5.0, between_cpu_s=0.1) for one in timed("b", 0.1)]
    busy = [with_usage(one, epochs=2, between_s=5.0, between_cpu_s=3.0) for one in timed("c", 0.1)]
    found = [one.text for one in warnings_of([*map(with_usage, slow), *away, *busy]) if one.code == "idle-task"]
    assert found == [
        "a neither computed nor exchanged: worker-0 60.0 s in round 2.",
        "b neither computed nor exchanged: worker-0 5.0 s between epochs in round 1.",
    ]
    assert "idle-task" not in codes(slow), "without usage nothing is known"


def test_the_time_between_epochs_is_stated() -> None:
    rounds = [with_usage(one, epochs=2, between_s=0.8, steps=62, elapsed_s=24.2) for one in timed("a", 0.1, 0.1)]
    notes = list(notes_on(list(rows_of(rounds).values()), ()))
    text = (
        "Between epochs (validation, checkpoints, new iterators; not in images/s): a 0.40 s, about every 31 steps, 3 % "
    )
    assert f"{text}of the time." in notes


def test_the_report_says_its_own_noise_or_that_it_is_unknown() -> None:
    rows = list(rows_of([*timed("a", 0.1, 0.101, 0.099), *timed("b", 0.1, 0.1, 0.1)]).values())
    (noise,) = (note for note in notes_on(rows, same_pairs(rows)) if "A/A" in note)
    assert "b and a are the same configuration" in noise
    rows = list(rows_of([*three("a"), *three("b", batch_size=32)]).values())
    assert any("is unknown" in note for note in notes_on(rows, ()))


MakeRecord = Callable[..., Record]


TWO = {"strategy": "mirrored", "devices": 2, "gpus": True}


def test_a_sound_bench_has_no_warnings() -> None:
    assert codes([*three("one", gpus=True), *three("two", **TWO)]) == []


def test_each_warning_has_its_cause(make_record: MakeRecord) -> None:
    one = three("one", gpus=True)
    assert codes([make_record()]) == ["few-rounds"]
    assert codes(three("two", **TWO)) == ["no-baseline"]
    assert codes([*one, *three("sgd", **TWO, optimizer="sgd")]) == ["different-work"]


def test_warnings_about_cores(make_record: MakeRecord) -> None:
    one = three("one")
    assert codes([*one, *three("two", strategy="multiworker", workers=2, tasks=["worker-0"])]) == ["loopback"]
    assert codes([*one, *three("two", strategy="mirrored", devices=2)]) == ["shared-thread-pool"]
    assert "shared-cores" in codes([*one, *three("four", strategy="mirrored", devices=4)])
    many = [replace(record, hosts=2) for record in three("four", strategy="mirrored", devices=4)]
    assert "shared-cores" not in codes([*one, *many])
    four = three("four", strategy="mirrored", devices=4, cores_per_device=None)
    assert "shared-cores" not in codes([*one, *four])


def test_parameter_servers_share_the_cores_of_workers_however_many_cores_there_are(make_record: MakeRecord) -> None:
    def with_ps(**spec: object) -> list[str]:
        many = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"], **spec}
        made = [make_record("ps", [[0.1]], round=n, **many) for n in (1, 2, 3)]
        cores = {**made[0].hardware, "cores": list(range(64))}
        return codes([*three("one"), *(replace(record, hardware=cores) for record in made)])

    assert "ps-share-cores" in with_ps()
    assert "shared-cores" not in with_ps()
    assert "ps-share-cores" not in with_ps(cores_per_device=None)
    assert "ps-share-cores" not in with_ps(gpus=True)


def test_a_result_above_its_ceiling_is_flagged(make_record: MakeRecord) -> None:
    side = [make_record("side", [[0.2], [0.2]], round=n, strategy="independent", workers=2) for n in (1, 2, 3)]
    fast = three("fast", strategy="mirrored", devices=2, examples=30)
    assert codes([*three("one"), *side, *fast])[0] == "above-ceiling"


def test_every_warning_names_its_arms_and_gives_advice(make_record: MakeRecord) -> None:
    (warning,) = warnings_of([make_record("lonely")])
    assert "lonely" in warning.text
    assert "--rounds 3" in warning.advice
    pair = [make_record("one"), make_record("two", **TWO)]
    assert warnings_of(pair)[-1].text == "all arms: fewer than 3 rounds, so there is no verdict."


WINDOWS = (0.1, 0.1, 0.1, 0.1)


def in_turns(arm: str, seconds: Sequence[float] = WINDOWS, **usage: float) -> list[Record]:
    """Three turns; the second one with `seconds` and a usage of the host."""
    turns = [record(arm, [seconds if number == 2 else WINDOWS], round=number, gpus=True) for number in (1, 2, 3)]
    host = HostUsage(10.0, 2, {"worker-0": 10.0}, 10.0 + 20 * usage.get("others", 0.0), 20 * usage.get("steal", 0.0))
    return [replace(turn, hosts_usage=(host if turn.round == 2 else QUIET,)) for turn in turns]


QUIET = HostUsage(10.0, 2, {"worker-0": 10.0}, 10.0, 0.0)


@pytest.mark.parametrize(
    ("turns", "code"),
    [
        (in_turns("one", others=0.2), "busy-machine"),
        (in_turns("one", steal=0.2), "stolen-time"),
        (in_turns("one", (0.1, 0.1, 0.12, 0.12)), "drift-in-turn"),
    ],
)
def test_a_disturbed_turn_is_a_warning_with_its_arm_and_round(turns: list[Record], code: str) -> None:
    (warning,) = warnings_of(turns)
    assert warning.code == code
    assert warning.text.startswith("In 1 of 3 turns")
    assert warning.text.endswith(": one (round 2).")


def test_rounds_are_listed_as_ranges() -> None:
    busy = HostUsage(10.0, 2, {"worker-0": 10.0}, 18.0, 0.0)
    turns = timed("one", *(0.1,) * 9, gpus=True)
    touched = [replace(turn, hosts_usage=(busy if turn.round in (1, 3, 4, 5, 9) else QUIET,)) for turn in turns]
    assert warnings_of(touched)[0].text.endswith(": one (rounds 1, 3-5, 9).")
    five = [replace(turn, arm=name) for name in "abcde" for turn in touched]
    assert warnings_of(five)[0].text.endswith(": all arms (rounds 1, 3-5, 9).")
    everywhere = [replace(turn, hosts_usage=(busy,)) for turn in turns]
    assert warnings_of(everywhere)[0].text == "In all 9 turns other programs used more than 5% of a host's cores."


def test_drift_of_all_arms_together_is_a_warning() -> None:
    slower = (0.1, 0.104, 0.109, 0.115)
    found = warnings_of([*timed("one", *slower, gpus=True), *timed("two", *slower, **TWO)])
    assert [warning.code for warning in found] == ["drift-between-rounds"]
    assert found[0].text == "From round 1 to round 4 the arms together became 13% slower: all arms."


def test_arms_of_one_configuration_that_differ_are_a_warning() -> None:
    noise = (0.1, 0.1001, 0.0999)
    found = codes([*timed("a", *noise, gpus=True), *timed("b", 0.12, 0.1201, 0.12, gpus=True)])
    assert found == ["same-arms-differ"]
    assert codes([*timed("a", *noise, gpus=True), *timed("b", 0.1001, 0.0999, 0.1, gpus=True)]) == []
