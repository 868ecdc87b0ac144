import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.folder import BenchFile
from tfdist.bench.noise import FEWEST_STARTS
from tfdist.bench.plan import interleave
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.columns import scaling_of, values_of
from tfdist.bench.report.format import in_unit, up_to
from tfdist.bench.report.summary import at_most_slower, summarize, wrong_arms
from tfdist.bench.statistics import Comparison, Interval
from tfdist.bench.suites.suite import parse_suite
from tfdist.bench.table import STATUS
from tfdist.models.record import Record, TaskUsage
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

from .rows import codes, folder, four, rows_of, timed, with_losses

TWO = {"strategy": "mirrored", "devices": 2}
THREE = {"strategy": "mirrored", "devices": 3}


def wrong(*arms: list[Record]) -> dict[str, str]:
    return dict(wrong_arms(arms_of([folder([record for arm in arms for record in arm])])))


def arm(name: str, first: float, later: float, **spec: object) -> list[Record]:
    return with_losses(four(name, **{**TWO, **spec}), first, later)


def test_losses_seen_on_two_cpu_devices_are_the_same() -> None:
    """MobileNetV2, 96 px: two threads in one process, and one in each of two."""
    assert wrong(arm("mirrored", 7.00031, 0.326741), arm("multiworker", 7.0003, 0.348487)) == {}


def test_a_lost_gradient_is_found() -> None:
    """Measured: the gradients of one of three replicas left out."""
    right, lost = (6.9263, 0.56682), (6.9263, 2.6838)
    found = wrong(arm("a", *right, **THREE), arm("b", *right, **THREE), arm("lost", *lost, **THREE))
    assert found == {"lost": "its loss in step 5 is 2.684, but 0.5668 in a, which computes the same"}


def test_other_data_are_found_in_the_first_step() -> None:
    found = wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), arm("other", 7.1, 1.0))
    assert found == {"other": "its loss in step 1 is 7.1, but 7 in a, which computes the same"}


def test_of_two_arms_both_are_wrong() -> None:
    assert set(wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 3.0))) == {"a", "b"}


def test_a_training_that_diverges_alone_is_wrong() -> None:
    diverged = arm("nan", 7.0, math.nan)
    assert set(wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), diverged)) == {"nan"}
    assert wrong(diverged, arm("other", 7.0, math.nan)) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"devices": 4},
        {"batch_size": 20},
        {"seed": 1},
        {"precision": "mixed_float16"},
        {"strategy": "parameter-server", "workers": 2, "devices": 1, "ps": 1},
        {"strategy": "independent", "workers": 2, "devices": 1},
    ],
)
def test_arms_that_compute_something_else_are_not_compared(other: dict[str, object]) -> None:
    assert wrong(arm("a", 7.0, 1.0), arm("b", 7.0, 1.0), arm("other", 7.0, 5.0, **other)) == {}


def test_records_without_those_steps_are_not_compared() -> None:
    assert wrong(arm("a", 7.0, 1.0), four("b", **TWO)) == {}


def test_a_wrong_arm_is_a_row_with_its_figures_and_a_warning() -> None:
    made = [*arm("a", 7.0, 1.0), *arm("b", 7.0, 1.0), *arm("lost", 7.0, 3.0)]
    row = rows_of(made)["lost"]
    assert row.status == "wrong"
    assert row.images_per_s is not None
    assert codes(made)[0] == "wrong-losses"


MakeRecord = Callable[..., Record]


def test_speed_up_and_efficiency_against_one_device_and_independent(make_record: MakeRecord) -> None:
    rows = rows_of([
        make_record("one", [[0.1]]),
        make_record("side", [[0.16], [0.16]], strategy="independent", workers=2),
        make_record("both", [[0.2]], strategy="mirrored", devices=2, examples=20),
    ])  # fmt: skip
    both = rows["both"]
    assert both.images_per_s == pytest.approx(100.0)
    assert both.per_device == pytest.approx(50.0)
    assert both.one_device is not None
    assert both.one_device.label == "one"
    assert both.one_device.comparison.ratio == pytest.approx(1.0)
    assert both.one_device.efficiency == pytest.approx(0.5)
    assert both.independent is not None
    assert both.independent.efficiency == pytest.approx(100 / 125)
    assert rows["one"].independent is None


def test_the_figure_is_the_geometric_mean_over_rounds(make_record: MakeRecord) -> None:
    row = rows_of([make_record("a", [[t]], round=n) for n, t in enumerate((0.1, 0.2, 0.125), start=1)])["a"]
    assert row.images_per_s == pytest.approx((100 * 50 * 80) ** (1 / 3))
    assert row.spread is not None
    assert row.spread.level == 0.95
    assert (row.rounds, row.rounds_planned) == (3, 3)


def test_the_baseline_is_the_one_that_does_the_same_work(make_record: MakeRecord) -> None:
    rows = rows_of([
        make_record("one/32", [[0.1]], precision="float32"),
        make_record("one/16", [[0.05]], precision="mixed_float16"),
        make_record("two/16", [[0.1]], strategy="mirrored", devices=2, examples=20, precision="mixed_float16"),
    ])  # fmt: skip
    against = rows["two/16"].one_device
    assert against is not None
    assert against.label == "one/16"
    assert against.differences == ()


def test_an_independent_of_another_size_is_no_ceiling(make_record: MakeRecord) -> None:
    rows = rows_of([
        make_record("side", [[0.1], [0.1]], strategy="independent", workers=2),
        make_record("four", [[0.1]], strategy="mirrored", devices=4, examples=40),
    ])  # fmt: skip
    assert rows["four"].independent is None


def test_an_independent_on_as_many_hosts_is_the_ceiling(make_record: MakeRecord) -> None:
    rows = rows_of([
        replace(make_record("side/1", [[0.2], [0.2]], strategy="independent", workers=2), hosts=1),
        replace(make_record("side/2", [[0.1], [0.1]], strategy="independent", workers=2), hosts=2),
        replace(make_record("both/1", [[0.25], [0.25]], strategy="multiworker", workers=2), hosts=1),
        replace(make_record("both/2", [[0.125], [0.125]], strategy="multiworker", workers=2), hosts=2),
        replace(make_record("both/3", [[0.125], [0.125]], strategy="multiworker", workers=2), hosts=3),
    ])  # fmt: skip
    one, two = rows["both/1"].independent, rows["both/2"].independent
    assert one is not None
    assert (one.label, one.efficiency) == ("side/1", pytest.approx(0.8))
    assert two is not None
    assert (two.label, two.efficiency) == ("side/2", pytest.approx(0.8))
    assert rows["both/3"].independent is None


def test_the_baselines_figure_per_device_is_kept(make_record: MakeRecord) -> None:
    ones = [make_record("one", [[t]], round=n) for n, t in enumerate((0.1, 0.2, 0.125), start=1)]
    both = make_record("both", [[0.2]], strategy="mirrored", devices=2, examples=20)
    against = rows_of([*ones, both])["both"].one_device
    assert against is not None
    assert against.per_device == pytest.approx(
        (100 * 50 * 80) ** (1 / 3)
    )  # of all rounds, not of the one that both have


def on_a_tpu(made: Record, cores: int) -> Record:
    return replace(made, ranks=tuple(replace(rank, replicas=cores) for rank in made.ranks))


def test_a_tpus_cores_come_from_its_records(make_record: MakeRecord) -> None:
    tpu = make_record("tpu", [[0.1]], strategy="tpu", examples=80, batch_size=10)
    rows = rows_of([make_record("one", [[0.1]]), on_a_tpu(tpu, 8)])
    row = rows["tpu"]
    assert (row.devices, row.batch_global, row.kind) == (8, 80, "multi-card")
    assert row.per_device == pytest.approx(100.0)
    assert row.one_device is not None
    assert row.one_device.efficiency == pytest.approx(1.0)
    assert scaling_of(list(rows.values())) == "weak"


def test_a_failed_tpu_has_an_unknown_number_of_cores(make_record: MakeRecord) -> None:
    row = rows_of([make_record("tpu", strategy="tpu", status="failed", reason="no TPU here")])["tpu"]
    assert (row.devices, row.batch_global, row.kind) == (None, None, "multi-card")


@pytest.mark.parametrize(
    ("strategy", "shape", "hosts", "kind", "exchange"),
    [
        ("one-device", {}, ["a"], "single-card", "sync"),
        ("mirrored", {"devices": 2}, ["a"], "multi-card", "sync"),
        ("independent", {"workers": 2}, ["a", "a"], "multi-card", "no exchange"),
        ("multiworker", {"workers": 1}, ["a"], "single-card", "sync"),
        ("external", {"workers": 1}, ["a"], "single-card", "sync"),
        ("multiworker", {"workers": 2}, ["a", "a"], "multi-node (one host)", "sync"),
        ("multiworker", {"workers": 2}, ["a", "b"], "multi-node", "sync"),
    ],
)
def test_kind_and_exchange(
    make_record: MakeRecord, strategy: str, shape: dict[str, int], hosts: list[str], kind: str, exchange: str
) -> None:
    row = rows_of([make_record("x", [[0.1]] * len(hosts), strategy=strategy, hosts=hosts, **shape)])["x"]
    assert (row.kind, str(row.exchange)) == (kind, exchange)


def test_memory_comes_from_the_system_and_includes_parameter_servers(make_record: MakeRecord) -> None:
    made = make_record("ps", [[0.1]], strategy="parameter-server", workers=1, ps=1, tasks=["chief-0"])
    usage = {"chief-0": TaskUsage(700, 1.0), "worker-0": TaskUsage(900, 1.0), "ps-0": TaskUsage(500, 1.0)}
    row = rows_of([replace(made, usage=usage)])["ps"]
    peaks = row.costs["peak_memory_largest_process_mb"], row.costs["peak_memory_job_mb"]
    assert peaks == (pytest.approx(900e-6), pytest.approx(2100e-6))
    row = rows_of([replace(made, usage={})])["ps"]
    assert row.costs["peak_memory_job_mb"] == 600  # what the task measured of itself


@pytest.mark.parametrize("status", ["failed", "refused", "timeout", "interrupted"])
def test_an_arm_without_figures_is_a_row_with_its_reason(make_record: MakeRecord, status: str) -> None:
    row = rows_of(
        [make_record(), make_record("bad", status=status, reason="because", strategy="multiworker", workers=2)]
    )["bad"]
    assert (row.status, row.reason, row.images_per_s, row.one_device) == (status, "because", None, None)
    assert values_of(row, "weak")["images_per_s"] is None
    assert STATUS.text(values_of(row, "weak")) == f"{status}: because"


def test_an_arm_that_failed_once_keeps_its_figures_and_its_reason(make_record: MakeRecord) -> None:
    row = rows_of([make_record("a"), make_record("a", round=2, status="timeout", reason="too slow")])["a"]
    assert row.images_per_s == pytest.approx(100.0)
    assert (row.rounds, row.rounds_planned, row.status, row.reason) == (1, 2, "timeout", "too slow")


def test_an_arm_that_needed_fewer_rounds_than_it_has_is_complete(make_record: MakeRecord) -> None:
    suite = parse_suite({"name": "s", "rounds": 1, "arms": [{"name": "a", "strategy": "one-device"}]}, "s")
    bench = BenchFile(suite, "tfdist bench", "", interleave(["a"], 1, 0))
    (a,) = summarize([folder([make_record("a"), make_record("a", round=2)], bench=bench)])
    assert (a.status, a.rounds, a.rounds_planned) == ("ok", 2, 1)


def test_an_arm_that_was_never_reached_is_a_row_too(make_record: MakeRecord) -> None:
    arms = [{"name": "a", "strategy": "one-device"}, {"name": "b", "strategy": "mirrored", "devices": 2}]
    suite = parse_suite({"name": "s", "rounds": 2, "arms": arms}, "s")
    bench = BenchFile(suite, "tfdist bench", "", interleave(["a", "b"], 2, 0))
    a, b = summarize([folder([make_record("a")], bench=bench)])
    assert (a.arm, a.status, a.reason, a.rounds, a.rounds_planned) == ("a", "partial", "1 of 2 rounds", 1, 2)
    assert (b.arm, b.status, b.devices, b.images_per_s) == ("b", "not run", 2, None)


@pytest.mark.parametrize(
    ("choices", "devices", "kind"),
    [
        ({"strategy": "one-device"}, 1, "single-card"),
        ({"strategy": "mirrored"}, None, "multi-card"),
        ({"strategy": "mirrored", "devices": 4}, 4, "multi-card"),
        ({"strategy": "independent"}, None, "multi-card"),
        ({"strategy": "multiworker"}, None, "multi-node"),
        ({"strategy": "multiworker", "workers": 2}, 2, "multi-node"),
        ({"strategy": "multiworker", "workers": 2, "devices": 2}, 4, "multi-node"),
    ],
)
def test_a_refused_arm_shows_the_choices_of_the_suite(
    make_record: MakeRecord, choices: dict[str, object], devices: int | None, kind: str
) -> None:
    row = rows_of([replace(make_record("x", status="refused", reason="no GPUs"), spec=choices)])["x"]
    assert (row.devices, row.kind) == (devices, kind)


def test_scaling_follows_from_the_batches(make_record: MakeRecord) -> None:
    one = make_record("one", batch_size=16)
    weak = make_record("two", strategy="mirrored", devices=2, batch_size=16)
    strong = make_record("two", strategy="mirrored", devices=2, batch_size=8)
    other = make_record("three", strategy="mirrored", devices=2, batch_size=10)
    assert scaling_of(list(rows_of([one, weak]).values())) == "weak"
    assert scaling_of(list(rows_of([one, strong]).values())) == "strong"
    assert scaling_of(list(rows_of([one, other]).values())) == "mixed"
    assert "mixed-scaling" in codes([one, other])


def test_an_interrupted_arm_with_figures_says_in_how_many_rounds(make_record: MakeRecord) -> None:
    cut = make_record("a", round=2, status="interrupted", reason="Ctrl-C")
    row = rows_of([make_record("a"), cut])["a"]
    assert (row.status, row.reason) == ("partial", "1 of 2 rounds")
    assert STATUS.text(values_of(row, "weak")) == "partial: 1 of 2 rounds"


def test_several_folders_have_labels_and_are_not_compared(make_record: MakeRecord) -> None:
    one, two = four("one"), four("two", strategy="mirrored", devices=2)
    rows = summarize([folder(one, "x"), folder(two, "y")])
    assert [row.label for row in rows] == ["x: one", "y: two"]
    assert rows[0].one_device is not None
    assert rows[1].one_device is None


def test_the_baseline_in_two_groups_is_measured_in_each_round_once(make_record: MakeRecord) -> None:
    one = [replace(record, group=group) for group in (1, 2) for record in timed("one", 0.1, 0.101, 0.1, 0.1)]
    first = timed("a", 0.05, 0.0502, 0.05, 0.05)
    second = [replace(record, group=2) for record in timed("b", 0.04, 0.0402, 0.04, 0.04)]
    rows = rows_of([*one, *first, *second])
    assert (rows["one"].rounds, len(rows["one"].rates)) == (4, 8)
    against = rows["b"].one_device
    assert against is not None
    assert against.comparison.ratio == pytest.approx(2.5, rel=0.01)


def test_how_much_slower_arms_may_be_is_a_limit_of_all_of_them() -> None:
    """Rounded up."""

    def compared(*lows: float) -> list[Comparison]:
        return [Comparison(1.0, Interval(low, 1.1, 0.95), 12, 1) for low in lows]

    assert up_to(at_most_slower(compared(0.99, 0.956, 0.97))) == "5 %"
    assert up_to(at_most_slower(compared(0.94))) == "6 %"


rates = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=4)


@given(st.lists(rates, min_size=2, max_size=4), st.integers(1, 5))
def test_every_column_divides(arms: list[list[float]], devices: int) -> None:
    """Whatever is missing: speed-up is images/s over the baseline's images/s, exactly as they are shown."""
    baseline, *others = arms
    made = timed("one", *(1 / rate for rate in baseline))
    for number, other in enumerate(others):
        made += timed(f"arm-{number}", *(1 / rate for rate in other), strategy="mirrored", devices=devices, alpha=0.35)
    rows = [values_of(row, "weak") for row in summarize([folder(made)])]
    table = {values["arm"]: values for values in rows}
    for values in table.values():
        base = table[values["baseline"]]
        assert values["speed_up"] == values["images_per_s"] / base["images_per_s"]
        assert values["efficiency"] == values["speed_up"] / values["devices"]
        assert values["images_per_s_per_device"] == values["images_per_s"] / values["devices"]
        interval = values["speed_up_low"], values["speed_up_high"]
        sure = None not in interval and not interval[0] <= 1 <= interval[1]
        few = min(values["rounds"], base["rounds"]) < FEWEST_STARTS and abs(math.log(values["speed_up"])) < math.log(
            1.05
        )
        assert (values["verdict"] != "cannot tell") == (sure and not few)


def test_a_program_of_the_users_own_is_a_row(make_record: MakeRecord) -> None:
    spec = {**StrategyChoice(strategy=StrategyName.MIRRORED, devices=2).to_json(), "command": ["python", "train.py"]}
    one = {**StrategyChoice().to_json(), "command": ["python", "train.py"]}
    rows = rows_of([*(replace(record, spec=one) for record in four("one")),
                    *(replace(record, spec=spec) for record in four("two", strategy="mirrored", devices=2))])  # fmt: skip
    assert (rows["two"].batch_per_replica, rows["two"].batch_global) == (5, 10)  # as measured
    assert rows["two"].one_device is not None
    assert rows["two"].one_device.differences == ()
    text = "image-loader has 2 images/s, no image is lost, Images per joule: 3"
    assert (
        in_unit(text, list(rows.values())) == "image-loader has 2 examples/s, no image is lost, Examples per joule: 3"
    )
    assert in_unit("images/s", [*rows.values(), rows_of([make_record()])["one-device"]]) == "images/s"
