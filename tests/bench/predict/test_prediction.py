import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers
from matplotlib.figure import Figure

from tests.bench.conftest import record, save_record
from tests.bench.predict.sweeps import RING, save_sweep, sweep
from tfdist.bench.growth import Parts, widened, with_rest
from tfdist.bench.predict.prediction import (
    Prediction,
    PredictionOptions,
    predict,
    service_s,
    slowest_over_mean,
    steps_per_s,
)
from tfdist.bench.predict.ring import Ring, RingLink
from tfdist.bench.predict.section import prediction_section
from tfdist.launch.errors import TfdistError


def test_one_worker_never_waits() -> None:
    assert steps_per_s(1, np.array([0.3]), np.array([0.1]), 2)[0, 0] == pytest.approx(1 / 0.4)


def test_two_workers_and_one_server_have_the_textbook_rate() -> None:
    """Computing and served in the mean 1 s each: states 2, 1, 0 computing have the weights 1, 2, 2."""
    assert steps_per_s(2, np.array([1.0]), np.array([1.0]), 1)[1, 0] == pytest.approx((2 + 2) / 5)


def test_many_workers_saturate_the_servers() -> None:
    rates = steps_per_s(400, np.array([1.0]), np.array([0.1]), 2)[:, 0]
    assert (np.diff(rates) > -1e-9).all()
    assert rates[-1] == pytest.approx(20.0, rel=0.01)
    assert rates[0] == pytest.approx(1 / 1.1)


@given(floats(0.001, 10), floats(0.001, 10), integers(1, 8), integers(1, 4))
def test_the_service_time_is_found_again(compute: float, service: float, workers: int, servers: int) -> None:
    rate = steps_per_s(workers, np.array([compute]), np.array([service]), servers)[-1]
    assert service_s(rate, workers, np.array([compute]), servers)[0] == pytest.approx(service, rel=1e-3)


def test_workers_that_are_faster_than_computing_have_no_service_time() -> None:
    assert service_s(np.array([3.0]), 2, np.array([1.0]), 1)[0] == 0


@pytest.mark.parametrize(("devices", "later"), [(2, 0.5642), (4, 1.0294), (10, 1.5388), (100, 2.5076), (1000, 3.2414)])
def test_of_nearly_normal_times_it_is_the_known_order_statistic(devices: int, later: float) -> None:
    (found,) = slowest_over_mean(np.array([float(devices)]), np.array([1e-4]))[0]
    assert (found - 1) / 1e-4 == pytest.approx(later, rel=2e-3)


def test_one_device_waits_for_none_and_more_wait_longer() -> None:
    found = slowest_over_mean(np.array([1.0, 2, 8, 512]), np.array([0.0, 0.1, 0.4]))
    assert found[:, 0] == pytest.approx([1, 1, 1])
    assert found[0] == pytest.approx([1, 1, 1, 1])
    assert (np.diff(found[1:], axis=1) > 0).all()
    assert (np.diff(found[:, 1:], axis=0) > 0).all()


def test_it_agrees_with_drawn_times() -> None:
    draw = np.random.default_rng(0)
    times = np.exp(0.3 * draw.standard_normal((20000, 8)))
    expected = times.max(axis=1).mean() / math.exp(0.3**2 / 2)
    assert slowest_over_mean(np.array([8.0]), np.array([0.3]))[0, 0] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("devices", "rest"), [(1, 0.0), (2, 0.05), (4, 0.1), (8, 0.15)])
def test_the_rest_grows_as_over_the_measured_numbers(devices: int, rest: float) -> None:
    assert rest_on(devices, (2, 4), (0.05, 0.1)) == pytest.approx(rest)


def test_of_three_numbers_it_is_the_line_of_least_squares() -> None:
    """Over log2 = 1, 2, 3 and 0.1, 0.1, 0.4: a mean of 0.2 and a slope of 0.15."""
    assert rest_on(16, (2, 4, 8), (0.1, 0.1, 0.4)) == pytest.approx(0.2 + 2 * 0.15)


def test_the_rest_never_shrinks_with_the_devices() -> None:
    assert rest_on(64, (2, 4), (0.1, 0.05)) == pytest.approx(0.075)


@pytest.mark.parametrize(("devices", "rest"), [(2, 0.1), (4, 0.1), (8, 0.1 + 0.05 * 1.6), (16, 0.1 + 0.1 * 1.6)])
def test_of_one_number_the_step_grows_by_a_twentieth_each_doubling(devices: int, rest: float) -> None:
    assert rest_on(devices, (4,), (0.1,)) == pytest.approx(rest)


def test_overlap_hides_no_more_than_the_exchange_and_the_waiting() -> None:
    assert rest_on(4, (4,), (-0.9,)) == pytest.approx(-0.5)


def rest_on(devices: int, measured: Sequence[int], rests: Sequence[float]) -> float:
    """Seconds of the rest beside 1 s of computing, 0.2 s of waiting and 0.3 s of exchange."""
    seconds = Parts(*(np.array([[value]]) for value in (1.0, 0.2, 0.3, 0.0)))
    return float(with_rest(seconds, np.array([float(devices)]), measured, np.array([rests])).rest[0, 0])


def test_intervals_widen_with_each_doubling_beyond_the_measured_devices() -> None:
    found = widened(np.ones((2, 4)), np.array([1.0, 4, 8, 32]), (2, 4), np.array([0.0, 1.0]))
    assert found == pytest.approx(np.exp([[0.0] * 4, [0.0, 0.0, 0.08, 0.24]]))


STEP_S, BYTES = 0.2, 4 * 3_504_872
LINK = {"bytes_per_s": 120e6, "rtt_s": 200e-6}
DEVICES = (1, 2, 4, 16, 64, 512)


def ideal(devices: Sequence[int], ring: Ring = RING) -> list[float]:
    """Images/s of steps that grow by 5 % for each doubling beyond 2."""
    steps = [(STEP_S + float(ring.seconds(n, BYTES))) * (1 + 0.05 * max(0.0, math.log2(n / 2))) for n in devices]
    return [n * 10 / step for n, step in zip(devices, steps, strict=True)]


def save_bench(
    root: Path,
    exchange_s: float,
    link: dict[str, float] | None = LINK,
    alike: bool = True,
    served_s: float = STEP_S * 0.75,
) -> Path:
    """Steps of exactly 0.2 s, and the exchange after them; without a link all on one host."""
    arms = [("one-device", "one-device", 1, STEP_S), ("independent", "independent", 2, STEP_S),
            ("multiworker/ring", "multiworker", 2, STEP_S + exchange_s)]  # fmt: skip
    number = 0
    for round_ in range(1, 5):
        for arm, strategy, workers, seconds in arms:
            number += 1
            one = record(arm, [[seconds * (1 + 1e-6 * round_)] * 4] * workers, round=round_, strategy=strategy,
                         workers=workers, order=number, batch_size=10 if alike or workers > 1 else 20)  # fmt: skip
            one = replace(one, link=link or {}, hosts=2 if link else 1)
            save_record(root, one)
        number += 1
        server = record("parameter-server", [[served_s] * 4], round=round_, strategy="parameter-server", workers=2,
                        ps=1, tasks=["chief-0"], order=number, examples=10)  # fmt: skip
        save_record(root, replace(server, hosts=2 if link else 1))
    return root


def changed(root: Path, arm: str, **spec: object) -> Path:
    """The records of an arm with other fields in their spec; None: without the field."""
    path = root / "records.jsonl"
    lines = []
    for content in map(json.loads, path.read_text().splitlines()):
        if content["arm"] == arm:
            values = {**content["spec"], **spec}
            content["spec"] = {key: value for key, value in values.items() if value is not None}
        lines.append(json.dumps(content) + "\n")
    path.write_text("".join(lines))
    return root


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    exchange_s = float(RING.seconds(2, BYTES))
    return save_bench(tmp_path / "bench", exchange_s), save_sweep(tmp_path / "sweep", sweep(noise=0.001))


def rates(prediction: Prediction, arm: int = 0) -> list[float]:
    return [point.images_per_s for point in prediction.curves[arm].points]


def test_steps_without_spread_take_the_compute_time_and_the_ring(folders: tuple[Path, Path]) -> None:
    found = predict(*folders, PredictionOptions(DEVICES))
    assert rates(found) == pytest.approx(ideal(DEVICES), rel=5e-3)
    assert found.curves[0].points[1].parts_ms == pytest.approx(
        (200, 0, 1e3 * float(RING.seconds(2, BYTES)), 0), abs=1.0
    )
    assert [point.extrapolated for point in found.curves[0].points] == [False] * 4 + [True] * 2
    assert all(p.interval.low <= p.images_per_s <= p.interval.high for p in found.curves[0].points)


def test_another_link_changes_the_exchange_only(folders: tuple[Path, Path]) -> None:
    found = predict(*folders, PredictionOptions((2, 8), bandwidth=12e6, latency_s=1e-3))
    ring = RING.over(RingLink(120e6, 100e-6), RingLink(12e6, 1e-3))
    assert rates(found) == pytest.approx(ideal((2, 8), ring), rel=5e-3)
    assert predict(*folders, PredictionOptions((2,), bandwidth=10e6)).curves[0].points[0].extrapolated


def test_what_the_model_misses_stays_as_the_rest(tmp_path: Path) -> None:
    exchange_s = float(RING.seconds(2, BYTES))
    bench = save_bench(tmp_path / "bench", exchange_s + 0.05)
    found = predict(bench, save_sweep(tmp_path / "sweep", sweep(noise=0.001)), PredictionOptions((1, 2, 4)))
    grown = 50 + 0.05 * 1e3 * (STEP_S + float(RING.seconds(4, BYTES)) + 0.05)
    assert [point.parts_ms[3] for point in found.curves[0].points] == pytest.approx([0, 50, grown], abs=1.5)
    assert found.curves[0].points[0].efficiency == pytest.approx(1.0)


def test_a_bench_of_one_host_and_a_sweep_of_two_are_told_apart(tmp_path: Path) -> None:
    own_s = float(RING.over(RingLink(120e6, 100e-6), RingLink()).seconds(2, BYTES))
    bench = save_bench(tmp_path / "bench", own_s, link=None)
    found = predict(bench, save_sweep(tmp_path / "sweep", sweep(noise=0.001)), PredictionOptions((2,)))
    assert rates(found) == pytest.approx([20 / (STEP_S + float(RING.seconds(2, BYTES)))], rel=5e-3)


def save_four(root: Path, exchange_s: float, **spec: object) -> Path:
    """The arm on four hosts beside that on two."""
    for round_ in range(1, 5):
        one = record("multiworker/4", [[STEP_S + exchange_s] * 4] * 4, round=round_, strategy="multiworker", workers=4,
                     order=10 * round_, hosts=[f"h{host}" for host in range(4)], **spec)  # fmt: skip
        save_record(root, replace(one, link=LINK))
    return root


def test_arms_that_differ_in_devices_only_are_one_curve(tmp_path: Path) -> None:
    """The rest is 50 ms on 2 devices and 90 ms on 4: 130 ms on 8."""
    two, four = (float(RING.seconds(n, BYTES)) for n in (2, 4))
    bench = save_four(save_bench(tmp_path / "bench", two + 0.05), four + 0.09)
    made = save_sweep(tmp_path / "sweep", sweep(noise=0.001))
    found = predict(bench, made, PredictionOptions((2, 4, 8), arms=("multiworker/*",)))
    assert [(curve.arm.arm, curve.measured) for curve in found.curves] == [("multiworker/4", (2, 4))]
    assert [point.parts_ms[3] for point in found.curves[0].points] == pytest.approx([50, 90, 130], abs=2)
    assert any("grows as it did over 2 and 4 devices" in note for note in prediction_section(found).notes)
    alone = predict(bench, made, PredictionOptions((2,), arms=("multiworker/ring",)))
    assert alone.curves[0].measured == (2,)
    assert any("assumed to grow by 5% for each doubling" in note for note in prediction_section(alone).notes)


def test_an_arm_on_one_device_does_not_show_how_the_rest_grows(folders: tuple[Path, Path]) -> None:
    for round_ in range(1, 5):
        one = record("multiworker/1", [[STEP_S] * 4], round=round_, strategy="multiworker", order=10 * round_)
        save_record(folders[0], replace(one, link=LINK, hosts=2))
    found = predict(*folders, PredictionOptions((2,), arms=("multiworker/*",)))
    assert [curve.measured for curve in found.curves] == [(2,)]


@pytest.mark.parametrize(
    "other",
    [
        {"bytes_per_pack": 2**20},
        {"steps_per_call": 10},
        {"slow_worker": 1, "slow_factor": 2.0},
        {"optimizer": "sgd"},
        {"batch_size": 12},
    ],
)
def test_arms_that_exchange_or_compute_otherwise_are_curves_of_their_own(tmp_path: Path, other: dict[str, Any]) -> None:
    bench = save_four(save_bench(tmp_path / "bench", 0.1), 0.2, **other)
    save_record(bench, record("one-device/other", [[STEP_S] * 4], order=99, **other))
    made = save_sweep(tmp_path / "sweep", sweep())
    found = predict(bench, made, PredictionOptions((2, 4), arms=("multiworker/*",)))
    assert sorted(curve.measured for curve in found.curves) == [(2,), (4,)]


@pytest.mark.parametrize("asked", [{"devices": (4,)}, {"devices": (2,), "bandwidth": 1e9}, {"devices": (2,), "latency_s": 1e-5}])  # fmt: skip
@pytest.mark.parametrize("arm", ["multiworker/ring", "parameter-server"])
def test_measurements_of_one_host_are_not_used_for_several(tmp_path: Path, arm: str, asked: dict[str, Any]) -> None:
    own_s = float(RING.seconds(2, BYTES))
    bench = save_bench(tmp_path / "bench", own_s, link=None)
    made = sweep(noise=0.001)
    made = save_sweep(tmp_path / "sweep", replace(made, header=replace(made.header, hosts=("box",), link={})))
    with pytest.raises(TfdistError, match=r"measured on one host, .* 'tfdist bench --hosts .* at most 2 devices"):
        predict(bench, made, PredictionOptions(**asked, arms=(arm,)))
    within = predict(bench, made, PredictionOptions((1, 2), arms=(arm,)))
    measured_s = {"multiworker/ring": STEP_S + own_s, "parameter-server": 2 * STEP_S * 0.75}[arm]
    assert rates(within)[1] == pytest.approx(20 / measured_s, rel=5e-3)


def test_parameter_servers_of_one_host_are_predicted_over_the_link_of_the_sweep(tmp_path: Path) -> None:
    bench = save_bench(tmp_path / "bench", 0.1, link=None)
    made = save_sweep(tmp_path / "sweep", sweep())
    asked = PredictionOptions((64,), arms=("parameter-server",))
    over_sweep, as_fast = predict(bench, made, asked), predict(bench, made, replace(asked, bandwidth=120e6))
    assert over_sweep.curves[0].link == RingLink(120e6, 100e-6)
    assert rates(over_sweep) == rates(as_fast)


def test_devices_pay_until_the_next_one_adds_too_little(folders: tuple[Path, Path]) -> None:
    def until(latency_s: float, worth: float = 0.5) -> int | None:
        asked = PredictionOptions(
            (1, 2, 4, 512), bandwidth=1e12, latency_s=latency_s, worth=worth, arms=("multiworker/*",)
        )
        return predict(*folders, asked).curves[0].pays_until

    assert until(1e-9, worth=0.1) is None
    free = predict(
        *folders, PredictionOptions((1, 512), bandwidth=1e12, latency_s=1e-9, worth=0.1, arms=("multiworker/*",))
    )
    assert (
        "Up to 512, each device adds at least 10% of what one device alone does" in prediction_section(free).answer[0]
    )
    slow, slower = until(1e-3), until(4e-3)
    assert slow is not None
    assert slower is not None
    assert 1 < slower < slow < 512


def test_parameter_servers_serve_at_most_their_rate(folders: tuple[Path, Path]) -> None:
    found = predict(folders[0], None, PredictionOptions((1, 2, 512), arms=("parameter-server",)))
    (curve,) = found.curves
    assert curve.points[1].images_per_s == pytest.approx(10 / (STEP_S * 0.75), rel=1e-3)
    assert curve.service is not None
    assert curve.points[2].images_per_s == pytest.approx(curve.service, rel=0.01)


def test_parameter_servers_for_which_nothing_waits_have_no_limit(tmp_path: Path) -> None:
    folder = save_bench(tmp_path / "bench", 0.0, link=None, served_s=STEP_S / 2.5)
    (curve,) = predict(folder, None, PredictionOptions((1, 2), arms=("parameter-server",))).curves
    assert curve.service is None


def test_a_slower_link_slows_the_parameter_servers(folders: tuple[Path, Path]) -> None:
    def served(bandwidth: float) -> float:
        asked = PredictionOptions((2, 64), bandwidth=bandwidth, latency_s=100e-6, arms=("parameter-server",))
        return predict(*folders, asked).curves[0].service or 0.0

    alone = predict(*folders, PredictionOptions((2,))).curves[1].service
    assert alone is not None
    assert served(1e15) == pytest.approx(alone, rel=1e-3)
    assert served(12e6) == pytest.approx(10 / (10 / alone + BYTES / 12e6), rel=1e-3)
    assert served(60e6) < served(120e6) < served(1e12)


def test_a_missing_option_of_the_link_is_that_of_the_bench(folders: tuple[Path, Path]) -> None:
    def rate(**asked: float) -> float:
        wanted = PredictionOptions((16,), arms=("parameter-server",), **asked)
        return predict(folders[0], None, wanted).curves[0].points[0].images_per_s

    save_all = {"link": LINK}
    path = folders[0] / "records.jsonl"
    path.write_text("".join(json.dumps(json.loads(line) | save_all) + "\n" for line in path.read_text().splitlines()))
    assert rate(latency_s=100e-6) == pytest.approx(rate(), rel=1e-6)
    assert rate(latency_s=20e-3) < rate(latency_s=100e-6)
    far, near = (
        predict(folders[0], None, PredictionOptions((2,), bandwidth=speed, arms=("parameter-server",)))
        .curves[0]
        .points[0]
        for speed in (12e9, 240e6)
    )
    assert (far.extrapolated, near.extrapolated) == (True, False)


def test_each_arm_has_gradients_of_its_own_size(folders: tuple[Path, Path]) -> None:
    for arm in ("one-device", "independent", "multiworker/ring"):
        changed(folders[0], arm, alpha=0.35)
    changed(folders[0], "parameter-server", alpha=0.35, classes=10)
    found = predict(folders[0], folders[1], PredictionOptions((2,), arms=("multiworker/ring",)))
    small = found.curves[0].gradient_bytes
    assert small < BYTES / 2
    assert found.fits[0][1] == small
    assert found.curves[0].points[0].parts_ms[2] == pytest.approx(1e3 * float(RING.seconds(2, small)), rel=0.05)


def test_a_program_of_ones_own_is_predicted_with_the_batch_that_was_measured(folders: tuple[Path, Path]) -> None:
    expected = rates(predict(*folders, PredictionOptions((2, 8), arms=("multiworker/ring",))))
    for arm in ("one-device", "independent", "multiworker/ring", "parameter-server"):
        changed(folders[0], arm, command=["python", "train.py"], batch_size=None)
    with pytest.raises(TfdistError, match="a program of its own: give the size of its gradients, as --gradient-bytes"):
        predict(*folders, PredictionOptions((2, 8)))
    found = predict(*folders, PredictionOptions((2, 8), gradient_bytes=BYTES))
    assert rates(found) == pytest.approx(expected)
    assert prediction_section(found).answer


def test_an_interval_does_not_exceed_the_devices_that_were_asked_for(folders: tuple[Path, Path]) -> None:
    asked = PredictionOptions((1, 64), bandwidth=1e12, latency_s=1e-9, worth=0.1, arms=("multiworker/*",))
    assert predict(*folders, asked).curves[0].pays_interval == (64, None)


def test_a_sweep_is_required_by_synchronous_arms_only(folders: tuple[Path, Path]) -> None:
    with pytest.raises(TfdistError, match=r"multiworker/ring exchanges gradients .* --collectives"):
        predict(folders[0], None, PredictionOptions((2,)))
    with pytest.raises(TfdistError, match=r"--arm mirrored: cannot be predicted; choose from multiworker/ring"):
        predict(*folders, PredictionOptions((2,), arms=("mirrored",)))


def test_a_one_device_arm_of_the_same_work_is_required(tmp_path: Path) -> None:
    bench = save_bench(tmp_path / "bench", 0.1, alike=False)
    with pytest.raises(TfdistError, match="no one-device arm of the same work"):
        predict(bench, save_sweep(tmp_path / "sweep", sweep()), PredictionOptions((2,), arms=("multiworker/*",)))


def test_extrapolations_are_dashed_and_references_have_their_source(folders: tuple[Path, Path]) -> None:
    section = prediction_section(predict(*folders, PredictionOptions(DEVICES, bandwidth=1.25e8)))
    for chart in section.charts:
        axes = Figure().subplots()
        chart.paint(axes)
        dashed = [line.get_label() for line in axes.lines if line.get_linestyle() == "--"]
        assert dashed == ["multiworker/ring, extrapolation", "parameter-server, extrapolation"]
        assert any(str(line.get_label()).startswith("published, other hardware") for line in axes.lines)
    assert sum("horovod" in note for note in section.notes) == 2
    assert sum("OSDI 2016" in note for note in section.notes) == 2
    assert [row["note"] for row in section.tables[0].rows][:6] == [""] * 4 + ["extrapolation"] * 2
