from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.report.build import notes_on, summarize_report
from tfdist.bench.report.verdict import verdict_of
from tfdist.bench.report.warnings import warnings_for
from tfdist.models.record import HostUsage, Record, WindowUsage

from .rows import codes, folder, four, rows_of, timed, verdict, warnings_of


def test_replicas_that_are_not_the_planned_ones_contradict_the_plan() -> None:
    two = [replace(each, ranks=tuple(replace(rank, replicas=1) for rank in each.ranks)) for each in four("two", **TWO)]
    found = warnings_of([*four("one", gpus=True), *two])
    assert [warning.code for warning in found] == ["contradiction"]
    assert "worker-0 trained 1 replica, and the arm has 2 in a process" in found[0].text
    external = [replace(each, spec={**each.spec, "strategy": "external"}) for each in two]  # JAX on two devices
    assert "contradiction" not in codes(external)


@pytest.mark.parametrize(
    ("seconds", "contradicted"), [((0.05, 0.0501, 0.05, 0.05), True), ((0.06, 0.09, 0.05, 0.06), False)]
)
def test_a_speed_up_above_the_number_of_devices_is_a_contradiction_if_it_is_sure(
    seconds: Sequence[float], contradicted: bool
) -> None:
    found = codes([*timed("one", 0.1, 0.1001, 0.1, 0.1, gpus=True), *timed("two", *seconds, **{**TWO, "examples": 14})])
    assert ("contradiction" in found) == contradicted


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
    notes = list(notes_on(list(rows_of(rounds).values())))
    text = (
        "Between epochs (validation, checkpoints, new iterators; not in images/s): a 0.40 s, about every 31 steps, 3 % "
    )
    assert f"{text}of the time." in notes


MakeRecord = Callable[..., Record]


TWO = {"strategy": "mirrored", "devices": 2, "gpus": True}


def test_a_sound_bench_has_no_warnings() -> None:
    assert codes([*four("one", gpus=True), *four("two", **TWO)]) == []


def test_each_warning_has_its_cause(make_record: MakeRecord) -> None:
    one = four("one", gpus=True)
    assert codes([make_record()]) == ["few-rounds"]
    assert codes(four("two", **TWO)) == ["no-baseline"]
    assert codes([*one, *four("sgd", **TWO, optimizer="sgd")]) == ["different-work"]


def test_warnings_about_cores(make_record: MakeRecord) -> None:
    one = four("one")
    assert codes([*one, *four("two", strategy="mirrored", devices=2)]) == []
    assert "shared-cores" in codes([*one, *four("four", strategy="mirrored", devices=4)])
    many = [replace(record, hosts=2) for record in four("four", strategy="mirrored", devices=4)]
    assert "shared-cores" not in codes([*one, *many])
    unpinned = four("four", strategy="mirrored", devices=4, cores_per_device=None)
    assert "shared-cores" not in codes([*one, *unpinned])


def test_what_is_true_of_every_run_on_one_machine_is_no_warning(make_record: MakeRecord) -> None:
    def with_ps(**spec: object) -> list[str]:
        many = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"], **spec}
        made = [make_record("ps", [[0.1]], round=n, **many) for n in (1, 2, 3, 4)]
        cores = {**made[0].hardware, "cores": list(range(64))}
        return codes([*four("one"), *(replace(record, hardware=cores) for record in made)])

    assert "shared-cores" not in with_ps()


def test_a_result_above_its_ceiling_is_flagged(make_record: MakeRecord) -> None:
    side = [make_record("side", [[0.2], [0.2]], round=n, strategy="independent", workers=2) for n in (1, 2, 3, 4)]
    fast = four("fast", strategy="mirrored", devices=2, examples=30)
    assert codes([*four("one"), *side, *fast])[0] == "contradiction"


def test_every_warning_names_its_arms_and_gives_advice(make_record: MakeRecord) -> None:
    (warning,) = warnings_of([make_record("lonely")])
    assert "lonely" in warning.text
    assert "--rounds 4" in warning.advice
    pair = [make_record("one"), make_record("two", **TWO)]
    assert warnings_of(pair)[-1].text == "all arms: fewer than 3 rounds, so there is no verdict."


def in_starts(arm: str, factors: Sequence[float], **spec: object) -> list[Record]:
    """Starts of three turns with 1 % of noise, each with a factor of its own on its times."""
    noise, shift = (1.0, 1.01, 0.99), sum(map(ord, arm))
    turns = [(start, factor * noise[(number + shift * start) % 3]) for start, factor in enumerate(factors, start=1)
             for number in range(3)]  # fmt: skip
    made = timed(arm, *(0.1 * factor for _, factor in turns), **spec)
    return [replace(one, incarnation=start) for one, (start, _) in zip(made, turns, strict=True)]


def five(**factors: Sequence[float]) -> list[Record]:
    """Five arms; those named have a factor for each of their four starts."""
    arms: dict[str, dict[str, object]] = {"one": {"gpus": True}, **{f"p{n}": {**TWO, "packs": n} for n in (1, 2, 3, 4)}}
    return [each for arm, spec in arms.items() for each in in_starts(arm, factors.get(arm, (1.0,) * 4), **spec)]


def test_a_start_that_differs_from_the_others_is_a_warning_and_noise() -> None:
    odd = five(p2=(1.0, 1.0, 1.15, 1.0))
    (warning,) = warnings_of(odd)
    assert warning.code == "odd-start"
    assert warning.text == "p2 was 13 % slower in its start 3 than in its others, for its whole life."
    assert "--incarnations" in warning.advice
    assert verdict(odd).certainty.endswith(" p2 was 13 % slower in its start 3 than in its others.")
    (fast,) = warnings_of(five(p4=(0.85, 1.0, 1.0, 1.0)))
    assert fast.text.startswith("p4 was 18 % faster in its start 1 than in its others")


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.03, 1.0), (1.2, 1.2, 1.2, 1.2)])
def test_starts_that_differ_little_or_an_arm_that_is_slow_in_all_are_no_warning(factors: Sequence[float]) -> None:
    assert codes(five(p2=factors)) == []
    assert "start 3" not in verdict(five(p2=factors)).certainty


def test_a_slow_start_of_all_arms_is_no_odd_start() -> None:
    """It is the machine."""
    slow = dict.fromkeys(("one", "p1", "p2", "p3", "p4"), (1.0, 1.0, 1.15, 1.0))
    assert "odd-start" not in codes(five(**slow))


def test_the_odd_start_of_a_folder_is_not_that_of_another() -> None:
    folders = [folder(five(p2=(1.0, 1.0, 1.15, 1.0)), "x"), folder(five(), "y")]
    rows, pairs = summarize_report(folders)
    assert [one.text.partition(" was")[0] for one in warnings_for(rows) if one.code == "odd-start"] == ["x: p2"]
    texts = [verdict_of([row for row in rows if row.folder == name], pairs).certainty for name in "xy"]
    assert ["start 3" in text for text in texts] == [True, False]


@pytest.mark.parametrize(("starts", "warned"), [(1, True), (2, True), (4, False)])
def test_fewer_than_four_starts_are_a_warning_and_noise(starts: int, warned: bool) -> None:
    made = [
        replace(one, incarnation=1 + (one.round - 1) * starts // 4)
        for one in (*four("one", gpus=True), *four("two", **TWO))
    ]
    assert (codes(made) == ["few-starts"], f"nly {starts} start" in verdict(made).certainty) == (warned, warned)
    if warned:
        (warning,) = warnings_of(made)
        assert warning.text == (
            "all arms: fewer than 4 starts, so how much starts differ is assumed (2.3%), and differences below 5% have "
            "no verdict."
        )
        assert warning.advice == "Run 'tfdist bench' with --incarnations 4 or more."


def test_without_incarnations_each_round_is_a_start() -> None:
    made = [*four("one", gpus=True), *four("two", **TWO)]
    few = [one for one in made if one.round < 4]
    assert (codes(made), codes(few)) == ([], ["few-starts"])
    assert verdict(few).certainty == "Sure to within 5 %: only 3 starts of each arm."


def test_few_rounds_are_one_warning() -> None:
    """Not one on rounds and one on starts."""
    assert codes([one for one in (*four("one", gpus=True), *four("two", **TWO)) if one.round < 3]) == ["few-rounds"]


def test_only_groups_that_did_not_alternate_are_a_note() -> None:
    """Turns that were repeated have the negative number of their group."""

    def notes(group: int) -> list[str]:
        again = [replace(one, group=group) for one in (*four("one")[:1], *four("two", **TWO)[:1])]
        rows, _ = summarize_report([folder([*four("one"), *four("two", **TWO), *again])])
        return [note for note in notes_on(rows) if "took turns" in note]

    assert notes(-1) == []
    (note,) = notes(2)
    assert note.startswith("The arms took turns in 2 groups")


def test_repeated_turns_are_no_drift() -> None:
    """They are few, and of other rounds than the first turns."""
    times = (0.1, 0.112, 0.125, 0.14)
    again = [replace(one, group=-1) for one in (*timed("one", *times, gpus=True), *timed("two", *times, **TWO))]
    steady = [*four("one", gpus=True), *four("two", **TWO)]
    assert codes([*steady, *again]) == []
    assert codes([*steady, *(replace(one, group=2) for one in again)]) == ["drift-between-rounds"]


WINDOWS = (0.1, 0.1, 0.1, 0.1)


def in_turns(arm: str, seconds: Sequence[float] = WINDOWS, **usage: float) -> list[Record]:
    """Four turns; the second one with `seconds` and a usage of the host."""
    turns = [record(arm, [seconds if number == 2 else WINDOWS], round=number, gpus=True) for number in (1, 2, 3, 4)]
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
    assert warning.text.startswith("In 1 of 4 turns")
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
