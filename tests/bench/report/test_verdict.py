"""What a report answers to "which one?": ten kinds of answer word for word, then the rules behind them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tfdist.bench.compare.gate import gate_sentence
from tfdist.bench.folder import BenchFile
from tfdist.bench.report.arm_names import alternatives
from tfdist.bench.report.build import summarize_report
from tfdist.bench.report.columns import scaling_of
from tfdist.bench.report.summary import rank
from tfdist.bench.report.verdict import verdict_of
from tfdist.bench.suites.suite import parse_suite
from tfdist.models.record import HostUsage, Record
from tfdist.models.strategy_check import StrategyCheck
from tfdist.strategies.choice import StrategyChoice

from .rows import advice, folder, four, rows_of, timed, verdict, with_losses

MakeRecord = Callable[..., Record]
TWO = {"strategy": "mirrored", "devices": 2, "examples": 20}
WORKERS = {"strategy": "multiworker", "workers": 2, "tasks": ["worker-0"], "examples": 20}
SERVERS = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"]}
STEADY, LATER = (0.1, 0.1004, 0.0998, 0.1), (0.1, 0.0998, 0.1004, 0.1)
"""Seconds of turns that do not differ measurably."""
MORE = "For an answer: tfdist bench --suite quick (about 2 min)."


def arm(name: str, factor: float = 1.0, seconds: Sequence[float] = STEADY, **spec: object) -> list[Record]:
    return timed(name, *(factor * time for time in seconds), **spec)


def refuted(name: str) -> list[Record]:
    note = {"strategy_check": StrategyCheck.REFUTED, "strategy_note": "the program did not train under mirrored: x; y"}
    return [replace(each, **note) for each in arm(name, 0.5, **TWO)]  # type: ignore[arg-type]


def versions(slow: str, **factors: float) -> tuple[list[Record], BenchFile]:
    """Arms and their bases: `slow` is slower."""
    names = [*factors, slow]
    suite = parse_suite({"name": "s", "arms": [{"name": name, "strategy": "one-device"} for name in names]}, "s")
    bases = [replace(each, name=f"{each.name} (base)") for each in suite.arms]
    suite = replace(suite, arms=(*suite.arms, *bases), against="HEAD")
    made = [each for name in names for each in (*arm(name, factors.get(name, 1.1)), *arm(f"{name} (base)"))]
    return made, BenchFile(suite, "tfdist bench", "", ())


ONE = arm("one-device")
TIE = [
    *arm("mirrored/auto", 1.3, **TWO),
    *arm("mirrored/hierarchical-copy", 1.3, LATER, **TWO, cross_device="hierarchical-copy"),
    *arm("mirrored/reduction-to-one", 1.3, LATER, **TWO, cross_device="reduction-to-one"),
    *arm("multiworker/ring", 1.31, **WORKERS, communication="ring"),
    *arm("multiworker/nccl", 1.6, **WORKERS, communication="nccl"),
    *arm("parameter-server/1-ps", 1.0, **SERVERS),
    *arm("parameter-server/2-ps", 1.0, **{**SERVERS, "ps": 2}),
]
EQUAL = [*arm("a", 1.0, **TWO), *arm("again", 1.03, **TWO)]
BUSY = HostUsage(10.0, 2, {"worker-0": 10.0}, 14.0, 0.0)
WIDE = "that is how well the least certain ratio is known; no arm was measured twice (A/A)."

KINDS: dict[str, tuple[list[Record], str, str]] = {
    "clear winner": (
        [*ONE, *arm("mirrored", 1.05, **TWO), *arm("multiworker", 1.3, **WORKERS)],
        "Use mirrored: 1.90 times one device, 190 images/s. Slower for sure: multiworker.",
        f"Sure to within 2 %: {WIDE}",
    ),
    "a little slower": (
        [*ONE, *arm("mirrored", 1.05, **TWO), *arm("multiworker", 1.11, **WORKERS), *arm("ps", 1.3, **SERVERS)],
        "Use mirrored: 1.90 times one device, 190 images/s. Slower, perhaps by less than 5 %: multiworker. Slower for "
        "sure: ps.",
        f"Sure to within 2 %: {WIDE}",
    ),
    "tie": (
        [*ONE, *TIE],
        "Use mirrored (any exchange) or multiworker/ring: 1.53 to 1.54 times one device, 153 to 154 images/s. No difference "
        "between them could be measured. The slowest of them may be up to 4 % slower than the fastest. Slower for sure: "
        "parameter-server and multiworker/nccl.",
        f"Sure to within 3 %: {WIDE}",
    ),
    "equal arms": (
        [*ONE, *EQUAL],
        "Use a: 1.94 to 2.00 times one device, 194 to 200 images/s.",
        "Sure to within 6 %: two equal arms (A/A) differed by up to 6 %.",
    ),
    "too noisy": (
        [replace(each, hosts_usage=(BUSY,)) for each in [*ONE, *TIE]],
        "Too noisy to compare: 100 % of the turns were disturbed. End other programs and repeat the bench.",
        "",
    ),
    "too little": (
        [each for each in [*ONE, *TIE] if each.round == 1],
        f"Too little was measured to compare: 1 round of each arm. {MORE}",
        "",
    ),
    "A/A wrong": (
        [*ONE, *arm("a", 1.1, **TWO), *arm("again", 1.3, **TWO)],
        "Too noisy to compare: a and again, which are equal (A/A), differed by at least 16 %. End other programs, or let "
        "the machine settle, and repeat the bench.",
        "",
    ),
    "refuted": (
        [*ONE, *arm("slow", 1.2, **TWO, packs=2), *refuted("fast")],
        "Use slow: 1.67 times one device, 167 images/s. fast does not count: the program did not train "
        "under the arm's strategy.",
        f"Sure to within 2 %: {WIDE}",
    ),
    "contradiction": (
        [*ONE, *arm("fast", 0.4, **TWO), *arm("slow", 1.2, **TWO, packs=2)],
        "Something is wrong with fast: 2 devices are 5.00 times as fast as one-device, an efficiency of 250 %. Until that "
        "is explained, no arm can be recommended.",
        "",
    ),
    "scaling curve": (
        [
            *ONE,
            *arm("mirrored/2", 1.05, **TWO),
            *arm("mirrored/4", 1.1, **{**TWO, "devices": 4, "examples": 40}),
            *arm("multiworker/2", 1.1, **WORKERS),
            *arm("multiworker/4", 1.4, **{**WORKERS, "workers": 4, "examples": 40}),
        ],
        "Use mirrored/4: 3.64 times one device, 363 images/s on 4 devices. On 1, 2 and 4 devices: 100, 190 and 363 images/s. "
        "Slower for sure: multiworker.",
        f"Sure to within 2 %: {WIDE}",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_verdict(kind: str) -> None:
    records, answer, certainty = KINDS[kind]
    found = verdict(records, MORE)
    assert found.advice == answer
    assert found.certainty == certainty


def test_the_verdict_on_versions() -> None:
    made, bench = versions("c", a=1.0, b=1.001)
    rows, pairs = summarize_report([folder(made, bench=bench)])
    assert verdict_of(rows, pairs).advice == (
        "c is 9.09 % slower than its base, surely between 6.89 and 11.2 %. No change of a and b could be measured: at most "
        "3 % slower."
    )
    without = [each for each in made if each.arm != "a (base)"]
    rows, pairs = summarize_report([folder(without, bench=bench)])
    assert verdict_of(rows, pairs).advice.endswith(
        "Not compared with its base: a; one of them was not measured, or did not train under its strategy. Not measured: "
        "a (base) (not run)."
    )


def test_the_verdict_of_a_gate() -> None:
    assert gate_sentence(0.05, ["a"], [], 2) == "Slower than the bound of 5 %: a."
    unsure = "Inconclusive: b, c may be slower by more than 5 %; measure more starts."
    assert gate_sentence(0.05, [], ["b", "c"], 1) == unsure
    assert gate_sentence(0.05, ["a"], ["b", "c"], 1) == f"Slower than the bound of 5 %: a. {unsure}"
    assert gate_sentence(0.05, [], [], 3) == "Not slower than the bound of 5 %: 3 arms compared."


def test_what_several_devices_do_not_speed_up_needs_one() -> None:
    others = [*arm("mirrored", 2.5, **TWO), *arm("multiworker", 2.6, **WORKERS)]
    assert advice([*ONE, *others]).startswith(
        "Use one device: mirrored, the fastest arm on 2 devices, is slower: 0.800 times, 80.0 images/s."
    )
    same = arm("mirrored", 2.0, **TWO)
    assert advice([*ONE, *same]) == (
        "Use one device: mirrored, the fastest arm on 2 devices, is not measurably faster: 1.00 times, 100 images/s."
    )


def test_a_chosen_baseline_has_its_name() -> None:
    suite = parse_suite({"name": "s", "arms": [{"name": "x", "strategy": "mirrored"}], "baseline": "x"}, "s")
    made = [*arm("x", 1.3, **TWO), *arm("y", 1.0, **TWO, packs=2)]
    rows, pairs = summarize_report([folder(made, bench=BenchFile(suite, "tfdist bench", "", ()))])
    assert verdict_of(rows, pairs).advice == "Use y: 1.30 times x, 200 images/s. Slower for sure: x."


def test_the_ceiling_is_not_recommended(make_record: MakeRecord) -> None:
    side = [make_record("side", [[time], [time]], round=n, strategy="independent", workers=2)
            for n, time in enumerate(STEADY, start=1)]  # fmt: skip
    assert advice([*ONE, *side]) == "one-device: 100 images/s on 1 device."
    assert advice(side) == "side: 200 images/s on 2 devices."
    failed = make_record("two", strategy="mirrored", devices=2, status="failed", reason="x")
    assert advice([*side, failed]).endswith("on 2 devices. Not measured: two (failed).")


def test_the_figures_are_those_of_the_sentence(bench_records: list[Record]) -> None:
    clear = [(each.value, each.meaning) for each in verdict(bench_records).figures]
    assert clear[0] == ("123 images/s", "mirrored/auto, on 2 devices")
    assert clear[1][0] == "1.25 times"
    assert clear[1][1].startswith("one device (1.2")
    assert clear[2] == ("62 %", "efficiency against one device; 95 % of independent, which exchanges nothing")
    assert clear[3] == ("2 %", f"how sure this is: {WIDE.removesuffix('.')}")
    tie = [(each.value, each.meaning) for each in verdict([*ONE, *TIE]).figures]
    assert tie[:2] == [
        ("153 to 154 images/s", "mirrored (any exchange) or multiworker/ring, on 2 devices"),
        ("1.53 to 1.54 times", "one device"),
    ]
    assert verdict(KINDS["too little"][0]).figures == ()


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_than_three_rounds_recommend_nothing(make_record: MakeRecord, rounds: int) -> None:
    two = [make_record("two", round=n, strategy="mirrored", devices=2) for n in range(1, rounds + 1)]
    failed = make_record("bad", strategy="mirrored", devices=2, status="failed", reason="x")
    few = f"Too little was measured to compare: {rounds} round{'s' * (rounds > 1)} of each arm."
    assert advice([make_record("one"), *two, failed]) == f"{few} Not measured: bad (failed)."


def test_without_measurements_the_reasons_are_counted(make_record: MakeRecord) -> None:
    failed = [make_record(name, status="failed", reason="x") for name in "ab"]
    refused = make_record("c", status="refused", reason="y")
    assert advice([*failed, refused]) == "Nothing was measured: 2 arms (failed), c (refused)."


def test_arms_with_too_few_rounds_are_left_out(make_record: MakeRecord) -> None:
    fast = make_record("fast", [[0.01]], **TWO)
    slow = arm("slow", 1.2, **TWO, cross_device="hierarchical-copy")
    text = advice([*four("two", **TWO), *slow, fast])
    assert text == "Use two: 200 images/s. Slower for sure: slow. fast does not count: fewer than 3 rounds."


def test_an_arm_with_wrong_losses_is_left_out() -> None:
    fast = with_losses(arm("fast", 0.5, **TWO), 7.0, 3.0)
    others = [with_losses(four(name, **TWO), 7.0, 1.0) for name in ("a", "b", "c")]
    text = advice([*fast, *(record for arm in others for record in arm)])
    assert text == "Use a: 200 images/s. fast does not count: wrong losses."


def test_without_any_right_arm_none_is_recommended() -> None:
    text = advice([*ONE, *refuted("a")])
    assert text.startswith("one-device: 100 images/s on 1 device. a does not count: ")
    assert advice([*refuted("a"), *refuted("b")]) == (
        "No arm can be recommended. a and b do not count: the program did not train under the arm's strategy."
    )


def program(records: list[Record], examples: int) -> list[Record]:
    """A program of the user's own, whose steps have that many examples on each rank."""
    spec = {**StrategyChoice().to_json(), "command": "python train.py"}
    chosen = ("strategy", "workers", "devices", "ps")
    return [
        replace(
            each,
            spec={**spec, **{key: each.spec[key] for key in chosen}},
            ranks=tuple(
                replace(rank, windows=tuple(replace(window, examples=examples) for window in rank.windows))
                for rank in each.ranks
            ),
        )
        for each in records
    ]


def test_programs_are_ranked_at_equal_work() -> None:
    """64 examples per step, but a parameter server's worker has all of them."""
    mirrored, copies = program(four("mirrored", **TWO), 64), program(four("copies", **TWO, cross_device="nccl"), 64)
    ps = program([replace(each, ranks=(replace(each.ranks[0], task="chief-0"),)) for each in four("ps", **SERVERS)], 64)
    rows = rows_of([*program(four("one"), 64), *mirrored, *copies, *ps])
    assert [(row.batch_per_replica, row.batch_global) for row in rows.values()] == [
        (64, 64),
        (32, 64),
        (32, 64),
        (64, 128),
    ]
    assert scaling_of(list(rows.values())) == "mixed"
    ranked, left = rank([row for row in rows.values() if row.measured])
    assert [row.arm for row in ranked] == ["mirrored", "copies"]
    assert left == {"ps": "64, not the 32 examples per device and step of mirrored"}
    alike = rows_of([*program(four("one"), 32), *mirrored, *program(ps, 32)])
    assert scaling_of(list(alike.values())) == "weak"
    assert rank(list(alike.values()))[1] == {}


def failed(name: str, **spec: object) -> list[Record]:
    return [replace(each, status="failed", reason="x", ranks=()) for each in arm(name, **spec)]  # type: ignore[arg-type]


def test_arms_without_figures_are_not_part_of_a_phrase() -> None:
    """Nothing is known of an exchange that failed."""
    auto, nccl = arm("mirrored/auto", **TWO), failed("mirrored/nccl", **TWO, cross_device="nccl")
    copies = arm("mirrored/copies", seconds=LATER, **TWO, cross_device="hierarchical-copy")
    text = advice([*ONE, *auto, *copies, *nccl])
    assert text.startswith("Use mirrored/auto or mirrored/copies: ")
    assert text.endswith(" Not measured: mirrored/nccl (failed).")
    slow = arm("multiworker/ring", 1.5, **WORKERS, communication="ring")
    other = failed("multiworker/nccl", **WORKERS, communication="nccl")
    assert "Slower for sure: multiworker/ring. " in advice([*ONE, *auto, *slow, *other])
    assert "Slower for sure: multiworker." in advice([*ONE, *auto, *slow])


def test_an_obstacle_holds_for_versions_too() -> None:
    made, bench = versions("c", a=1.0)
    rows, pairs = summarize_report([folder([replace(each, hosts_usage=(BUSY,)) for each in made], bench=bench)])
    assert verdict_of(rows, pairs).advice.startswith("Too noisy to compare: 100 % of the turns were disturbed.")


def test_what_is_known_badly_is_not_compared() -> None:
    wild = (0.1, 0.2, 0.1, 0.07)
    made = [*ONE, *arm("m", 1.0, wild, **TWO), *arm("c", 1.2, wild[::-1], **TWO, packs=2)]
    assert advice(made).startswith("Too noisy to compare: a ratio is known only to within ")


def test_arms_of_an_interrupted_bench_are_not_hidden_by_a_complete_baseline() -> None:
    cut = [*ONE, *arm("a", **TWO)[:1], *arm("b", **TWO, packs=2)[:2]]
    few = f"Too little was measured to compare: at most 2 rounds of each arm. {MORE}"
    assert verdict(cut, MORE).advice == few
    baseline = verdict([*ONE[:1], *arm("a", **TWO), *arm("b", 1.2, **TWO, packs=2)])
    assert baseline.advice.startswith("Use a: 200 images/s. Slower for sure: b. ")
    assert baseline.certainty


def test_arms_on_different_numbers_of_devices_are_told_apart() -> None:
    four_devices = arm("c/4", 2.1, LATER, **{**TWO, "devices": 4, "examples": 40})
    found = verdict([*ONE, *arm("m/2", 1.05, **{**WORKERS}), *four_devices])
    assert "images/s on 2 or 4 devices. " in found.advice
    assert " m/2 needs the fewest devices, 2." in found.advice
    assert found.figures[0].meaning == "m/2 or c/4, on 2 or 4 devices"


def test_a_baseline_that_is_one_of_the_fastest_has_no_ratio() -> None:
    suite = parse_suite({"name": "s", "arms": [{"name": "x", "strategy": "mirrored"}], "baseline": "x"}, "s")
    made = [*arm("x", **TWO), *arm("y", 1.001, **TWO, packs=2)]
    rows, pairs = summarize_report([folder(made, bench=BenchFile(suite, "tfdist bench", "", ()))])
    assert verdict_of(rows, pairs).advice.startswith("Use x or y: 200 images/s. No difference")


def test_names_of_several_folders_have_no_folder_in_their_own_verdict() -> None:
    both = [folder([*ONE, *arm("a", 1.1, **TWO), *arm("again", 1.3, **TWO)], name) for name in ("x", "y")]
    rows, pairs = summarize_report(both)
    text = verdict_of([row for row in rows if row.folder == "y"], pairs).advice
    assert text.startswith("Too noisy to compare: a and again, which are equal")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a or b"),
        (["m/b=16", "m/b=2", "m/b=8"], "m/b=2, 8 or 16"),
        (["a=1/x.py", "a=2/x.py"], "a=1/x.py or a=2/x.py"),
        (list("abcdefgh"), "a, b, c, d, e or 3 more"),
    ],
)
def test_lists_of_names(names: list[str], text: str) -> None:
    assert alternatives(names, "or") == text


def test_a_name_that_begins_with_a_slash_keeps_it() -> None:
    slow = [*arm("/p/a", 1.5, **TWO, packs=2), *arm("/p/b", 1.5, **TWO, packs=3)]
    assert advice([*ONE, *arm("mirrored", **TWO), *slow]).endswith("Slower for sure: /p/a and /p/b.")
