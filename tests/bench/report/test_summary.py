from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tfdist.bench.folder import BenchFile
from tfdist.bench.plan import interleave
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.columns import COLUMNS, values_of
from tfdist.bench.report.headline import headline
from tfdist.bench.report.scaling import scaling_of
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import warnings_for
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.suites.suite import parse_suite
from tfdist.models.record import Record, TaskUsage

MakeRecord = Callable[..., Record]


def folder(records: Sequence[Record], label: str = "here", bench: BenchFile | None = None) -> ResultFolder:
    return ResultFolder(label, bench, tuple(records), (), ())


def rows_of(records: Sequence[Record]) -> dict[str, ArmRow]:
    return {row.arm: row for row in summarize([folder(records)])}


def codes(records: Sequence[Record]) -> list[str]:
    return [warning.code for warning in warnings_for(summarize([folder(records)]))]


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
    assert (row.largest_process_bytes, row.job_bytes) == (900, 2100)
    row = rows_of([replace(made, usage={})])["ps"]
    assert row.job_bytes == 600_000_000  # what the task measured of itself


@pytest.mark.parametrize("status", ["failed", "refused", "timeout", "interrupted"])
def test_an_arm_without_figures_is_a_row_with_its_reason(make_record: MakeRecord, status: str) -> None:
    row = rows_of(
        [make_record(), make_record("bad", status=status, reason="because", strategy="multiworker", workers=2)]
    )["bad"]
    assert (row.status, row.reason, row.images_per_s, row.one_device) == (status, "because", None, None)
    assert values_of(row, "weak")["images_per_s"] is None
    assert COLUMNS["status"](row) == f"{status}: because"


def test_an_arm_that_failed_once_keeps_its_figures_and_its_reason(make_record: MakeRecord) -> None:
    row = rows_of([make_record("a"), make_record("a", round=2, status="timeout", reason="too slow")])["a"]
    assert row.images_per_s == pytest.approx(100.0)
    assert (row.rounds, row.rounds_planned, row.status, row.reason) == (1, 2, "timeout", "too slow")


def test_an_arm_that_was_never_reached_is_a_row_too(make_record: MakeRecord) -> None:
    arms = [{"name": "a", "strategy": "one-device"}, {"name": "b", "strategy": "mirrored", "devices": 2}]
    suite = parse_suite({"name": "s", "rounds": 2, "arms": arms}, "s")
    bench = BenchFile(suite, "tfdist bench", "", interleave(["a", "b"], 2, 0))
    a, b = summarize([folder([make_record("a")], bench=bench)])
    assert (a.arm, a.status, a.rounds, a.rounds_planned) == ("a", "not run", 1, 2)
    assert (b.arm, b.status, b.devices, b.images_per_s) == ("b", "not run", 2, None)


@pytest.mark.parametrize(
    ("choices", "devices", "kind"),
    [
        ({"strategy": "one-device"}, 1, "single-card"),
        ({"strategy": "mirrored"}, None, "multi-card"),
        ({"strategy": "mirrored", "devices": 4}, 4, "multi-card"),
        ({"strategy": "independent"}, None, "multi-card"),
        ({"strategy": "multiworker", "workers": 2}, 2, "multi-node"),
        ({"strategy": "multiworker", "workers": 2, "devices": 2}, 4, "multi-node"),
    ],
)
def test_a_refused_arm_shows_the_choices_of_the_suite(
    make_record: MakeRecord, choices: dict[str, object], devices: int | None, kind: str
) -> None:
    row = rows_of([replace(make_record("x", status="refused", reason="no GPUs"), spec=choices)])["x"]
    assert (row.devices, row.kind) == (devices, kind)


def test_several_folders_have_labels_and_are_compared_without_pairing(make_record: MakeRecord) -> None:
    one = [make_record("one", [[0.1]], round=n) for n in (1, 2, 3)]
    two = [make_record("two", [[0.1]], round=n, strategy="mirrored", devices=2, examples=20) for n in (1, 2, 3)]
    rows = summarize([folder(one, "x"), folder(two, "y")])
    assert [row.label for row in rows] == ["x: one", "y: two"]
    against = rows[1].one_device
    assert against is not None
    assert against.label == "x: one"
    assert against.comparison.ratio == pytest.approx(2.0)
    assert against.comparison.verdict is ArmVerdict.CANNOT_TELL


def test_a_baseline_of_another_folder_must_do_the_same_work(make_record: MakeRecord) -> None:
    rows = summarize(
        [
            folder([make_record("one")], "x"),
            folder([make_record("sgd", optimizer="sgd", devices=2, strategy="mirrored")], "y"),
        ]
    )
    assert rows[1].one_device is None


def test_scaling_follows_from_the_batches(make_record: MakeRecord) -> None:
    one = make_record("one", batch_size=16)
    weak = make_record("two", strategy="mirrored", devices=2, batch_size=16)
    strong = make_record("two", strategy="mirrored", devices=2, batch_size=8)
    other = make_record("three", strategy="mirrored", devices=2, batch_size=10)
    assert scaling_of(list(rows_of([one, weak]).values())) == "weak"
    assert scaling_of(list(rows_of([one, strong]).values())) == "strong"
    assert scaling_of(list(rows_of([one, other]).values())) == "mixed"
    assert "mixed-scaling" in codes([one, other])


def three(make: MakeRecord, arm: str, **spec: object) -> list[Record]:
    return [make(arm, [[0.1]], round=number, **spec) for number in (1, 2, 3)]


def test_a_sound_bench_has_no_warnings(make_record: MakeRecord) -> None:
    assert codes([*three(make_record, "one"), *three(make_record, "two", strategy="mirrored", devices=2)]) == []


def test_each_warning_has_its_cause(make_record: MakeRecord) -> None:
    one = three(make_record, "one")
    assert codes([make_record()]) == ["few-rounds"]
    assert codes(three(make_record, "two", strategy="mirrored", devices=2)) == ["no-baseline"]
    assert codes([*one, *three(make_record, "four", strategy="mirrored", devices=4)]) == ["shared-cores"]
    many = [replace(record, hosts=2) for record in three(make_record, "four", strategy="mirrored", devices=4)]
    assert "shared-cores" not in codes([*one, *many])
    four = three(make_record, "four", strategy="mirrored", devices=4, cores_per_device=None)
    assert "shared-cores" not in codes([*one, *four])
    assert codes([*one, *three(make_record, "two", strategy="multiworker", workers=2, tasks=["worker-0"])]) == [
        "loopback"
    ]
    assert codes([*one, *three(make_record, "sgd", strategy="mirrored", devices=2, optimizer="sgd")]) == [
        "different-work"
    ]
    busy = [replace(record, hardware={**record.hardware, "busy_before": 0.4}) for record in one]
    assert codes(busy) == ["busy-machine"]


def test_parameter_servers_share_the_cores_of_workers_however_many_cores_there_are(make_record: MakeRecord) -> None:
    def with_ps(**spec: object) -> list[str]:
        many = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"], **spec}
        made = [make_record("ps", [[0.1]], round=n, **many) for n in (1, 2, 3)]
        cores = {**made[0].hardware, "cores": list(range(64))}
        return codes([*three(make_record, "one"), *(replace(record, hardware=cores) for record in made)])

    assert "ps-share-cores" in with_ps()
    assert "shared-cores" not in with_ps()
    assert "ps-share-cores" not in with_ps(cores_per_device=None)
    assert "ps-share-cores" not in with_ps(gpus=True)


def test_a_result_above_its_ceiling_is_flagged(make_record: MakeRecord) -> None:
    side = [make_record("side", [[0.2], [0.2]], round=n, strategy="independent", workers=2) for n in (1, 2, 3)]
    fast = three(make_record, "fast", strategy="mirrored", devices=2, examples=30)
    busy = [replace(record, hardware={**record.hardware, "busy_before": 0.4}) for record in fast]
    assert codes([*three(make_record, "one"), *side, *busy])[:2] == ["above-ceiling", "busy-machine"]


def test_every_warning_names_its_arms_and_gives_advice(make_record: MakeRecord) -> None:
    (warning,) = warnings_for(summarize([folder([make_record("lonely")])]))
    assert "lonely" in warning.text
    assert "--rounds 3" in warning.advice


def text_of(records: Sequence[Record]) -> str:
    (text,) = headline(summarize([folder(records)]))
    return text


def test_the_headline_names_the_fastest_arm_and_its_speed_up(bench_records: list[Record]) -> None:
    text = text_of(bench_records)
    assert text.startswith(
        "mirrored/auto was the fastest of 5 arms (independent not counted: no exchange): 122.9 images/s for the whole job on 2 devices."
    )
    assert "1.25 times one-device" in text
    assert "95% of independent" in text
    assert "1 arm failed" in text


def test_the_headline_does_not_rank_the_ceiling(make_record: MakeRecord) -> None:
    side = make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)
    assert text_of([make_record("one"), side]).startswith("one: 100.0 images/s")


def test_the_headline_of_the_ceiling_alone_is_its_figure(make_record: MakeRecord) -> None:
    side = make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)
    assert text_of([side]) == "side: 200.0 images/s for the whole job on 2 devices."
    failed = make_record("two", strategy="mirrored", devices=2, status="failed", reason="x")
    assert text_of([side, failed]).endswith("on 2 devices. Not measured: 1 arm failed.")


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_than_three_rounds_name_no_fastest_arm(make_record: MakeRecord, rounds: int) -> None:
    side = [make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)]
    two = [make_record("two", round=n, strategy="mirrored", devices=2) for n in range(1, rounds + 1)]
    advice = "were measured, in too few rounds to compare them: use --rounds 3 or more."
    assert text_of([make_record("one"), *two, *side]) == f"3 of 3 arms {advice}"
    failed = make_record("bad", strategy="mirrored", devices=2, status="failed", reason="x")
    assert text_of([make_record("one"), *two, failed]) == f"2 of 3 arms {advice} Not measured: 1 arm failed."


def test_arms_with_too_few_rounds_are_not_ranked(make_record: MakeRecord) -> None:
    fast = make_record("fast", [[0.01]])
    text = text_of([*three(make_record, "one"), *three(make_record, "two", strategy="mirrored", devices=2), fast])
    assert "the fastest of 2 arms:" in text
    assert "fast was" not in text


def test_the_headline_lists_arms_without_a_measurable_difference(make_record: MakeRecord) -> None:
    noisy = [make_record("noisy", [[t]], round=n) for n, t in enumerate((0.09, 0.13, 0.101), start=1)]
    assert "No measurable difference from noisy." in text_of([*three(make_record, "one"), *noisy])


def test_without_measurements_the_headline_counts_the_reasons(make_record: MakeRecord) -> None:
    assert text_of([make_record(status="failed", reason="x")]) == "Nothing was measured: 1 arm failed."
